// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/shm/rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "stretto/base/error.hpp"

namespace stretto::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x326f74746572'7473ULL;  // "stretto2": the protocol's version too

struct Hello {
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t pid = 0;
  std::int32_t unused = 0;
  std::uint64_t heap_bytes = 0;
  std::uint64_t machine = 0;  // hash of the emulated machine, 0 for none
};

std::string reason() {
  return std::generic_category().message(errno);
}

[[noreturn]] void unavailable(const std::string& what,
                              const std::filesystem::path& where,
                              const std::string& help = {}) {
  throw Error(ErrorCode::kUnavailable, {what, where.string(), "", "", help});
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    unavailable("the rendezvous directory's name is too long for a socket",
                path,
                "Set TMPDIR or STRETTO_RENDEZVOUS to a shorter one (a socket's name has at most "
                "107 characters).");
  }
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

std::filesystem::path socket_path(const std::filesystem::path& directory, int rank) {
  return directory / ("rank-" + std::to_string(rank) + ".sock");
}

FileDescriptor new_socket(const std::filesystem::path& where) {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) {
    unavailable("cannot create a socket: " + reason(), where);
  }
  return fd;
}

// Waits until `fd` is readable; false when the time is over.
bool readable(int fd, Clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd watched{fd, POLLIN, 0};
    const int got = ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (got > 0) {
      return true;
    }
    if (got == 0 && left <= 0) {
      return false;
    }
    if (got < 0 && errno != EINTR) {
      return false;
    }
  }
}

// True if the other side closes without a word.
bool hung_up(int socket, Clock::time_point deadline) {
  char first = 0;
  if (!readable(socket, deadline)) {
    return false;
  }
  const ssize_t got = recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);  // reset: it did not even read our greeting
}

bool send_hello(int socket, const Hello& hello, int file) {
  Hello copy = hello;
  iovec data{&copy, sizeof copy};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof file);
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof copy);
}

bool receive_hello(int socket, Hello& hello, FileDescriptor& file) {
  iovec data{&hello, sizeof hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    unavailable("cannot receive a peer's memory: no file descriptor is free",
                "rendezvous",
                "See ulimit -n.");
  }
  if (got != static_cast<ssize_t>(sizeof hello)) {
    return false;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      file = FileDescriptor(fd);
    }
  }
  return file.get() >= 0;
}

// A socket file whose owner was killed before it could remove it is in nobody's way.
bool bind_to(int listener, const sockaddr_un& address) {
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(listener, generic, sizeof address) == 0) {
    return true;
  }
  if (errno != EADDRINUSE) {
    return false;
  }
  const FileDescriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), generic, sizeof address) == 0 || errno != ECONNREFUSED) {
    errno = EADDRINUSE;
    return false;
  }
  unlink(address.sun_path);
  return bind(listener, generic, sizeof address) == 0;
}

bool listens(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  const FileDescriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN;  // too many who wait to be let in
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

class Host {
 public:
  Host(std::filesystem::path directory,
       int rank,
       int size,
       const SegmentLayout& layout,
       Nanoseconds timeout,
       std::uint64_t machine)
      : directory_(std::move(directory)),
        deadline_(Clock::now() + timeout),
        next_look_(Clock::now() + timeout / kLooks),
        timeout_(timeout) {
    mine_.rank = rank;
    mine_.size = size;
    mine_.pid = static_cast<std::int32_t>(getpid());
    mine_.heap_bytes = layout.heap_bytes;
    mine_.machine = machine;
    meeting_.files.resize(static_cast<std::size_t>(size));
    meeting_.sockets.resize(static_cast<std::size_t>(size));
    meeting_.pids.resize(static_cast<std::size_t>(size));
    seen_.resize(static_cast<std::size_t>(size));
  }
  ~Host() {
    std::error_code ignored;
    if (listening_) {
      std::filesystem::remove(socket_path(directory_, mine_.rank), ignored);
    }
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  Meeting meet_all(FileDescriptor own) {
    const int file = own.get();
    meeting_.pids[static_cast<std::size_t>(mine_.rank)] = mine_.pid;
    meeting_.files[static_cast<std::size_t>(mine_.rank)] = std::move(own);
    const std::filesystem::path path = socket_path(directory_, mine_.rank);
    const FileDescriptor listener = new_socket(path);
    const sockaddr_un address = address_of(path);
    if (!bind_to(listener.get(), address)) {
      const bool taken = errno == EADDRINUSE;
      unavailable("cannot listen in the rendezvous directory: " + reason(),
                  path,
                  taken
                      ? "Two processes claim this rank: start ranks with distinct numbers, one job "
                        "per directory."
                      : "The directory must exist and be writable by this user.");
    }
    listening_ = true;
    if (listen(listener.get(), SOMAXCONN) != 0) {
      unavailable("cannot listen in the rendezvous directory: " + reason(), path);
    }
    for (int peer = 0; peer < mine_.rank; ++peer) {
      FileDescriptor socket = call(peer);
      if (!send_hello(socket.get(), mine_, file)) {
        unavailable("cannot greet rank " + std::to_string(peer) + ": " + reason(), directory_);
      }
      accept_hello(std::move(socket));
    }
    for (int expected = mine_.rank + 1; expected < mine_.size; ++expected) {
      if (!readable_in_time(listener.get())) {
        late();
      }
      FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket.get() < 0 && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
        unavailable("cannot accept a rank: " + reason(), directory_, "See ulimit -n.");
      }
      if (socket.get() < 0 || !same_user(socket.get())) {
        --expected;  // not one of us
        continue;
      }
      if (!send_hello(socket.get(), mine_, file) || hung_up(socket.get(), deadline_)) {
        --expected;  // it only looked whether somebody listens; a rank that died will be missed
        continue;
      }
      accept_hello(std::move(socket));
    }
    return std::move(meeting_);
  }

 private:
  FileDescriptor call(int peer) {
    const std::filesystem::path path = socket_path(directory_, peer);
    const sockaddr_un address = address_of(path);
    for (;;) {
      FileDescriptor socket = new_socket(path);
      if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        if (!same_user(socket.get())) {
          unavailable("another user listens as rank " + std::to_string(peer),
                      path,
                      "Use a rendezvous directory that only this user can write.");
        }
        return socket;
      }
      if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
        unavailable("cannot reach rank " + std::to_string(peer) + ": " + reason(), path);
      }
      if (Clock::now() >= deadline_) {
        late();
      }
      look_around_when_due();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  void accept_hello(FileDescriptor socket) {
    Hello theirs;
    FileDescriptor file;
    if (!readable_in_time(socket.get())) {
      late();
    }
    if (!receive_hello(socket.get(), theirs, file) || theirs.magic != kMagic) {
      throw Error(ErrorCode::kPeerLost,
                  {"a rank went away while connecting, or does not speak this version",
                   directory_.string(),
                   "",
                   "",
                   "Look at the other ranks' output; all must run the same Stretto."});
    }
    if (theirs.size != mine_.size || theirs.rank < 0 || theirs.rank >= mine_.size ||
        theirs.rank == mine_.rank ||
        meeting_.sockets[static_cast<std::size_t>(theirs.rank)].get() >= 0) {
      throw Error(ErrorCode::kMismatch,
                  {"ranks disagree about the job",
                   directory_.string(),
                   "rank " + std::to_string(theirs.rank) + " of " + std::to_string(theirs.size),
                   "a rank of " + std::to_string(mine_.size) + " that is not here yet",
                   "Give every process its own rank and the same world size."});
    }
    if (theirs.heap_bytes != mine_.heap_bytes) {
      throw Error(ErrorCode::kMismatch,
                  {"ranks disagree about ShmOptions::arena_capacity",
                   "rank " + std::to_string(theirs.rank),
                   std::to_string(theirs.heap_bytes) + " bytes",
                   std::to_string(mine_.heap_bytes) + " bytes",
                   ""});
    }
    if (theirs.machine != mine_.machine) {
      throw Error(
          ErrorCode::kMismatch,
          {"ranks disagree about the emulated machine",
           "rank " + std::to_string(theirs.rank),
           theirs.machine == 0 ? "none" : "another machine",
           mine_.machine == 0 ? "none" : "the machine of rank " + std::to_string(mine_.rank),
           "Give every rank the same --emulate."});
    }
    const auto index = static_cast<std::size_t>(theirs.rank);
    meeting_.sockets[index] = std::move(socket);
    meeting_.files[index] = std::move(file);
    meeting_.pids[index] = theirs.pid;
  }

  /// Remembers who is here without having met us: it waits for somebody else, as we do. Now and
  /// then, for whoever came before us also gives up before us, and is not to be called missing.
  void look_around() {
    for (int rank = 0; rank < mine_.size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      if (rank == mine_.rank || seen_[index] || meeting_.sockets[index].get() >= 0) {
        continue;
      }
      seen_[index] = listens(socket_path(directory_, rank));
    }
  }

  void look_around_when_due() {
    if (Clock::now() >= next_look_) {
      look_around();
      next_look_ = Clock::now() + timeout_ / kLooks;
    }
  }

  bool readable_in_time(int fd) {
    while (!readable(fd, std::min(deadline_, next_look_))) {
      if (Clock::now() >= deadline_) {
        return false;
      }
      look_around_when_due();
    }
    return true;
  }

  [[noreturn]] void late() {
    look_around();
    std::string missing;
    std::string unmet;
    for (int rank = 0; rank < mine_.size; ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      if (rank != mine_.rank && meeting_.sockets[index].get() < 0) {
        std::string& names = seen_[index] ? unmet : missing;
        names += (names.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    throw Error(ErrorCode::kTimeout,
                {"not all ranks came to the rendezvous",
                 directory_.string() + ", rank " + std::to_string(mine_.rank),
                 (missing.empty() ? "no answer of rank " + unmet : "no sign of rank " + missing) +
                     " after " + format(Seconds(timeout_)),
                 std::to_string(mine_.size) + " ranks",
                 "Start them all, on one host and with the same directory."});
  }

  static constexpr int kLooks = 8;  ///< In the time that we wait.

  std::filesystem::path directory_;
  Clock::time_point deadline_;
  Clock::time_point next_look_;
  Nanoseconds timeout_;
  Hello mine_;
  Meeting meeting_;
  std::vector<bool> seen_;
  bool listening_ = false;
};

}  // namespace

Meeting meet(const std::filesystem::path& directory,
             int rank,
             int size,
             const SegmentLayout& layout,
             FileDescriptor own,
             Nanoseconds timeout,
             std::uint64_t machine) {
  return Host(directory, rank, size, layout, timeout, machine).meet_all(std::move(own));
}

bool has_listener(const std::filesystem::path& directory) {
  std::error_code none;
  for (std::filesystem::directory_iterator entry(directory, none), end; !none && entry != end;
       entry.increment(none)) {
    // Longer names are no sockets of ours, nor of anybody.
    if (entry->path().extension() == ".sock" &&
        entry->path().string().size() < sizeof(sockaddr_un::sun_path) && listens(entry->path())) {
      return true;
    }
  }
  return false;
}

}  // namespace stretto::detail
