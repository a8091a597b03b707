// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

/// The collectives of one kind that one module's parameters caused. Per step and rank: mean over
/// ranks, median over steps, a step without any counting as zero.
struct ModuleSummary {
  /// Its path in the model, as PyTorch's FSDP2 writes it into its ranges; `(root)` for the module
  /// without one. FSDP1's ranges name no module: then the range's own name.
  std::string module;
  Collective collective = Collective::kNone;
  double calls = 0;
  Bytes bytes{};    ///< Of all its calls in a step; 0 if the trace does not say.
  Seconds total{};  ///< Sum of durations.
  /// Time without compute beside it; what k of the step's collectives share counts 1/k to each.
  Seconds exposed_share{};
};

/// The module that an FSDP range names (`FSDP::all_gather (layers.3)`, with or without a process
/// group behind it, `FSDP::backward_prefetch for layers.3`); empty if the range is none of FSDP's.
/// Names from PyTorch 2.4 to 2.9, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, and of
/// FSDP1 torch/distributed/fsdp/_runtime_utils.py.
[[nodiscard]] std::string module_of_range(std::string_view range);

/// By exposed_share, largest first; empty where no range of FSDP is recorded or no step is whole.
/// A collective belongs to the innermost FSDP range around the host call that launched it, on that
/// call's thread. Of a rank without device rows: around the moment the program issued it, on any
/// thread. What lies in no such range is left out.
[[nodiscard]] std::vector<ModuleSummary> module_summaries(const Timeline& timeline);

}  // namespace stretto
