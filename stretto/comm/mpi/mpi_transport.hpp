// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "stretto/comm/mpi/buffers.hpp"
#include "stretto/comm/mpi/module/module.hpp"
#include "stretto/comm/mpi/requests.hpp"
#include "stretto/comm/transport.hpp"

namespace stretto::detail {

/// An MPI communicator of our own, and who is in it.
struct MpiWorld {
  const MpiModule* mpi = nullptr;
  void* communicator = nullptr;
  int rank = 0;
  int size = 1;
  std::vector<std::string> names;  ///< Of each rank, for messages: `rank 3 (pid 17 on node4)`.
};

/// Transport over MPI's point-to-point messages.
///
/// An MPI tag has too few bits for an address, so every message is announced by a *header* on one
/// tag, which all ranks listen to. Short payloads travel in it. For a longer one the receiver, when
/// it has posted its receives, *grants* the sender a tag; the sender then sends segments of that
/// tag, the most urgent message first and only a few at a time, so that a late urgent message
/// overtakes an early fat one. So nothing long is ever unexpected, and no rank can block another by
/// what it is not ready for. A receiver that is there first grants at once, and the sender waits
/// for nothing.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiWorld world, Nanoseconds timeout);
  /// Tells the peers, unless the job has failed, that this rank leaves in good order.
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  [[nodiscard]] bool in_place() const noexcept override { return false; }
  [[nodiscard]] std::size_t eager_bytes() const noexcept override { return kSmallBytes; }
  [[nodiscard]] bool can_lend(const std::byte* /*data*/,
                              std::size_t /*bytes*/) const noexcept override {
    return true;
  }
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size) override;
  [[nodiscard]] std::size_t segment_bytes() const noexcept override { return kPipelineBytes; }
  void send(Message& message) override;
  void receive(Message& message) override;
  void release(Message& message) override;
  [[nodiscard]] bool has_backlog() const noexcept override {
    return headers_out_.load(std::memory_order_seq_cst) > 0;
  }
  bool poll() override;
  void check_peers() override;
  [[nodiscard]] Nanoseconds last_movement() const noexcept override {
    return Nanoseconds(moved_at_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] bool has_unexpected(std::uint32_t slot) const noexcept override;
  [[nodiscard]] Patience patience() const noexcept override;
  [[nodiscard]] Nanoseconds idle_interval() const noexcept override;
  void sleep(bool from_peers, ModelTime until, const std::function<bool()>& cancel) override;
  /// When a sleeping driver should poll again. Any thread.
  [[nodiscard]] ModelTime next_poll() const noexcept;
  void wake() noexcept override;
  [[nodiscard]] std::string waiting_for() const override;
  [[nodiscard]] bool aborted() const noexcept override {
    return aborted_.load(std::memory_order_acquire);
  }
  void abort(ErrorCode code, std::uint32_t step, std::uint32_t bucket) noexcept override;
  void withdraw() noexcept override;

 private:
  /// For algorithms: up to this size, two latencies cost more than sending everything to everybody.
  static constexpr std::size_t kSmallBytes = 4096;
  /// A payload up to this size travels in its header.
  static constexpr std::size_t kEagerBytes = std::size_t{16} << 10;
  /// Of a segment on the wire. Open MPI sends up to 64 KiB over TCP without asking its receiver
  /// first, which would cost two more looks of sleeping ranks: measured at 1 Gbit/s, 4 MiB in 37 ms
  /// against 46 with 256 KiB and 52 with 128 KiB. (MPICH does not care.)
  static constexpr std::size_t kSegmentBytes = std::size_t{60} << 10;
  /// What algorithms should cut into, to reduce one piece while the next travels.
  static constexpr std::size_t kPipelineBytes = std::size_t{1} << 20;
  /// Segments on their way to one peer: what an urgent message waits for.
  static constexpr int kWindow = 8;
  static constexpr int kPosted = 12;  // receives of one message posted ahead
  static constexpr int kHeaderTag = 0;
  static constexpr int kLastTag = 32767;  // what every MPI has
  static constexpr std::size_t kHeadersPosted = 16;

  enum class HeaderKind : std::uint32_t {
    kEager,  ///< The payload follows.
    kOffer,  ///< A longer message waits for its grant.
    kGrant,  ///< Send the message on `tag`, in segments of `segment_bytes`.
    kPing,
    kPong,
    kFarewell,     ///< The sender closes its communicator in good order and sends nothing more.
    kFarewellAck,  ///< And the receiver, which goes on, will send it nothing.
    kAbort,  ///< The job is over: `tag` is the code, `address` step and bucket, `about` the rank.
  };
  struct Header {
    HeaderKind kind = HeaderKind::kEager;
    std::int32_t from = 0;
    Address address = 0;
    std::uint64_t bytes = 0;
    std::int32_t tag = 0;
    std::int32_t about = 0;
    std::uint32_t segment_bytes = 0;
    OperationCode what = 0;
  };
  struct HeaderPlace {  // of the ring of posted receives
    MpiBuffer buffer;
    bool arrived = false;
  };
  /// A message above kEagerBytes on its way out.
  struct Sending {
    Message* message = nullptr;
    Address address = 0;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t posted = 0;
    std::size_t sent = 0;
    std::size_t segment_bytes = 0;
    OperationCode what = 0;
    int priority = 0;
    std::uint32_t turn = 0;
    int tag = 0;
  };
  /// A receive, until its message has been announced, has arrived and been released.
  struct Receiving {
    Message* message = nullptr;  // null once it has arrived
    Address address = 0;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t posted = 0;
    std::size_t arrived = 0;
    MpiBuffer buffer;
    OperationCode what = 0;
    int peer = 0;
    int tag = 0;  // 0: a short message, nothing is posted
    bool announced = false;
    bool released = false;
  };
  /// An announced message that no receive has taken yet.
  struct Arrival {
    Address address = 0;
    std::size_t bytes = 0;
    OperationCode what = 0;
    bool eager = false;
    MpiBuffer payload;
  };
  struct Grant {
    Address address = 0;
    std::size_t bytes = 0;
    std::size_t segment_bytes = 0;
    OperationCode what = 0;
    int tag = 0;
  };
  struct Peer {
    // Towards the peer, in the order of send().
    std::deque<Sending*> offered;
    std::vector<Sending*> sending;  // granted
    std::deque<Grant> early_grants;
    int window = 0;  // segments on their way
    // From the peer.
    std::deque<Receiving*> unannounced;  // in the order of receive()
    std::deque<Arrival> unexpected;
    int arriving = 0;  // granted messages not here yet
    std::vector<int> free_tags;
    int next_tag = kHeaderTag + 1;
    // Life.
    ModelTime heard_at = 0;
    ModelTime waiting_since = 0;  // 0: nothing is expected from it
    ModelTime pinged_at = 0;
    bool closed = false;     // it has said farewell
    bool let_us_go = false;  // it has answered ours
  };
  struct AbortNotice {
    ErrorCode code = ErrorCode::kBackend;
    int rank = 0;   ///< That aborted.
    int about = 0;  ///< That is lost, or the same.
    std::uint32_t step = kNoStep;
    std::uint32_t bucket = kNoStep;
  };

  [[nodiscard]] Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }
  void listen(std::size_t place);
  void post(int to, Header header, const std::byte* payload, std::size_t bytes);
  bool progress();
  void over(const MpiRequest& request);
  void read_header(const std::byte* data);
  void announced(const Header& header, const std::byte* payload);
  void granted(const Header& header);
  void start_sending(Sending& sending, const Grant& grant);
  void pump(int to);
  void post_segments(Receiving& receiving);
  void grant(Receiving& receiving);
  void take(Receiving& receiving, const std::byte* payload);
  void hand_over(Receiving& receiving);
  void retire(Receiving& receiving);
  bool agrees(const Header& header, const Receiving& receiving);
  void disagree_on_size(Address address, std::string found, std::size_t bytes);
  void disagree_on_what(Address address, OperationCode found, int on, OperationCode expected);
  void mpi_failed(int code, const MpiRequest& request, const char* doing);
  [[nodiscard]] static bool expects(const Peer& other) noexcept;
  void check_gone();
  void say_farewell();
  [[nodiscard]] Error abort_error() const;
  [[nodiscard]] const std::string& name_of(int rank) const {
    return world_.names[static_cast<std::size_t>(rank)];
  }

  MpiWorld world_;
  const MpiModule& mpi_;
  Nanoseconds silence_;  // after which a peer counts as lost
  MpiRequests requests_;
  MpiBuffers buffers_;
  MpiPool<Sending> sendings_;
  MpiPool<Receiving> receivings_;
  std::vector<HeaderPlace> headers_;
  std::size_t next_header_ = 0;
  std::vector<Peer> peers_;
  std::optional<Error> problem_;  // thrown by the next poll()
  std::optional<int> lost_;       // the rank that a kPeerLost of ours is about
  std::atomic<int> headers_out_{0};
  bool closed_peers_ = false;
  bool heard_abort_ = false;
  bool withdrawn_ = false;
  bool leaving_ = false;  // our farewells are out

  std::atomic<ModelTime> progress_at_{0};
  std::atomic<ModelTime> moved_at_{0};
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<std::uint32_t> asleep_{0};
  bool timer_set_ = false;

  std::atomic<bool> aborted_{false};
  mutable std::mutex abort_mutex_;
  std::optional<AbortNotice> notice_;
  Header abort_header_;
  MpiRequests abort_requests_;
};

}  // namespace stretto::detail
