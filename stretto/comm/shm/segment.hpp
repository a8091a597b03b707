// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/comm/emulate/busy_time.hpp"
#include "stretto/comm/message.hpp"

/// What lies in the shared memory of a rank: one segment per rank, mapped by all.
///
///     | ControlPage | Channel from rank 0 | Channel from rank 1 | ... | heap (arenas, stages) |
///
/// Only lock-free atomics and plain bytes: every process maps it at another address.
namespace stretto::detail {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kMaxLevels = 8;

enum class PacketKind : std::uint8_t {
  kEager,    ///< The bytes come along, in the packet or in the channel's payload ring.
  kLend,     ///< The bytes are at `offset` of the sender's segment, until kRelease.
  kArrive,   ///< Emulated machines: the kLend message `token` reaches the incoming link at `time`.
  kRelease,  ///< The receiver is done with the message `token`.
};

/// One line of a channel: everything about a message.
struct alignas(64) Packet {
  /// Where the bytes are that are not in the packet.
  struct Elsewhere {
    std::uint64_t token;   ///< The sender's name for the message.
    std::uint64_t offset;  ///< kLend: in the sender's segment. kEager: in the payload ring.
                           ///< kArrive: when it began to leave.
    ModelTime time;        ///< kArrive: when it reaches the incoming link.
  };

  std::atomic<std::uint64_t> sequence;  ///< n + 1 once the n-th packet is in place.
  Address address;
  std::uint64_t bytes;  ///< Low 48 bits; above, 8 bits of OperationCode and 8 of PacketKind.
  union {
    Elsewhere elsewhere;
    InlineBytes inlined;  ///< kEager, up to its size.
  };
};
static_assert(sizeof(Packet) == 64);

/// From one rank to another: a ring with one writer and one reader. It lies in the reader's
/// segment.
struct Channel {
  static constexpr std::size_t kPackets = 256;
  static constexpr std::size_t kPayloadBytes = std::size_t{64} << 10;

  alignas(64) std::atomic<std::uint64_t> packets_taken;  ///< The reader's, published now and then.
  std::atomic<std::uint64_t> payload_taken;
  std::atomic<std::uint32_t> writer_waits;  ///< The writer's: ring it when there is room again.
  alignas(64) std::array<Packet, kPackets> packets;
  alignas(64) std::array<std::byte, kPayloadBytes> payload;
};

struct ControlPage {
  alignas(64) std::atomic<std::uint32_t> bell;  ///< Futex a sleeping rank waits on.
  std::atomic<std::uint32_t> asleep;            ///< 1: peers must ring after sending.
  std::atomic<ModelTime> asleep_until;          ///< When it will wake up by itself; written before.
  alignas(64) std::atomic<std::uint32_t> left;  ///< 1: the communicator was closed in good order.
  /// Rank 0's only: why the job is over; 0 = it is not. The first writer wins.
  std::atomic<std::uint64_t> abort_word;
  /// Why this rank gave up: an ErrorDetail's message, found, expected and help, each ended by a
  /// zero. Written once, before the abort word that names this rank; empty if there was nothing to
  /// say.
  std::atomic<std::uint32_t> abort_text_taken;
  std::array<char, 1536> abort_text;
  /// Emulated machines: the outgoing and incoming link of the group this rank leads, per level
  /// above the innermost.
  alignas(64) std::array<SharedBusyTime, kMaxLevels> group_egress;
  std::array<SharedBusyTime, kMaxLevels> group_ingress;
};
inline constexpr std::size_t kControlBytes = 2 * kPageBytes;
static_assert(sizeof(ControlPage) <= kControlBytes);

/// Where things are in a segment.
struct SegmentLayout {
  std::size_t ranks = 1;
  std::size_t heap_bytes = 0;

  [[nodiscard]] std::size_t heap_begin() const noexcept {
    const std::size_t channels = kControlBytes + ranks * sizeof(Channel);
    return (channels + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  [[nodiscard]] std::size_t total_bytes() const noexcept { return heap_begin() + heap_bytes; }
};

/// One rank's segment as this process sees it.
struct SegmentView {
  std::byte* base = nullptr;
  SegmentLayout layout;

  [[nodiscard]] ControlPage& control() const noexcept {
    return *reinterpret_cast<ControlPage*>(base);
  }
  [[nodiscard]] Channel& channel_from(int rank) const noexcept {
    return *reinterpret_cast<Channel*>(base + kControlBytes +
                                       static_cast<std::size_t>(rank) * sizeof(Channel));
  }
};

/// An open file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();
  [[nodiscard]] int get() const noexcept { return fd_; }
  int release() noexcept {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_ = -1;
};

/// An anonymous file of the layout's size that nobody can resize (sealed). Takes no memory until
/// touched. @throws Error kUnavailable.
[[nodiscard]] FileDescriptor create_segment(const SegmentLayout& layout);

/// The segments of all ranks, mapped here. Peers' mappings are staggered: the distance between two
/// is never a multiple of 2^28 bytes plus or minus less than a page, because streams at such
/// distances alias in the cache (measured: five times slower).
class SegmentMap {
 public:
  /// Maps one file per rank; an empty list maps private memory for `layout.ranks` ranks of one
  /// process.
  /// @throws Error kUnavailable.
  SegmentMap(const SegmentLayout& layout, std::span<const FileDescriptor> files);
  ~SegmentMap();
  SegmentMap(const SegmentMap&) = delete;
  SegmentMap& operator=(const SegmentMap&) = delete;

  [[nodiscard]] const SegmentView& operator[](int rank) const noexcept {
    return views_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(views_.size()); }

 private:
  std::byte* reserved_ = nullptr;
  std::size_t reserved_bytes_ = 0;
  std::vector<SegmentView> views_;
};

/// The host's memory, the default size of a heap. 1 GiB if unknown.
[[nodiscard]] Bytes host_memory();

}  // namespace stretto::detail
