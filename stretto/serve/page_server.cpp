// SPDX-License-Identifier: Apache-2.0
#include "stretto/serve/page_server.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/serve/http_response.hpp"

namespace stretto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHeadBytes = 16384;
constexpr auto kPatience = std::chrono::seconds(2);

[[noreturn]] void fail(std::string what, int port) {
  throw Error(ErrorCode::kUnavailable,
              {std::move(what),
               fmt::format("127.0.0.1:{}", port),
               std::system_category().message(errno),
               "a free port",
               "--port 0 takes one that is free"});
}

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  for (std::size_t got = 0; got < bytes.size();) {
    const ssize_t more = getrandom(&bytes[got], bytes.size() - got, 0);
    if (more < 0 && errno != EINTR) {
      fail("no random numbers for the address", 0);
    }
    got += more > 0 ? static_cast<std::size_t>(more) : 0;
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

/// Waits for `events` on `fd`. False when `stop` is readable, the deadline passed or the peer left.
bool wait_for(int fd, short events, int stop, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return false;
    }
    std::array<pollfd, 2> polled = {pollfd{fd, events, 0}, pollfd{stop, POLLIN, 0}};
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    if (polled[1].revents != 0 || (ready < 0 && errno != EINTR)) {
      return false;
    }
    if (ready > 0 && polled[0].revents != 0) {
      return true;
    }
  }
}

void answer(int client, const detail::Served& served, int stop) {
  std::string head;
  const auto deadline = Clock::now() + kPatience;
  while (head.find("\r\n\r\n") == std::string::npos) {
    std::array<char, 4096> part{};
    if (head.size() > kMostHeadBytes || !wait_for(client, POLLIN, stop, deadline)) {
      return;
    }
    const ssize_t got = recv(client, part.data(), part.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
      return;
    }
    head.append(part.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  head.resize(head.find("\r\n\r\n") + 2);
  const std::string response = detail::http_response(head, served);
  std::string_view rest = response;
  while (!rest.empty()) {
    // Of a client that takes nothing for so long, nothing is waited for.
    if (!wait_for(client, POLLOUT, stop, Clock::now() + kPatience)) {
      return;
    }
    const ssize_t sent = send(client, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return;
    }
    rest.remove_prefix(sent > 0 ? static_cast<std::size_t>(sent) : 0);
  }
}

}  // namespace

PageServer::PageServer(int port) : token_(random_token()) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener_ < 0) {
    fail("no socket for the page", port);
  }
  const int yes = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  // NOLINTBEGIN(cppcoreguidelines-pro-type-reinterpret-cast): as sockets are
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    // NOLINTEND(cppcoreguidelines-pro-type-reinterpret-cast)
    const int why = errno;
    close(listener_);
    errno = why;
    fail("the page cannot be served there", port);
  }
  port_ = ntohs(address.sin_port);
}

PageServer::~PageServer() {
  close(listener_);
}

std::string PageServer::url() const {
  return fmt::format("http://127.0.0.1:{}/{}/", port_, token_);
}

void PageServer::run(const std::function<std::string()>& page, int stop) {
  const detail::Served served{token_, port_, page};
  for (;;) {
    std::array<pollfd, 2> polled = {pollfd{listener_, POLLIN, 0}, pollfd{stop, POLLIN, 0}};
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
      fail("the page can no longer be served", port_);
    }
    if (polled[1].revents != 0) {
      return;
    }
    if (polled[0].revents == 0) {
      continue;
    }
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) {
      answer(client, served, stop);
      close(client);
    }
  }
}

}  // namespace stretto
