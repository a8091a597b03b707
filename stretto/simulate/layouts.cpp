// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/layouts.hpp"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/training_step.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) {
      result.push_back(d);
    }
  }
  return result;
}

/// The sizes along each dimension: all that make the number of ranks.
std::vector<Layout> grids(const TransformerShape& shape, int ranks) {
  std::vector<Layout> result;
  for (const int tensor : divisors(ranks)) {
    for (const int pipeline : divisors(ranks / tensor)) {
      const int data = ranks / tensor / pipeline;
      for (const int expert : divisors(shape.experts > 0 ? data : 1)) {
        Layout layout;
        layout.tensor = tensor;
        layout.pipeline = pipeline;
        layout.data = data;
        layout.expert = expert;
        result.push_back(layout);
      }
    }
  }
  return result;
}

/// One list times another: `set` writes a choice into a layout.
template <class Choice, class Set>
std::vector<Layout> times(const std::vector<Layout>& layouts,
                          const std::vector<Choice>& choices,
                          const Set& set) {
  std::vector<Layout> result;
  result.reserve(layouts.size() * choices.size());
  for (const Layout& layout : layouts) {
    for (const Choice& choice : choices) {
      Layout chosen = layout;
      set(chosen, choice);
      result.push_back(chosen);
    }
  }
  return result;
}

std::vector<Layout> candidates(const TransformerShape& shape,
                               const Machine& machine,
                               const LayoutOptions& options) {
  std::vector<Layout> all = grids(shape, machine.ranks());
  all = times(all, options.micro_batches, [](Layout& l, int n) { l.micro_batch = n; });
  all = times(all, options.recomputes, [](Layout& l, Recompute r) { l.recompute = r; });
  all = times(all, options.zero_stages, [](Layout& l, int stage) { l.zero_stage = stage; });
  all = times(all, options.virtual_stages, [](Layout& l, int n) {
    l.virtual_stages = n;
    if (n > 1) {
      l.schedule = PipelineSchedule::kInterleaved;
    }
  });
  for (Layout& layout : all) {
    layout.global_batch = options.global_batch;
    layout.sequence_parallel = options.sequence_parallel && layout.tensor > 1;
    layout.overlap_gradients = options.overlap_gradients;
    layout.fused_attention = options.fused_attention;
    layout.expert_imbalance = options.expert_imbalance;
  }
  return all;
}

/// Choices that change nothing: chunks of a pipeline of one stage, shares among one rank, scores
/// that are not kept anyway.
bool redundant(const Layout& layout) {
  return (layout.pipeline == 1 && layout.virtual_stages > 1) ||
         (layout.fused_attention && layout.recompute == Recompute::kAttention) ||
         (layout.data == 1 && layout.zero_stage > 0);
}

std::optional<RankedLayout> evaluate(const TransformerShape& shape,
                                     const Layout& layout,
                                     const DeviceModel& device,
                                     const Machine& machine,
                                     double most_bytes) {
  try {
    check_layout(shape, layout);
    if (memory_per_rank(shape, layout).total() > most_bytes) {
      return std::nullopt;
    }
    const TrainingStep step = simulate_training(shape, layout, device, machine);
    return RankedLayout{layout, step.step, step.memory, layout.global_batch / step.step.count()};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) {
      throw;
    }
    return std::nullopt;
  }
}

void check_options(const TransformerShape& shape, const LayoutOptions& options) {
  Layout one;
  one.micro_batch = 1;
  one.global_batch = options.global_batch;
  one.expert_imbalance = options.expert_imbalance;
  check_layout(shape, one);
  if (!(options.memory_share > 0.0)) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "memory_share leaves no memory",
                 .where = "layout options",
                 .found = std::to_string(options.memory_share),
                 .expected = "above 0, at most 1",
                 .help = {}});
  }
}

}  // namespace

std::vector<RankedLayout> rank_layouts(const TransformerShape& shape,
                                       const DeviceModel& device,
                                       const Machine& machine,
                                       const LayoutOptions& options) {
  check_options(shape, options);
  const double most_bytes = static_cast<double>(device.memory.count()) * options.memory_share;
  std::vector<RankedLayout> ranked;
  for (const Layout& layout : candidates(shape, machine, options)) {
    if (redundant(layout)) {
      continue;
    }
    if (const auto result = evaluate(shape, layout, device, machine, most_bytes)) {
      ranked.push_back(*result);
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedLayout& a, const RankedLayout& b) {
    return std::tuple(a.step, a.memory.total()) < std::tuple(b.step, b.memory.total());
  });
  if (options.most > 0 && ranked.size() > options.most) {
    ranked.resize(options.most);
  }
  return ranked;
}

}  // namespace stretto
