// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/dtype.hpp"
#include "stretto/base/units.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/measure/sampling.hpp"

namespace stretto {

/// Where the data lies that a collective is measured on.
enum class Buffers : std::uint8_t {
  kArena,    ///< Communicator::allocate(): travels without a copy where the backend can.
  kPrivate,  ///< Ordinary memory.
};
[[nodiscard]] std::string_view to_string(Buffers buffers) noexcept;

/// How one sample's durations on the ranks become one number, as `-a` of NCCL tests.
enum class OverRanks : std::uint8_t { kRank0, kMean, kLeast, kMost };

struct MeasuredRow;

/// What is measured: every size with every algorithm, type and kind of buffers.
struct MeasureOptions {
  /// all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, or send_recv: every
  /// rank sends to the next and receives from the one before.
  Collective collective = Collective::kAllReduce;
  /// Of the whole tensor on each rank, of reduce_scatter and all_gather too (as NCCL tests count);
  /// of send_recv the message, of all_to_all what a rank sends in all, to itself too. Rounded down
  /// to whole elements (all_to_all: to as many for each rank), to one at least.
  std::vector<Bytes> sizes;
  std::vector<Algorithm> algorithms = {Algorithm::kAuto};
  std::vector<DType> dtypes = {DType::kF32};
  std::vector<Buffers> buffers = {Buffers::kArena};
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int warmup = 5;
  StopRule stop;
  /// So many operations, each on data of its own, are started before one is waited for; a time is
  /// that of all over their number.
  int at_once = 1;
  OverRanks over_ranks = OverRanks::kMean;
  /// All ranks are on one host and read one clock: a call is timed from the start of the last rank
  /// (of broadcast: the root) to the end of the last, and over_ranks has nothing to say. With
  /// Progress::kBackground only.
  bool one_clock = false;
  bool check = true;  ///< Compare one result of each row with what it should be.
  /// kCaller: the clock is read around calls that the caller drives; short calls are timed in
  /// blocks. kBackground: every call by itself, from Work::times(); the only choice that makes
  /// sense on an emulated machine, whose clock is not the caller's.
  Progress progress = Progress::kCaller;
  /// Called on every rank before each row with how many there are and how many are over.
  std::function<void(std::size_t done, std::size_t all)> on_progress;
  /// A row that is measured, on every rank; in order of measuring, which is by kind of buffers.
  std::function<void(const MeasuredRow&)> on_row;
};

struct MeasuredRow {
  Bytes size{};
  std::size_t count = 0;  ///< Elements of the whole tensor.
  Algorithm algorithm = Algorithm::kAuto;
  DType dtype = DType::kF32;
  Buffers buffers = Buffers::kArena;
  Spread time;           ///< Of one operation.
  bool settled = false;  ///< The stop rule's precision was reached.
  int block = 1;         ///< Calls per sample.
  BytesPerSecond algorithm_bandwidth{};
  BytesPerSecond bus_bandwidth{};
  std::int64_t wrong = -1;  ///< Elements, over all ranks; -1: not checked.
};

struct Measurement {
  Collective collective = Collective::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;  ///< -1 if the collective has none.
  int ranks = 0;
  std::string backend;
  std::vector<MeasuredRow> rows;

  [[nodiscard]] std::int64_t wrong() const noexcept;  ///< Of all rows that were checked.
  /// Mean over the rows, as NCCL tests print it.
  [[nodiscard]] BytesPerSecond mean_bus_bandwidth() const noexcept;
};

/// broadcast and reduce.
[[nodiscard]] bool has_root(Collective collective) noexcept;

/// Bus bandwidth over algorithm bandwidth, as NCCL tests define it: what each rank's link carries
/// of a tensor, so that numbers of different rank counts compare. 2(P-1)/P for all_reduce, (P-1)/P
/// for reduce_scatter, all_gather and all_to_all, 1 for the rest.
[[nodiscard]] double bus_factor(Collective collective, int ranks) noexcept;

/// What measure() returns, before there are rows.
[[nodiscard]] Measurement describe(const Communicator& communicator, const MeasureOptions& options);

/// Collective: all ranks call it with the same options and get the same result.
/// Data is not rewritten between calls, as in NCCL tests: it may stay in caches.
/// @throws Error kInvalidArgument: nothing to measure, or not with this collective; kUnavailable:
/// an
///         algorithm this communicator cannot run.
[[nodiscard]] Measurement measure(Communicator& communicator, const MeasureOptions& options);

/// The rows as curves of a Machine: medians, one curve per algorithm. Of several types or kinds of
/// buffers the first in `rows` counts.
[[nodiscard]] std::vector<CollectiveCurve> curves_of(const Measurement& measurement);

}  // namespace stretto
