// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/mpi/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include <sys/mman.h>
#include <sys/prctl.h>

#include "stretto/comm/futex.hpp"
#include "stretto/comm/mpi/loader.hpp"
#include "stretto/comm/operation_code.hpp"

namespace stretto::detail {
namespace {

// MPI gives no file descriptor to sleep on, so a sleeping driver looks again after half of the time
// in which nothing came: what is due later is noticed later, but never by much of its own length.
// Measured at 1 Gbit/s: naps from 20 us cost half as much processor time again, naps up to 500 us a
// fifth of the bandwidth, for MPI moves no bytes unless it is asked.
constexpr ModelTime kShortestNap = 100'000;
constexpr ModelTime kLongestNap = 250'000;
constexpr ModelTime kLongestIdleNap = 1'000'000;  // after 100 ms in which nothing came
constexpr ModelTime kIdle = 100'000'000;

ModelTime monotonic_ns() {
  timespec at{};
  clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<ModelTime>(at.tv_sec) * 1'000'000'000 + at.tv_nsec;
}

// Pages of its own, zeroed and not there until touched.
class PageArena final : public Arena {
 public:
  explicit PageArena(std::size_t bytes) : Arena(map(bytes)), mapped_(bytes) {}
  ~PageArena() override { munmap(bytes().data(), mapped_ == 0 ? 1 : mapped_); }
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

 private:
  static std::span<std::byte> map(std::size_t bytes) {
    void* const data = mmap(nullptr,
                            bytes == 0 ? 1 : bytes,
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                            -1,
                            0);
    if (data == MAP_FAILED) {
      throw Error(ErrorCode::kUnavailable,
                  {"no memory for an arena", "", std::to_string(bytes) + " bytes", "", ""});
    }
    return {static_cast<std::byte*>(data), bytes};
  }
  std::size_t mapped_;
};

}  // namespace

MpiTransport::MpiTransport(MpiWorld world, Nanoseconds timeout)
    : world_(std::move(world)),
      mpi_(*world_.mpi),
      silence_(timeout / 3),
      requests_(mpi_),
      headers_(kHeadersPosted),
      peers_(static_cast<std::size_t>(world_.size)),
      progress_at_(monotonic_ns()),
      abort_requests_(mpi_) {
  for (std::size_t place = 0; place < headers_.size(); ++place) {
    headers_[place].buffer = buffers_.take(sizeof(Header) + kEagerBytes);
    listen(place);
  }
}

std::unique_ptr<Arena> MpiTransport::allocate(Bytes size) {
  return std::make_unique<PageArena>(static_cast<std::size_t>(size.count()));
}

// ---------------------------------------------------------------- headers

void MpiTransport::listen(std::size_t place) {
  HeaderPlace& header = headers_[place];
  header.arrived = false;
  const MpiRequest request{
      MpiRequest::Kind::kHeaderReceive, kMpiAnyRank, sizeof(Header) + kEagerBytes, &header};
  mpi_failed(mpi_.receive(world_.communicator,
                          header.buffer.data.get(),
                          request.bytes,
                          kMpiAnyRank,
                          kHeaderTag,
                          requests_.add(request)),
             request,
             "listen for messages");
}

void MpiTransport::post(int to, Header header, const std::byte* payload, std::size_t bytes) {
  header.from = world_.rank;
  MpiBuffer buffer = buffers_.take(sizeof header + bytes);
  std::byte* const data = buffer.data.release();
  std::memcpy(data, &header, sizeof header);
  if (bytes != 0) {
    std::memcpy(data + sizeof header, payload, bytes);
  }
  const MpiRequest request{MpiRequest::Kind::kHeaderSend, to, buffer.bytes, data};
  headers_out_.fetch_add(1, std::memory_order_seq_cst);
  mpi_failed(
      mpi_.send(
          world_.communicator, data, sizeof header + bytes, to, kHeaderTag, requests_.add(request)),
      request,
      "send to");
}

void MpiTransport::read_header(const std::byte* data) {
  Header header;
  std::memcpy(&header, data, sizeof header);
  Peer& from = peer(header.from);
  from.heard_at = progress_at_.load(std::memory_order_relaxed);
  switch (header.kind) {
    case HeaderKind::kEager:
    case HeaderKind::kOffer:
      announced(header, data + sizeof header);
      return;
    case HeaderKind::kGrant:
      granted(header);
      return;
    case HeaderKind::kPing:
      post(header.from, {.kind = HeaderKind::kPong}, nullptr, 0);
      return;
    case HeaderKind::kPong:
      return;
    case HeaderKind::kFarewell:
      from.closed = true;
      closed_peers_ = true;
      if (!leaving_) {  // else it gets our own, and waits for it
        post(header.from, {.kind = HeaderKind::kFarewellAck}, nullptr, 0);
      }
      return;
    case HeaderKind::kFarewellAck:
      from.let_us_go = true;
      return;
    case HeaderKind::kAbort: {
      const std::scoped_lock lock(abort_mutex_);
      if (!notice_) {
        notice_ = {static_cast<ErrorCode>(header.tag),
                   header.from,
                   header.about,
                   static_cast<std::uint32_t>(header.address >> 32),
                   static_cast<std::uint32_t>(header.address)};
        aborted_.store(true, std::memory_order_release);
      }
      heard_abort_ = true;
      return;
    }
  }
}

// ---------------------------------------------------------------- sending

void MpiTransport::send(Message& message) {
  Header header{.address = message.address, .bytes = message.bytes, .what = message.what};
  if (message.bytes <= kEagerBytes) {
    post(message.peer, header, message.data, message.bytes);
    message.group->arrived(0);
    return;
  }
  Peer& to = peer(message.peer);
  Sending& sending = sendings_.take();
  sending.message = &message;
  sending.address = message.address;
  sending.data = message.data;
  sending.bytes = message.bytes;
  sending.what = message.what;
  sending.priority = message.priority;
  sending.turn = message.turn;
  // Also when a grant is there already: it is what the receiver's other operations may wait for.
  header.kind = HeaderKind::kOffer;
  post(message.peer, header, nullptr, 0);
  const auto early =
      std::find_if(to.early_grants.begin(), to.early_grants.end(), [&](const Grant& grant) {
        return grant.address == sending.address;
      });
  if (early == to.early_grants.end()) {
    to.offered.push_back(&sending);
    return;
  }
  const Grant grant = *early;
  to.early_grants.erase(early);
  start_sending(sending, grant);
}

void MpiTransport::granted(const Header& header) {
  Peer& to = peer(header.from);
  const Grant grant{header.address, header.bytes, header.segment_bytes, header.what, header.tag};
  const auto offer = std::find_if(to.offered.begin(), to.offered.end(), [&](const Sending* each) {
    return each->address == grant.address;
  });
  if (offer == to.offered.end()) {
    to.early_grants.push_back(grant);
    return;
  }
  Sending& sending = **offer;
  to.offered.erase(offer);
  start_sending(sending, grant);
}

void MpiTransport::start_sending(Sending& sending, const Grant& grant) {
  const int to = sending.message->peer;
  if (grant.what != sending.what) {
    disagree_on_what(grant.address, grant.what, to, sending.what);
    return;
  }
  if (grant.bytes != sending.bytes) {
    disagree_on_size(
        grant.address,
        "rank " + std::to_string(to) + " expects " + std::to_string(grant.bytes) + " bytes",
        sending.bytes);
    return;
  }
  sending.tag = grant.tag;
  sending.segment_bytes = grant.segment_bytes;
  // The most urgent first; among equals, by turn and then in the order of their grants.
  std::vector<Sending*>& queue = peer(to).sending;
  const auto behind = std::find_if(queue.begin(), queue.end(), [&](const Sending* other) {
    return other->priority != sending.priority ? other->priority < sending.priority
                                               : other->turn > sending.turn;
  });
  queue.insert(behind, &sending);
  pump(to);
}

void MpiTransport::pump(int to) {
  Peer& other = peer(to);
  for (std::size_t i = 0; i < other.sending.size() && other.window < kWindow;) {
    Sending& sending = *other.sending[i];
    if (sending.posted == sending.bytes) {
      ++i;
      continue;
    }
    const std::size_t bytes = std::min(sending.segment_bytes, sending.bytes - sending.posted);
    const MpiRequest request{MpiRequest::Kind::kSegmentSend, to, bytes, &sending};
    const std::byte* const data = sending.data + sending.posted;
    sending.posted += bytes;
    ++other.window;
    mpi_failed(mpi_.send(world_.communicator, data, bytes, to, sending.tag, requests_.add(request)),
               request,
               "send to");
  }
}

// ---------------------------------------------------------------- receiving

// What ranks disagree on never arrives: its coroutine must not touch bytes that are not there.
bool MpiTransport::agrees(const Header& header, const Receiving& receiving) {
  if (header.what != receiving.what) {
    disagree_on_what(header.address, header.what, header.from, receiving.what);
    return false;
  }
  if (header.bytes != receiving.bytes) {
    disagree_on_size(header.address,
                     "a message of " + std::to_string(header.bytes) + " bytes from rank " +
                         std::to_string(header.from),
                     receiving.bytes);
    return false;
  }
  return true;
}

void MpiTransport::disagree_on_size(Address address, std::string found, std::size_t bytes) {
  problem_.emplace(
      ErrorCode::kMismatch,
      ErrorDetail{"ranks disagree on the size of an operation",
                  "slot " + std::to_string(slot_of(address) & kMaxSlot),
                  std::move(found),
                  std::to_string(bytes) + " bytes, as on rank " + std::to_string(world_.rank),
                  "Call it with the same element count, type and kind of memory on every rank."});
}

void MpiTransport::disagree_on_what(Address address,
                                    OperationCode found,
                                    int on,
                                    OperationCode expected) {
  problem_.emplace(
      ErrorCode::kMismatch,
      ErrorDetail{"ranks disagree on what an operation is",
                  "slot " + std::to_string(slot_of(address) & kMaxSlot),
                  text_of(found) + " on rank " + std::to_string(on),
                  text_of(expected) + ", as on rank " + std::to_string(world_.rank),
                  "Every rank must call the same collective with the same type and operation."});
}

void MpiTransport::receive(Message& message) {
  Peer& from = peer(message.peer);
  Receiving& receiving = receivings_.take();
  receiving.message = &message;
  receiving.address = message.address;
  receiving.bytes = message.bytes;
  receiving.what = message.what;
  receiving.data = message.into;
  receiving.peer = message.peer;
  const auto found =
      std::find_if(from.unexpected.begin(), from.unexpected.end(), [&](const Arrival& arrival) {
        return arrival.address == message.address;
      });
  if (found != from.unexpected.end()) {
    Arrival arrival = std::move(*found);
    from.unexpected.erase(found);
    if (!agrees({.from = message.peer,
                 .address = arrival.address,
                 .bytes = arrival.bytes,
                 .what = arrival.what},
                receiving)) {
      return;
    }
    receiving.announced = true;
    if (arrival.eager) {
      take(receiving, arrival.payload.data.get());
      buffers_.give_back(std::move(arrival.payload));
      return;
    }
  } else {
    from.unannounced.push_back(&receiving);
  }
  if (message.bytes > kEagerBytes) {
    grant(receiving);
  }
}

// Posts the first receives and tells the sender to send.
void MpiTransport::grant(Receiving& receiving) {
  Peer& from = peer(receiving.peer);
  if (from.free_tags.empty()) {
    if (from.next_tag > kLastTag) {
      problem_.emplace(ErrorCode::kUnavailable,
                       ErrorDetail{"too many receives of one rank are in flight",
                                   name_of(receiving.peer),
                                   std::to_string(kLastTag),
                                   "fewer",
                                   "Wait for some before you start more."});
      return;
    }
    receiving.tag = from.next_tag++;
  } else {
    receiving.tag = from.free_tags.back();
    from.free_tags.pop_back();
  }
  if (receiving.data == nullptr) {
    receiving.buffer = buffers_.take(receiving.bytes);
    receiving.data = receiving.buffer.data.get();
  }
  ++from.arriving;
  for (int i = 0; i < kPosted; ++i) {
    post_segments(receiving);
  }
  post(receiving.peer,
       {.kind = HeaderKind::kGrant,
        .address = receiving.address,
        .bytes = receiving.bytes,
        .tag = receiving.tag,
        .segment_bytes = static_cast<std::uint32_t>(kSegmentBytes),
        .what = receiving.what},
       nullptr,
       0);
}

void MpiTransport::post_segments(Receiving& receiving) {
  const std::size_t bytes = std::min(kSegmentBytes, receiving.bytes - receiving.posted);
  if (bytes == 0) {
    return;
  }
  const MpiRequest request{MpiRequest::Kind::kSegmentReceive, receiving.peer, bytes, &receiving};
  std::byte* const data = receiving.data + receiving.posted;
  receiving.posted += bytes;
  mpi_failed(
      mpi_.receive(
          world_.communicator, data, bytes, receiving.peer, receiving.tag, requests_.add(request)),
      request,
      "receive from");
}

void MpiTransport::announced(const Header& header, const std::byte* payload) {
  Peer& from = peer(header.from);
  const auto found =
      std::find_if(from.unannounced.begin(), from.unannounced.end(), [&](const Receiving* each) {
        return each->address == header.address;
      });
  const bool eager = header.kind == HeaderKind::kEager;
  if (found == from.unannounced.end()) {
    Arrival arrival{header.address, header.bytes, header.what, eager, {}};
    if (eager) {
      arrival.payload = buffers_.take(header.bytes);
      std::memcpy(arrival.payload.data.get(), payload, header.bytes);
    }
    from.unexpected.push_back(std::move(arrival));
    on_unexpected();
    return;
  }
  Receiving& receiving = **found;
  from.unannounced.erase(found);
  if (!agrees(header, receiving)) {
    return;
  }
  receiving.announced = true;
  if (eager) {
    take(receiving, payload);
  } else {
    retire(receiving);
  }
}

// A short message: its bytes are in a buffer that is needed again.
void MpiTransport::take(Receiving& receiving, const std::byte* payload) {
  if (receiving.data == nullptr && receiving.bytes <= receiving.message->inlined.size()) {
    receiving.data = receiving.message->inlined.data();
  } else if (receiving.data == nullptr) {
    receiving.buffer = buffers_.take(receiving.bytes);
    receiving.data = receiving.buffer.data.get();
  }
  if (receiving.bytes != 0) {
    std::memcpy(receiving.data, payload, receiving.bytes);
  }
  hand_over(receiving);
}

void MpiTransport::hand_over(Receiving& receiving) {
  Message& message = *std::exchange(receiving.message, nullptr);
  message.data = receiving.data;
  message.time = 0;
  message.token = reinterpret_cast<std::uint64_t>(&receiving);
  if (message.readable != nullptr) {
    message.readable->arrived(0);
  }
  message.group->arrived(0);
}

void MpiTransport::release(Message& message) {
  if (message.token == 0) {
    return;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): our own pointer, from hand_over()
  auto& receiving = *reinterpret_cast<Receiving*>(message.token);
  message.token = 0;
  buffers_.give_back(std::move(receiving.buffer));
  receiving.released = true;
  retire(receiving);
}

// Once nobody refers to it any more. A message may be here before its header.
void MpiTransport::retire(Receiving& receiving) {
  if (receiving.announced && receiving.released) {
    receivings_.give_back(receiving);
  }
}

bool MpiTransport::has_unexpected(std::uint32_t slot) const noexcept {
  return std::any_of(peers_.begin(), peers_.end(), [slot](const Peer& other) {
    return std::any_of(other.unexpected.begin(),
                       other.unexpected.end(),
                       [slot](const Arrival& arrival) { return slot_of(arrival.address) == slot; });
  });
}

// ---------------------------------------------------------------- progress

void MpiTransport::over(const MpiRequest& request) {
  switch (request.kind) {
    case MpiRequest::Kind::kHeaderReceive:
      static_cast<HeaderPlace*>(request.what)->arrived = true;
      return;
    case MpiRequest::Kind::kHeaderSend:
      buffers_.give_back(
          {std::unique_ptr<std::byte[], MpiBuffer::Free>(  // NOLINT(*-avoid-c-arrays):
                                                           // see MpiBuffer
               static_cast<std::byte*>(request.what)),
           request.bytes});
      headers_out_.fetch_sub(1, std::memory_order_seq_cst);
      return;
    case MpiRequest::Kind::kSegmentSend: {
      auto& sending = *static_cast<Sending*>(request.what);
      Peer& to = peer(request.peer);
      --to.window;
      moved_at_.store(progress_at_.load(std::memory_order_relaxed), std::memory_order_relaxed);
      sending.sent += request.bytes;
      if (sending.sent == sending.bytes) {
        std::erase(to.sending, &sending);
        sending.message->group->arrived(0);
        sendings_.give_back(sending);
      }
      pump(request.peer);
      return;
    }
    case MpiRequest::Kind::kSegmentReceive: {
      auto& receiving = *static_cast<Receiving*>(request.what);
      Peer& from = peer(request.peer);
      from.heard_at = progress_at_.load(std::memory_order_relaxed);
      moved_at_.store(from.heard_at, std::memory_order_relaxed);
      receiving.arrived += request.bytes;
      post_segments(receiving);
      if (receiving.arrived == receiving.bytes) {
        from.free_tags.push_back(receiving.tag);
        --from.arriving;
        hand_over(receiving);
      }
      return;
    }
    case MpiRequest::Kind::kFree:
      return;
  }
}

bool MpiTransport::progress() {
  MpiRequest failed;
  bool any = false;
  bool first = true;
  const int code = requests_.test(world_.communicator, failed, any, [&](const MpiRequest& request) {
    if (first) {
      progress_at_.store(monotonic_ns(), std::memory_order_relaxed);
      first = false;
    }
    over(request);
  });
  mpi_failed(code, failed, "communicate with");
  // MPI matches the headers of one sender in order, but may notice them in another.
  while (headers_[next_header_].arrived && !problem_ && !aborted()) {
    read_header(headers_[next_header_].buffer.data.get());
    listen(next_header_);
    next_header_ = (next_header_ + 1) % headers_.size();
  }
  return any;
}

bool MpiTransport::poll() {
  // Open MPI reads one fragment each time: what is left of it would wait for the next nap.
  const bool any = progress() || progress();
  if (problem_) {
    throw Error(*problem_);
  }
  if (heard_abort_) {  // not by this rank, whose engine knows better why
    throw abort_error();
  }
  if (closed_peers_ && !any) {
    check_gone();
  }
  return any;
}

// ---------------------------------------------------------------- sleeping

Patience MpiTransport::patience() const noexcept {
  // A caller who waits has nothing better to do, and waking up takes as long as a small message.
  // The background thread looks once and sleeps again: each look is a system call or two.
  return {std::chrono::microseconds(500), Nanoseconds(0)};
}

Nanoseconds MpiTransport::idle_interval() const noexcept {
  // To answer pings and to hear of aborts; and MPI may still hold what it said it has sent.
  return std::chrono::milliseconds(20);
}

ModelTime MpiTransport::next_poll() const noexcept {
  const ModelTime now = monotonic_ns();
  const ModelTime quiet = now - progress_at_.load(std::memory_order_relaxed);
  return now + std::clamp(quiet / 2, kShortestNap, quiet > kIdle ? kLongestIdleNap : kLongestNap);
}

void MpiTransport::sleep(bool from_peers, ModelTime until, const std::function<bool()>& cancel) {
  if (!timer_set_) {
    timer_set_ = true;                                // only the engine's thread sleeps
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // the default would add 50 us to every nap
  }
  if (from_peers) {
    const ModelTime next = next_poll();
    until = until == 0 ? next : std::min(until, next);
  }
  const std::uint32_t seen = bell_.load(std::memory_order_seq_cst);
  asleep_.store(1, std::memory_order_seq_cst);
  if (!cancel()) {
    futex_wait(bell_, seen, until);
  }
  asleep_.store(0, std::memory_order_seq_cst);
}

void MpiTransport::wake() noexcept {
  if (asleep_.load(std::memory_order_seq_cst) != 0 &&
      asleep_.exchange(0, std::memory_order_seq_cst) != 0) {
    bell_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(bell_);
  }
}

}  // namespace stretto::detail
