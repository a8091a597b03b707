// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/buffer.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/comm/work.hpp"
#include "stretto/data/algorithm_table.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// Whether operations find their partners by address or by order.
enum class Ordering : std::uint8_t {
  kAddressed,  ///< By slot: ranks may start them in any order.
  kTotal,      ///< By order: every rank must start the same ones in the same order.
};

/// Who drives an operation forward until somebody waits for it.
enum class Progress : std::uint8_t {
  kBackground,  ///< The communicator's thread, at once.
  kCaller,      ///< Nobody: the caller promises to call Work::wait() soon. Saves waking a thread.
};

struct CallOptions {
  /// The operation's address, equal on all ranks; at most kMaxSlot. Several operations on one slot
  /// match in the order each rank starts them. Without a slot, operations match in that order among
  /// themselves.
  std::optional<std::uint32_t> slot = std::nullopt;
  /// Higher overtakes lower wherever both wait for the same link or thread, at segment boundaries.
  int priority = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Progress progress = Progress::kBackground;
  /// Operations of one stream run one after the other in the order they were started on this rank;
  /// one overtakes its predecessors if its priority is higher or a peer has begun it already (so
  /// that ranks with different orders cannot block each other). Broadcast, reduce, all_to_all,
  /// send, receive and barrier, and tensors too small for every rank to have a part, begin at once.
  /// Without a stream: at once.
  std::optional<std::uint32_t> stream = std::nullopt;
  /// Under Algorithm::kParameterServer: ranks 0 to servers - 1 serve a share each.
  int servers = 1;
};
inline constexpr std::uint32_t kMaxSlot = (1U << 24) - 1;

/// Whether a Communicator runs this collective by this algorithm; the others have a price in
/// simulate/ only, and asking for one is an Error kUnavailable. kAuto and kDirect run all.
[[nodiscard]] bool can_run(Collective collective, Algorithm algorithm) noexcept;
/// Those it runs, in the order of the enumerators, without kAuto.
[[nodiscard]] std::vector<Algorithm> runnable_algorithms(Collective collective);

/// Rank r's part of a tensor in reduce_scatter and all_gather: elements [begin, end). Parts are
/// multiples of 16 elements except the last, and as equal as that allows; small tensors leave some
/// ranks without a part.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
};
[[nodiscard]] Part part_of(std::size_t count, int ranks, int rank) noexcept;

/// Memory that peers can read in place, for the gradients. Zeroed. May outlive its communicator.
class Arena {
 public:
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 protected:
  explicit Arena(std::span<std::byte> bytes) : bytes_(bytes) {}

 private:
  std::span<std::byte> bytes_;
};

/// Which ranks are near each other: groups[l][r] is the number of rank r's group on level l,
/// innermost first; groups of a level lie within one group of the next. On top of the last level is
/// one group of all. Groups may be of unequal size. Empty: all ranks are equally far.
using RankGroups = std::vector<std::vector<int>>;

namespace detail {
struct Call;
struct Exchange;
class Task;

/// Carries out an operation in place of an algorithm of comm/; compress/ has such. `data` need not
/// be memory that can be lent: what a procedure sends is its own.
class Procedure {
 public:
  Procedure() = default;
  Procedure(const Procedure&) = delete;
  Procedure& operator=(const Procedure&) = delete;
  virtual ~Procedure() = default;
  virtual Task run(Exchange& exchange, const Call& call) = 0;
};

/// One checked operation, as backends see it.
struct Call {
  Collective kind = Collective::kNone;
  BufferView data;
  ReduceOp op = ReduceOp::kSum;
  int peer = -1;  ///< Root, destination or source.
  CallOptions options;
  /// Of all_to_all, where `data` is all that is sent: to and from each rank.
  std::vector<BufferView> out = {};
  std::vector<BufferView> in = {};
  Procedure* procedure = nullptr;  ///< Of all_reduce_by.
};
}  // namespace detail

/// How an emulated machine kept up with its host; zero for real ones.
struct EmulationStatistics {
  std::uint64_t messages = 0;  ///< Handed over, and operations ended.
  std::uint64_t late = 0;      ///< Of those, the ones so late that the model's result is in doubt.
  Nanoseconds worst_lag{};
};

/// A fixed group of ranks that run collectives together.
///
/// All calls start an operation and return without waiting for peers. Data is reduced in place.
/// `data` must have the same size, type and kind of memory on every rank, may be empty, and must
/// stay alive and untouched until Work::wait() returns. Memory from allocate() travels without a
/// copy, other memory through a staging area of 1 MiB per operation in flight. Thread-safe, except
/// that operations without a slot, and all operations under Ordering::kTotal, match by order and so
/// need one caller at a time. Must outlive every Work it returned that somebody still waits for.
/// Its destructor waits for nothing: operations still in flight fail.
class Communicator {
 public:
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] virtual std::string_view backend() const noexcept = 0;
  [[nodiscard]] virtual Ordering ordering() const noexcept = 0;

  /// Combines `data` over all ranks, in place, to the same bits on every rank. 16-bit floats are
  /// added in fp32 and rounded once (kDirect, kParameterServer) or once per addition (the others).
  /// kMean divides the sum and takes floating types only. kMin and kMax give NaN where any rank has
  /// NaN.
  /// @throws Error kInvalidArgument, before anything is sent: device not reachable, op not defined
  ///         for the type, slot out of range. So do the others.
  [[nodiscard]] Work all_reduce(BufferView data,
                                ReduceOp op = ReduceOp::kSum,
                                CallOptions options = {});
  /// The same, carried out by `procedure`, which stays alive as long as `data` and sees to it that
  /// all ranks get the same bits. With one rank nothing is done.
  /// @throws Error kUnavailable where operations are another library's (Ordering::kTotal).
  [[nodiscard]] Work all_reduce_by(detail::Procedure& procedure,
                                   BufferView data,
                                   ReduceOp op,
                                   CallOptions options);
  /// After it, part_of(data.count, size(), rank()) of `data` is combined; the rest is unspecified.
  [[nodiscard]] Work reduce_scatter(BufferView data,
                                    ReduceOp op = ReduceOp::kSum,
                                    CallOptions options = {});
  /// Rank r provides part r; after it, all ranks have all parts.
  [[nodiscard]] Work all_gather(BufferView data, CallOptions options = {});
  [[nodiscard]] Work broadcast(BufferView data, int root, CallOptions options = {});
  /// As all_reduce, for `root` alone; on the others `data` is unspecified after it.
  [[nodiscard]] Work reduce(BufferView data,
                            int root,
                            ReduceOp op = ReduceOp::kSum,
                            CallOptions options = {});
  /// `out` and `in` are size() blocks of equal length, one after the other: block r of `out` goes
  /// to rank r, block r of `in` comes from there. They must not overlap; of `out` alone it matters
  /// where the memory is from.
  /// @throws Error kInvalidArgument also: not divisible, lengths or types that differ.
  [[nodiscard]] Work all_to_all(BufferView out, BufferView in, CallOptions options = {});
  /// The same with blocks of any length: `out_counts[r]` elements go to rank r, and `in_counts[r]`
  /// come from there, as many as it sends: another number is kMismatch. kAuto is kDirect here, and
  /// kBruck is refused.
  [[nodiscard]] Work all_to_all_v(BufferView out,
                                  std::span<const std::size_t> out_counts,
                                  BufferView in,
                                  std::span<const std::size_t> in_counts,
                                  CallOptions options = {});
  /// Over when every rank has started it.
  [[nodiscard]] Work barrier(CallOptions options = {});
  /// Over when `data` may be reused. Matched by (peer, slot).
  [[nodiscard]] Work send(BufferView data, int to, CallOptions options = {});
  [[nodiscard]] Work recv(BufferView data, int from, CallOptions options = {});

  /// The kernel backs it with memory as it is touched.
  /// @throws Error kUnavailable when it does not fit into ShmOptions::arena_capacity.
  [[nodiscard]] virtual std::unique_ptr<Arena> allocate(Bytes size) = 0;

  /// What kAuto means from now on; an empty table is the backend's own choice: kDirect. The same on
  /// every rank, and not while operations are being started.
  void use(AlgorithmTable table) { table_ = std::move(table); }
  [[nodiscard]] const AlgorithmTable& algorithm_table() const noexcept { return table_; }

  /// Makes every operation in flight and to come fail, here and on all peers, with `code` and a
  /// message that names this rank; `step` and `bucket` are told to the peers. The first abort of
  /// the job wins. Returns at once.
  virtual void abort(const Error& reason, std::uint32_t step, std::uint32_t bucket) noexcept = 0;

  [[nodiscard]] virtual EmulationStatistics emulation_statistics() const noexcept { return {}; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  /// Arguments are checked.
  virtual Work start(const detail::Call& call) = 0;
  [[nodiscard]] Work check_and_start(detail::Call call);
  [[nodiscard]] Work all_to_all_of_blocks(BufferView out,
                                          std::span<const std::size_t> out_counts,
                                          BufferView in,
                                          std::span<const std::size_t> in_counts,
                                          CallOptions options);

  int rank_;
  int size_;
  AlgorithmTable table_;
};

}  // namespace stretto
