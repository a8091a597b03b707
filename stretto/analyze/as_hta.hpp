// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stretto/data/timeline.hpp"

namespace stretto {

/// What Holistic Trace Analysis counts of one rank (definitions of its release 0.6.1, read in its
/// source): streams and devices of the file together, communication and compute by its own names.
struct HtaNumbers {
  std::int64_t rows = 0;
  std::int64_t communication_ns = 0;
  std::int64_t overlapped_ns = 0;
  std::int64_t compute_ns = 0;
  std::int64_t idle_ns = 0;
  std::int64_t kernel_time_ns = 0;  ///< From the first begin to the last end.

  /// Absent where HTA divides zero by zero and prints nan.
  [[nodiscard]] std::optional<double> overlap_percent() const;
  [[nodiscard]] std::int64_t non_compute_ns() const {
    return kernel_time_ns - idle_ns - compute_ns;
  }
};

/// From exact numbers to HTA's, one cause of difference after the other.
struct HtaStage {
  std::string what;
  HtaNumbers numbers;
};

struct AsHta {
  std::uint32_t rank = 0;
  std::vector<HtaStage> stages;  ///< The first are this program's, the last are HTA's defaults.
  HtaNumbers with_last_step;     ///< HTA with include_last_profiler_step=True.
};

/// Of every rank with device rows. HTA rounds each row inwards to whole microseconds of the file's
/// own times, so clocks must not have been aligned, and `zero_ns` is the timeline's time 0 in them
/// (Trace::zero_ns). Rows that carry a stream and are no device work, which HTA counts as well
/// (synchronisation, host rows of Triton), are not read: where a file has such rows the times
/// differ from HTA's.
[[nodiscard]] std::vector<AsHta> as_hta(const Timeline& timeline, std::int64_t zero_ns = 0);

}  // namespace stretto
