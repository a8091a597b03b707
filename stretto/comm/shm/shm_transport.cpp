// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/shm/shm_transport.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "stretto/comm/futex.hpp"
#include "stretto/comm/operation_code.hpp"

namespace stretto::detail {
namespace {

constexpr unsigned kBytesBits = 48;
constexpr unsigned kKindShift = 56;
constexpr std::uint64_t kBytesMask = (std::uint64_t{1} << kBytesBits) - 1;
// A reader tells the writer what it has taken once per this many packets: the line would otherwise
// bounce between the cores with every message.
constexpr std::uint64_t kPublishEvery = Channel::kPackets / 8;
// Emulated machines: a receiver need not get up to work on so few bytes before they arrive.
constexpr std::size_t kQuickBytes = std::size_t{32} << 10;
// Of what its receiver may sleep over.
constexpr ModelTime kNeverNeeded = std::numeric_limits<ModelTime>::max();
}  // namespace

ShmTransport::ShmTransport(ShmWorld world,
                           const std::optional<Machine>& emulate,
                           const std::vector<int>& places)
    : world_(std::move(world)) {
  const SegmentView& mine = own();
  // Arenas may outlive this transport, so they keep the mapping through their heap.
  heap_ = std::make_shared<Heap>(
      std::span(mine.base + mine.layout.heap_begin(), mine.layout.heap_bytes), world_.segments);
  const int ranks = world_.segments->ranks();
  peers_ = std::vector<Peer>(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    peer(rank).receives_tail = &peer(rank).receives;
    if (rank != world_.rank) {
      peer(rank).in = &mine.channel_from(rank);
      peer(rank).out = &(*world_.segments)[rank].channel_from(world_.rank);
    }
  }
  if (emulate) {
    std::vector<EmulatedLinks::SharedLink> shared(emulate->levels.size());
    std::vector<int> place_of(static_cast<std::size_t>(ranks));
    std::iota(place_of.begin(), place_of.end(), 0);
    if (!places.empty()) {
      place_of = places;
    }
    const int place = place_of[static_cast<std::size_t>(world_.rank)];
    int group = 1;  // ranks in a group of the level below
    for (std::size_t level = 0; level < emulate->levels.size(); ++level) {
      if (level > 0) {
        // Of the rank in the group's first place.
        const auto first = std::find(place_of.begin(), place_of.end(), place / group * group);
        ControlPage& leader =
            (*world_.segments)[static_cast<int>(first - place_of.begin())].control();
        shared[level] = {&leader.group_egress[level], &leader.group_ingress[level]};
      }
      group *= emulate->levels[level].group_size;
      const auto latency = static_cast<ModelTime>(emulate->levels[level].latency.count() * 1e9);
      slowest_ns_per_kib_ =
          std::max(slowest_ns_per_kib_,
                   static_cast<ModelTime>(1024e9 / emulate->levels[level].bandwidth.value()));
      least_latency_ = level == 0 ? latency : std::min(least_latency_, latency);
    }
    links_ = std::make_unique<EmulatedLinks>(
        *emulate, world_.rank, std::move(shared), std::move(place_of));
  }
}

ShmTransport::~ShmTransport() {
  own().control().left.store(1, std::memory_order_seq_cst);
  for (int rank = 0; rank < world_.segments->ranks(); ++rank) {
    if (rank != world_.rank) {
      ring(rank);
    }
  }
}

// ---------------------------------------------------------------- sending

void ShmTransport::send(Message& message) {
  if (links_) {
    // The bytes can be read from now on; when they arrive, the links will say.
    lend(message);
    links_->submit(message);
  } else if (message.bytes <= kEagerBytes && !message.lend) {
    post(message.peer,
         {PacketKind::kEager,
          message.address,
          message.bytes,
          Packet::Elsewhere{},
          &message,
          message.what});
  } else {
    lend(message);
  }
}

void ShmTransport::lend(Message& message) {
  message.token = reinterpret_cast<std::uint64_t>(&message);
  ++peer(message.peer).lent;
  const std::uint64_t offset =
      message.bytes == 0 ? 0 : static_cast<std::uint64_t>(message.data - own().base);
  post(message.peer,
       {PacketKind::kLend,
        message.address,
        message.bytes,
        {message.token, offset, 0},
        nullptr,
        message.what,
        links_ && message.bytes <= kQuickBytes ? kNeverNeeded : 0});
}

void ShmTransport::post(int to, const Outgoing& packet) {
  Peer& other = peer(to);
  if (other.backlog.empty() && try_push(to, packet)) {
    return;
  }
  other.backlog.push_back(packet);
  backlogged_.fetch_add(1, std::memory_order_seq_cst);
  other.out->writer_waits.store(1, std::memory_order_seq_cst);
  ring(to);  // it may have been left asleep over what fills the channel
}

bool ShmTransport::try_push(int to, const Outgoing& outgoing) {
  Peer& other = peer(to);
  Channel& channel = *other.out;
  if (other.packets_sent - other.packets_taken >= Channel::kPackets) {
    other.packets_taken = channel.packets_taken.load(std::memory_order_acquire);
    if (other.packets_sent - other.packets_taken >= Channel::kPackets) {
      return false;
    }
  }
  Packet& packet = channel.packets[other.packets_sent % Channel::kPackets];
  const std::uint64_t bytes = outgoing.bytes;
  if (outgoing.eager == nullptr) {
    packet.elsewhere = outgoing.elsewhere;
  } else if (bytes <= packet.inlined.size()) {
    if (bytes != 0) {
      std::memcpy(packet.inlined.data(), outgoing.eager->data, bytes);
    }
  } else {
    // A payload is contiguous: what is left before the ring's end is skipped if it is too little.
    std::uint64_t begin = other.payload_sent;
    const std::uint64_t room_to_end = Channel::kPayloadBytes - begin % Channel::kPayloadBytes;
    if (room_to_end < bytes) {
      begin += room_to_end;
    }
    if (begin + bytes - other.payload_taken > Channel::kPayloadBytes) {
      other.payload_taken = channel.payload_taken.load(std::memory_order_acquire);
      if (begin + bytes - other.payload_taken > Channel::kPayloadBytes) {
        return false;
      }
    }
    std::memcpy(
        channel.payload.data() + begin % Channel::kPayloadBytes, outgoing.eager->data, bytes);
    other.payload_sent = (begin + bytes + 63) / 64 * 64;
    packet.elsewhere = {0, begin, 0};
  }
  packet.address = outgoing.address;
  packet.bytes = bytes | static_cast<std::uint64_t>(outgoing.what) << kBytesBits |
                 static_cast<std::uint64_t>(outgoing.kind) << kKindShift;
  ++other.packets_sent;
  // Sequentially consistent, with the load of `asleep` after it: either the peer sees the packet
  // before it falls asleep or we see it asleep.
  packet.sequence.store(other.packets_sent, std::memory_order_seq_cst);
  ring(to, outgoing.needed_by);
  if (outgoing.eager != nullptr) {
    outgoing.eager->group->arrived(0);
  }
  return true;
}

void ShmTransport::flush_backlogs() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    std::deque<Outgoing>& backlog = peer(rank).backlog;
    while (!backlog.empty()) {
      if (!try_push(rank, backlog.front())) {
        peer(rank).out->writer_waits.store(1, std::memory_order_seq_cst);
        break;
      }
      backlog.pop_front();
      backlogged_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }
}

void ShmTransport::ring(int rank, ModelTime needed_by) noexcept {
  ControlPage& control = (*world_.segments)[rank].control();
  if (control.asleep.load(std::memory_order_seq_cst) != 0 &&
      (needed_by == 0 || control.asleep_until.load(std::memory_order_relaxed) > needed_by) &&
      control.asleep.exchange(0, std::memory_order_seq_cst) != 0) {
    control.bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(control.bell);
  }
}

// ---------------------------------------------------------------- receiving

void ShmTransport::receive(Message& message) {
  Peer& other = peer(message.peer);
  const auto found =
      std::find_if(other.unexpected.begin(), other.unexpected.end(), [&](const Arrival& arrival) {
        return arrival.address == message.address;
      });
  if (found != other.unexpected.end()) {
    Arrival arrival = std::move(*found);
    other.unexpected.erase(found);
    hand_over(arrival, message);
    return;
  }
  message.next = nullptr;
  *other.receives_tail = &message;
  other.receives_tail = &message.next;
}

void ShmTransport::hand_over(Arrival& arrival, Message& message) {
  // Such a message never arrives: its coroutine must not touch bytes that are not there.
  if (arrival.what != message.what) {
    problem_.emplace(
        ErrorCode::kMismatch,
        ErrorDetail{"ranks disagree on what an operation is",
                    "slot " + std::to_string(slot_of(message.address) & kMaxSlot),
                    text_of(arrival.what) + " on rank " + std::to_string(arrival.peer),
                    text_of(message.what) + ", as on rank " + std::to_string(world_.rank),
                    "Every rank must call the same collective with the same type and operation."});
    return;
  }
  if (arrival.bytes != message.bytes) {
    problem_.emplace(
        ErrorCode::kMismatch,
        ErrorDetail{
            "ranks disagree on the size of an operation",
            "slot " + std::to_string(slot_of(message.address) & kMaxSlot),
            "a message of " + std::to_string(arrival.bytes) + " bytes from rank " +
                std::to_string(arrival.peer),
            std::to_string(message.bytes) + " bytes, as on rank " + std::to_string(world_.rank),
            "Call it with the same element count, type and kind of memory on every rank."});
    return;
  }
  message.token = arrival.token;
  message.time = arrival.time;
  message.owned = std::move(arrival.owned);
  message.data = arrival.data;
  if (arrival.data == nullptr) {
    message.inlined = arrival.inlined;
    message.data = message.inlined.data();
  }
  if (message.readable != nullptr) {
    message.readable->arrived(0);
  }
  if (!arrival.arrived) {
    Peer& other = peer(message.peer);
    message.next = other.readable;
    other.readable = &message;
    return;
  }
  message.group->arrived(arrival.time);
}

void ShmTransport::release(Message& message) {
  message.owned.clear();
  if (message.token != 0) {
    post(message.peer,
         {PacketKind::kRelease,
          0,
          0,
          {message.token, 0, message.time},
          nullptr,
          0,
          links_ ? message.time : 0});
    message.token = 0;
  }
}

bool ShmTransport::read_channel(int from) {
  Peer& other = peer(from);
  Channel& channel = *other.in;
  const std::uint64_t before = other.packets_read.load(std::memory_order_relaxed);
  std::uint64_t read = before;
  for (;;) {
    const Packet& packet = channel.packets[read % Channel::kPackets];
    if (packet.sequence.load(std::memory_order_acquire) != read + 1) {
      break;
    }
    take(from, packet);
    other.packets_read.store(++read, std::memory_order_relaxed);
    if (read - other.packets_published >= kPublishEvery ||
        other.payload_read - channel.payload_taken.load(std::memory_order_relaxed) >=
            Channel::kPayloadBytes / 4) {
      publish_taken(from);
    }
  }
  // A writer that found no room may have missed what was published since: it sleeps until told.
  if (channel.writer_waits.load(std::memory_order_seq_cst) != 0 &&
      channel.writer_waits.exchange(0, std::memory_order_seq_cst) != 0) {
    publish_taken(from);
    ring(from);
  }
  return read != before;
}

void ShmTransport::publish_taken(int from) {
  Peer& other = peer(from);
  other.packets_published = other.packets_read.load(std::memory_order_relaxed);
  other.in->payload_taken.store(other.payload_read, std::memory_order_release);
  other.in->packets_taken.store(other.packets_published, std::memory_order_seq_cst);
}

void ShmTransport::take(int from, const Packet& packet) {
  const auto kind = static_cast<PacketKind>(packet.bytes >> kKindShift);
  if (kind == PacketKind::kRelease) {
    --peer(from).lent;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): our own pointer, which the peer gave back
    auto* const message = reinterpret_cast<Message*>(packet.elsewhere.token);
    message->group->arrived(packet.elsewhere.time);
    return;
  }
  if (kind == PacketKind::kArrive) {
    on_the_wire_.push({from,
                       packet.elsewhere.token,
                       packet.bytes & kBytesMask,
                       packet.elsewhere.time,
                       static_cast<ModelTime>(packet.elsewhere.offset)});
    return;
  }
  Arrival arrival;
  arrival.peer = from;
  arrival.address = packet.address;
  arrival.bytes = packet.bytes & kBytesMask;
  arrival.what = static_cast<OperationCode>(packet.bytes >> kBytesBits);
  if (kind == PacketKind::kLend) {
    arrival.token = packet.elsewhere.token;
    arrival.data = (*world_.segments)[from].base + packet.elsewhere.offset;
    arrival.arrived = !links_;
  } else if (arrival.bytes <= packet.inlined.size()) {
    arrival.inlined = packet.inlined;
  } else {
    Peer& other = peer(from);
    const std::uint64_t offset = packet.elsewhere.offset;
    const std::byte* const payload = other.in->payload.data() + offset % Channel::kPayloadBytes;
    arrival.owned.assign(payload, payload + arrival.bytes);
    arrival.data = arrival.owned.data();
    other.payload_read = (offset + arrival.bytes + 63) / 64 * 64;
  }
  arrive(std::move(arrival));
}

void ShmTransport::arrive(Arrival arrival) {
  Peer& other = peer(arrival.peer);
  for (Message** at = &other.receives; *at != nullptr; at = &(*at)->next) {
    Message& message = **at;
    if (message.address == arrival.address) {
      *at = message.next;
      if (other.receives_tail == &message.next) {
        other.receives_tail = at;
      }
      hand_over(arrival, message);
      return;
    }
  }
  const bool arrived = arrival.arrived;
  other.unexpected.push_back(std::move(arrival));
  if (arrived) {
    on_unexpected();
  }
}

bool ShmTransport::has_unexpected(std::uint32_t slot) const noexcept {
  return std::any_of(peers_.begin(), peers_.end(), [slot](const Peer& other) {
    return std::any_of(
        other.unexpected.begin(), other.unexpected.end(), [slot](const Arrival& arrival) {
          return arrival.arrived && slot_of(arrival.address) == slot;
        });
  });
}

// ---------------------------------------------------------------- progress

bool ShmTransport::poll() {
  bool any = false;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != world_.rank) {
      any |= read_channel(rank);
    }
  }
  if (backlogged_.load(std::memory_order_relaxed) > 0) {
    flush_backlogs();
  }
  if (links_) {
    any |= deliver_emulated();
  }
  if (problem_) {
    abort(problem_->code(), kNoStep, kNoStep);
    throw Error(*problem_);
  }
  if (gone_ > 0 && !any) {
    check_gone();
  }
  return any;
}

bool ShmTransport::has_input() const noexcept {
  return std::any_of(peers_.begin(), peers_.end(), [](const Peer& other) {
    return other.in != nullptr &&
           other.in->packets[other.packets_read.load(std::memory_order_relaxed) % Channel::kPackets]
                   .sequence.load(std::memory_order_seq_cst) ==
               other.packets_read.load(std::memory_order_relaxed) + 1;
  });
}

void ShmTransport::sleep(bool from_peers, ModelTime until, const std::function<bool()>& cancel) {
  ControlPage& control = own().control();
  const std::uint32_t seen = control.bell.load(std::memory_order_seq_cst);
  asleep_here_.store(1, std::memory_order_seq_cst);
  if (from_peers) {
    control.asleep_until.store(until == 0 ? kNeverNeeded : until, std::memory_order_relaxed);
    control.asleep.store(1, std::memory_order_seq_cst);
  }
  if (!cancel() && !(from_peers && has_input())) {
    futex_wait(control.bell, seen, until);
  }
  asleep_here_.store(0, std::memory_order_seq_cst);
  if (from_peers) {
    control.asleep.store(0, std::memory_order_seq_cst);
  }
}

void ShmTransport::wake() noexcept {
  if (asleep_here_.load(std::memory_order_seq_cst) != 0 &&
      asleep_here_.exchange(0, std::memory_order_seq_cst) != 0) {
    ControlPage& control = own().control();
    control.bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(control.bell);
  }
}

}  // namespace stretto::detail
