// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/measure/measure.hpp"

/// Private to measure/: not installed.
namespace stretto::detail {

/// Memory of one kind, large enough for the largest row.
class Memory {
 public:
  Memory(Communicator& communicator, Buffers kind, Bytes size);
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::unique_ptr<Arena> arena_;
  std::vector<std::byte> own_;
  std::span<std::byte> bytes_;
};

/// One row's operation, ready to be started again and again. All ranks call all members together.
class Subject {
 public:
  /// What memory `copies` of an operation need.
  [[nodiscard]] static Bytes memory_needed(Collective collective, Bytes size, int copies) noexcept;

  Subject(Communicator& communicator,
          const MeasureOptions& options,
          const MeasuredRow& row,
          std::span<std::byte> memory);

  /// Zeroes all data: sums stay finite over any number of calls.
  void clear() noexcept;
  /// Starts one on the data of its number; a caller that is to compute meanwhile wants kBackground.
  void start(int copy, Progress progress);
  /// Waits for all that were started.
  /// @return when they began and ended on this rank; zero under Progress::kCaller.
  WorkTimes finish();
  /// One sample: a block of `calls` that begins behind a barrier, as if it were one operation.
  [[nodiscard]] Taken time(int calls);
  /// Runs one on known data; elements that are wrong on this rank.
  [[nodiscard]] std::int64_t check();

 private:
  [[nodiscard]] BufferView data(int copy) const noexcept;
  [[nodiscard]] BufferView received(int copy) const noexcept;  ///< Of send_recv and all_to_all.

  Communicator& communicator_;
  const MeasureOptions& options_;
  MeasuredRow row_;
  std::span<std::byte> memory_;
  std::size_t stride_;
  std::vector<Work> works_;
};

/// All rows that `options` ask for, without numbers.
/// @throws Error kInvalidArgument as measure().
[[nodiscard]] std::vector<MeasuredRow> rows_of(const Communicator& communicator,
                                               const MeasureOptions& options);
/// Collective. Bandwidths of a row that has its time, and how many elements are wrong if that is
/// asked for.
void finish_row(Communicator& communicator,
                const MeasureOptions& options,
                std::span<std::byte> memory,
                MeasuredRow& row);

}  // namespace stretto::detail
