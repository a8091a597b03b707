// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "stretto/comm/emulate/emulated_links.hpp"
#include "stretto/comm/shm/heap.hpp"
#include "stretto/comm/shm/segment.hpp"
#include "stretto/comm/transport.hpp"
#include "stretto/data/machine.hpp"

namespace stretto::detail {

/// What a rank has of the others: their memory, and a way to see that they are gone.
struct ShmWorld {
  int rank = 0;
  std::shared_ptr<SegmentMap> segments;
  std::vector<FileDescriptor> sockets;  ///< To each peer; empty when all ranks are in this process.
  std::vector<int> pids;                ///< For messages; empty likewise.
};

/// Transport over shared memory. Small messages are copied into the receiver's channel; all others
/// are lent in place. With a Machine, every message arrives when it would on that machine, and
/// nothing is in place.
class ShmTransport final : public Transport {
 public:
  /// `places` as ShmOptions'.
  ShmTransport(ShmWorld world,
               const std::optional<Machine>& emulate,
               const std::vector<int>& places = {});
  ~ShmTransport() override;
  ShmTransport(const ShmTransport&) = delete;
  ShmTransport& operator=(const ShmTransport&) = delete;

  [[nodiscard]] bool in_place() const noexcept override { return !links_; }
  [[nodiscard]] std::size_t eager_bytes() const noexcept override {
    return links_ ? 0 : kEagerBytes;
  }
  [[nodiscard]] bool can_lend(const std::byte* data, std::size_t bytes) const noexcept override {
    return heap_->contains(data, bytes);
  }
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size) override {
    return heap_->allocate(size);
  }
  void send(Message& message) override;
  void receive(Message& message) override;
  void release(Message& message) override;
  [[nodiscard]] bool has_backlog() const noexcept override {
    return backlogged_.load(std::memory_order_seq_cst) > 0;
  }
  void became_busy() override;
  bool poll() override;
  void check_peers() override;
  [[nodiscard]] Nanoseconds least_time(std::uint64_t bytes) const noexcept override;
  void noticed(ModelTime at) noexcept override;
  [[nodiscard]] ModelTime next_event() const noexcept override;
  [[nodiscard]] bool has_unexpected(std::uint32_t slot) const noexcept override;
  void sleep(bool from_peers, ModelTime until, const std::function<bool()>& cancel) override;
  void wake() noexcept override;
  [[nodiscard]] std::string waiting_for() const override;
  [[nodiscard]] bool aborted() const noexcept override {
    return (*world_.segments)[0].control().abort_word.load(std::memory_order_seq_cst) != 0;
  }
  void abort(ErrorCode code, std::uint32_t step, std::uint32_t bucket) noexcept override;
  void explain(const ErrorDetail& reason) noexcept override;
  [[nodiscard]] EmulationStatistics emulation_statistics() const noexcept override;

 private:
  static constexpr std::size_t kEagerBytes = 4096;

  /// A message that is here, but that no receive has taken yet.
  struct Arrival {
    Address address = 0;
    OperationCode what = 0;
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
    std::byte* data = nullptr;     // lent memory, or `owned`; null: in `inlined`
    std::vector<std::byte> owned;  // empty for lent and inlined ones
    ModelTime time = 0;
    InlineBytes inlined;
    int peer = 0;
    bool arrived = true;  // emulated machines: not before its kArrive
  };
  /// Emulated machines: a kArrive whose moment has not come.
  struct Arriving {
    int peer = 0;
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
    ModelTime time = 0;
    ModelTime begin = 0;  // on the wire
  };
  struct Later {
    bool operator()(const Arriving& a, const Arriving& b) const noexcept { return a.time > b.time; }
  };
  /// A packet to be sent, at once or when there is room in the channel. An eager message is sent
  /// once it is in there.
  struct Outgoing {
    PacketKind kind = PacketKind::kRelease;
    Address address = 0;
    std::uint64_t bytes = 0;
    Packet::Elsewhere elsewhere{};
    Message* eager = nullptr;  // null for the other kinds
    OperationCode what = 0;
    ModelTime needed_by = 0;  // a peer that wakes up before then by itself is left asleep
  };
  struct Peer {
    // Towards the peer.
    Channel* out = nullptr;
    std::uint64_t packets_sent = 0;
    std::uint64_t payload_sent = 0;
    std::uint64_t packets_taken = 0;  // as last read
    std::uint64_t payload_taken = 0;
    std::deque<Outgoing> backlog;
    int lent = 0;  // messages not released yet
    // From the peer.
    Channel* in = nullptr;
    // Written by the driver, read by the thread that is about to sleep.
    std::atomic<std::uint64_t> packets_read{0};
    std::uint64_t payload_read = 0;
    std::uint64_t packets_published = 0;
    Message* receives = nullptr;  // posted, oldest first
    Message** receives_tail = &receives;
    Message* readable = nullptr;  // emulated machines: matched, but not arrived yet
    std::deque<Arrival> unexpected;
    bool gone = false;
    bool closed = false;  // it is gone because it closed its communicator
  };

  [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const SegmentView& own() const noexcept { return (*world_.segments)[world_.rank]; }
  void lend(Message& message);
  void post(int to, const Outgoing& packet);
  bool try_push(int to, const Outgoing& outgoing);
  void ring(int rank, ModelTime needed_by = 0) noexcept;
  bool read_channel(int from);
  void publish_taken(int from);
  void take(int from, const Packet& packet);
  void arrive(Arrival arrival);
  bool deliver_emulated();
  void count_lag(ModelTime at, ModelTime now) noexcept;
  void hand_over(Arrival& arrival, Message& message);
  void arrive_emulated(const Arriving& what);
  [[nodiscard]] bool has_input() const noexcept;
  void flush_backlogs();
  void check_gone();
  [[nodiscard]] std::string name_of(int rank) const;

  ShmWorld world_;
  std::shared_ptr<Heap> heap_;
  std::vector<Peer> peers_;
  std::optional<Error> problem_;  // thrown by the next poll()
  std::atomic<int> backlogged_{0};
  ModelTime slowest_ns_per_kib_ = 0;
  int gone_ = 0;
  std::atomic<std::uint32_t> asleep_here_{0};

  std::unique_ptr<EmulatedLinks> links_;
  using ArrivingQueue = std::priority_queue<Arriving, std::vector<Arriving>, Later>;
  ArrivingQueue on_the_wire_;  // by end at the incoming link
  ArrivingQueue arriving_;     // by arrival
  ModelTime least_latency_ = 0;
  ModelTime busy_since_ = 0;
  std::atomic<std::uint64_t> emulated_messages_{0};
  std::atomic<std::uint64_t> emulated_late_{0};
  std::atomic<std::int64_t> emulated_worst_lag_ns_{0};
};

}  // namespace stretto::detail
