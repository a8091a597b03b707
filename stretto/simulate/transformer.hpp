// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/simulate/device.hpp"

namespace stretto {

/// A decoder-only transformer. 16 bit weights and activations.
struct TransformerShape {
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int kv_heads = 0;  ///< 0: as many as heads; fewer with grouped queries.
  int ffn = 0;       ///< Inner size of the feed-forward block; 0: 4 hidden.
  int sequence = 0;
  int vocab = 0;
  bool gated_ffn = false;       ///< Two input projections (SwiGLU).
  bool tied_embeddings = true;  ///< Output projection and embedding share their weights.
  int experts = 0;              ///< In every layer; 0: a dense model.
  int experts_per_token = 1;    ///< That each token is sent to, if there are experts.
};

/// What is computed again in the backward pass in place of being kept (Korthikanti et al. 2022,
/// "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198).
enum class Recompute : std::uint8_t {
  kNone,
  kAttention,  ///< Scores, softmax, dropout and their product with V: "selective".
  kFull,       ///< Every layer, from its input.
};
[[nodiscard]] std::string_view to_string(Recompute recompute) noexcept;

enum class PipelineSchedule : std::uint8_t {
  kGPipe,                  ///< All forwards, then all backwards.
  kOneForwardOneBackward,  ///< PipeDream-flush, "1F1B".
  kInterleaved,            ///< 1F1B over several chunks of layers in each stage.
};
[[nodiscard]] std::string_view to_string(PipelineSchedule schedule) noexcept;

/// A way ranks are told apart. Expert groups are neighbours within a data-parallel group.
enum class Dimension : std::uint8_t { kTensor, kData, kPipeline };

/// Bytes the optimizer moves per parameter. Fused Adam on fp32 state alone: reads a 2 byte gradient
/// and 3 x 4 bytes of state, writes those and a 2 byte weight.
inline constexpr double kFusedAdamBytes = 28;
/// Megatron's mixed-precision step with clipping by the global norm, counted: gradient to fp32
/// (2+4), unscaling and check (4+4), norm (4), clipping (4+4), Adam (16+12), weight back (4+2),
/// gradient zeroed (4).
inline constexpr double kMegatronOptimizerBytes = 64;

/// How a training step is laid over ranks.
struct Layout {
  int data = 1;
  int tensor = 1;
  int pipeline = 1;
  int expert = 1;                  ///< Divides data: that many ranks share the experts of a layer.
  int virtual_stages = 1;          ///< Chunks of layers per stage; above 1 with kInterleaved only.
  int micro_batch = 1;             ///< Samples in one pass.
  int global_batch = 1;            ///< Samples in one step, over all ranks.
  bool sequence_parallel = false;  ///< Layer norms and dropouts share the sequence between tensor
                                   ///< ranks (Korthikanti et al.).
  /// Scores are never written (FlashAttention, Dao et al. 2022, arXiv:2205.14135), and those that a
  /// causal mask hides not computed. Recompute::kAttention then saves and costs nothing.
  bool fused_attention = false;
  Recompute recompute = Recompute::kNone;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  int zero_stage = 0;  ///< What data-parallel ranks share: 1 optimizer state, 2 gradients too, 3
                       ///< weights too (Rajbhandari et al. 2020, "ZeRO", arXiv:1910.02054).
  bool overlap_gradients = false;  ///< Their reduction runs beside the last backward passes.
  std::array<Dimension, 3> order = {Dimension::kTensor,  ///< Innermost first: whose ranks are
                                    Dimension::kData,    ///< neighbours on the machine.
                                    Dimension::kPipeline};
  double expert_imbalance = 1.0;  ///< Load of the busiest expert rank over the mean:
                                  ///< routing_imbalance().
  double optimizer_bytes_per_parameter = kMegatronOptimizerBytes;

  [[nodiscard]] int ranks() const noexcept { return data * tensor * pipeline; }
  /// Of one step; check_layout() has made sure that it divides.
  [[nodiscard]] int micro_batches() const noexcept { return global_batch / (data * micro_batch); }
};

/// @throws Error kInvalidArgument naming the first thing that does not fit: a size below 1; heads,
/// kv_heads, ffn, layers, experts or the batch that do not divide; virtual stages without the
/// interleaved schedule, or micro-batches that it cannot group by the number of stages.
void check_layout(const TransformerShape& shape, const Layout& layout);

/// The largest row or column sum of a square routing matrix (bytes or tokens from rank r to s, row
/// after row) over their mean: how much longer an all_to_all takes than a balanced one.
/// @throws Error kInvalidArgument: not square, a negative entry, or nothing sent.
[[nodiscard]] double routing_imbalance(std::span<const double> matrix);

/// DeviceModel time of one micro-batch on one rank, no communication.
struct PassTime {
  Seconds forward{};
  Seconds backward{};  ///< Without what is recomputed.
};
struct TransformerLayerTime {
  PassTime layer;
  Seconds attention_core{};  ///< Part of layer.forward that Recompute::kAttention repeats.
};

/// One layer. Kernels as Megatron-LM starts them (fused softmax, bias + GELU, bias + dropout + add;
/// attention as batched products unless fused_attention): products by gemm_time(), the others by
/// the bytes they read and write; docs/layouts.md lists them. Kernels run one after the other.
[[nodiscard]] TransformerLayerTime layer_time(const TransformerShape& shape,
                                              const Layout& layout,
                                              const DeviceModel& device);
/// Embedding, on the first stage.
[[nodiscard]] PassTime embedding_time(const TransformerShape& shape,
                                      const Layout& layout,
                                      const DeviceModel& device);
/// Output projection and loss in fp32, on the last stage.
[[nodiscard]] PassTime head_time(const TransformerShape& shape,
                                 const Layout& layout,
                                 const DeviceModel& device);

/// Of the whole model: per layer h^2 (2 + 2 kv/heads) + matrices of the feed-forward block (2 or 3,
/// times the experts) + 13 h of biases and norms, and embeddings of words and positions.
[[nodiscard]] double parameters(const TransformerShape& shape);

/// On one rank of a pipeline stage. Experts are shared by `expert` ranks and all else is not, so
/// they are reduced over fewer ranks.
struct StageParameters {
  double dense = 0.0;
  double experts = 0.0;
};
[[nodiscard]] StageParameters stage_parameters(const TransformerShape& shape,
                                               const Layout& layout,
                                               int stage);

/// Bytes on the fullest rank.
struct MemoryPerRank {
  double weights = 0.0;
  double gradients = 0.0;
  double optimizer = 0.0;
  double activations = 0.0;
  [[nodiscard]] double total() const noexcept {
    return weights + gradients + optimizer + activations;
  }
};

/// 2 bytes per weight, 2 per gradient, 12 of optimizer state (fp32 weight and two moments of Adam),
/// shared as zero_stage says (ZeRO, section 3). Activations of a layer and micro-batch, by
/// Korthikanti et al. (their table 2), with s, b, h, a, t: sbh(10 + 24/t + 5as/(ht)); with sequence
/// parallelism all of it over t; without the last term under kAttention; 2sbh under kFull, plus one
/// whole layer being recomputed. Times the micro-batches in flight on the first stage: p for 1F1B,
/// p(1 + (p-1)/(pv)) interleaved, all of them for GPipe.
/// Limits: no allocator slack, no communication buffers, no loss in fp32; experts count as one
/// dense block each token passes `experts_per_token` times.
[[nodiscard]] MemoryPerRank memory_per_rank(const TransformerShape& shape, const Layout& layout);

}  // namespace stretto
