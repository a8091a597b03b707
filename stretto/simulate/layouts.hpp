// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {

struct LayoutOptions {
  int global_batch = 1;
  std::vector<int> micro_batches = {1, 2, 4, 8};
  std::vector<int> virtual_stages = {1};  ///< Above 1: the interleaved schedule.
  std::vector<Recompute> recomputes = {Recompute::kNone, Recompute::kAttention, Recompute::kFull};
  std::vector<int> zero_stages = {0, 1};
  bool sequence_parallel = true;  ///< Where tensor > 1.
  bool overlap_gradients = true;
  bool fused_attention = false;
  double expert_imbalance = 1.0;
  /// Of the device's memory that a layout may fill; the rest is for the allocator, libraries,
  /// communication buffers. Assumed.
  double memory_share = 0.9;
  std::size_t most = 0;  ///< Results to return, the quickest; 0: all.
};

struct RankedLayout {
  Layout layout;
  Seconds step{};
  MemoryPerRank memory;
  double samples_per_s = 0.0;
};

/// Every data x tensor x pipeline x expert that uses all ranks of the machine, divides the model,
/// batch and machine levels, and fits the memory, with each micro-batch, recomputation, ZeRO stage
/// and number of virtual stages of the options; quickest first, of equal ones the one with less
/// memory. Empty if nothing fits.
/// @throws Error kInvalidArgument: a shape or option that no layout could fit (sizes below 1).
[[nodiscard]] std::vector<RankedLayout> rank_layouts(const TransformerShape& shape,
                                                     const DeviceModel& device,
                                                     const Machine& machine,
                                                     const LayoutOptions& options);

}  // namespace stretto
