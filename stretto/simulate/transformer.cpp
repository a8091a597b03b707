// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/transformer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"
#include "stretto/simulate/device.hpp"

namespace stretto {
namespace {

constexpr double kElementBytes = 2.0;

// Kernels around the layers, per micro-batch: counted assumptions, a third of them forward.
constexpr int kHeadKernels = 60;
constexpr int kEmbeddingKernels = 20;
// Of a layer's backward pass: sums of bias gradients and additions to accumulated ones.
constexpr int kAccumulationKernels = 8;
// Per logit, forward and backward together: cast to fp32, maximum, difference, exponential, sum,
// division; gradient and cast back. Megatron's vocabulary-parallel cross-entropy, counted.
constexpr double kLossBytesPerLogit = 54.0;
constexpr double kEmbeddingPasses = 6.0;

int ffn(const TransformerShape& shape) {
  return shape.ffn > 0 ? shape.ffn : 4 * shape.hidden;
}

int kv_heads(const TransformerShape& shape) {
  return shape.kv_heads > 0 ? shape.kv_heads : shape.heads;
}

/// Output columns of the fused query, key and value projection.
double qkv_columns(const TransformerShape& shape) {
  return shape.hidden * (1.0 + 2.0 * kv_heads(shape) / shape.heads);
}

double ffn_inputs(const TransformerShape& shape) {
  return shape.gated_ffn ? 2.0 : 1.0;
}

double tokens(const TransformerShape& shape, const Layout& layout) {
  return static_cast<double>(layout.micro_batch) * shape.sequence;
}

/// Bytes of the layer's input.
double hidden_bytes(const TransformerShape& shape, const Layout& layout) {
  return tokens(shape, layout) * shape.hidden * kElementBytes;
}

/// The two (or three) products of the feed-forward block on one rank. With experts, the tokens of
/// the busiest rank are spread evenly over its experts.
std::array<Gemm, 2> ffn_gemms(const TransformerShape& shape, const Layout& layout) {
  const double share = static_cast<double>(ffn(shape)) / layout.tensor;
  double rows = tokens(shape, layout);
  double batch = 1.0;
  if (shape.experts > 0) {
    batch = static_cast<double>(shape.experts) / layout.expert;
    rows *= shape.experts_per_token * layout.expert_imbalance / batch;
  }
  const double hidden = shape.hidden;
  return {{{rows, ffn_inputs(shape) * share, hidden, batch}, {rows, hidden, share, batch}}};
}

struct AttentionCore {
  Seconds forward{};
  Seconds backward{};
};

/// Half the products of the whole, as one kernel forward; five of them, with the scores computed
/// again, as one backward. They reach the rate of a large product: an optimistic assumption.
AttentionCore fused_core(const TransformerShape& shape,
                         const Layout& layout,
                         const DeviceModel& device) {
  const double s = shape.sequence;
  const double per_product = 0.5 * 2.0 * layout.micro_batch * s * s * shape.hidden / layout.tensor;
  const auto time = [&](double products) {
    const Seconds compute(products * per_product /
                          (device.peak_flops_per_s * device.gemm_efficiency));
    const double bytes = 2.0 * products * hidden_bytes(shape, layout) / layout.tensor;
    return std::max(compute, elementwise_time(device, bytes));
  };
  return {time(2.0), time(5.0)};
}

AttentionCore attention_core(const TransformerShape& shape,
                             const Layout& layout,
                             const DeviceModel& device) {
  if (layout.fused_attention) {
    return fused_core(shape, layout, device);
  }
  const double s = shape.sequence;
  const double d = static_cast<double>(shape.hidden) / shape.heads;
  const double batch = static_cast<double>(layout.micro_batch) * shape.heads / layout.tensor;
  const double scores = batch * s * s * kElementBytes;
  const Seconds wide = gemm_time(device, {s, s, d, batch});         // scores = Q K^T
  const Seconds narrow = gemm_time(device, {s, d, s, batch});       // scores V
  const Seconds across = gemm_time(device, {d, s, s, batch});       // a transposed gradient
  return {wide + narrow + elementwise_time(device, 2.0 * scores) +  // softmax
              elementwise_time(device, 2.5 * scores),               // dropout and its mask
          wide + 2.0 * narrow + across + elementwise_time(device, 3.0 * scores) +
              elementwise_time(device, 2.5 * scores)};
}

/// Norms, activation, residual additions, reordering of heads.
PassTime elementwise(const TransformerShape& shape,
                     const Layout& layout,
                     const DeviceModel& device) {
  const double h = hidden_bytes(shape, layout);
  const double whole = layout.sequence_parallel ? h / layout.tensor : h;
  const double shared = h / layout.tensor;
  const double passes = ffn_inputs(shape) * ffn(shape) / shape.hidden *
                        (shape.experts > 0 ? shape.experts_per_token : 1);
  PassTime time;
  time.forward = elementwise_time(device, 2.0 * whole, 2) +         // layer norm
                 elementwise_time(device, 3.5 * whole, 2) +         // bias, dropout, addition
                 elementwise_time(device, 2.0 * passes * shared) +  // GELU
                 elementwise_time(device, 2.0 * shared, 4);         // reordering
  time.backward = elementwise_time(device, 3.0 * whole, 2) +
                  elementwise_time(device, 2.5 * whole, 2) +
                  elementwise_time(device, 3.0 * passes * shared) +
                  elementwise_time(device, 2.0 * shared, 4) + kAccumulationKernels * device.launch;
  return time;
}

PassTime& operator+=(PassTime& sum, const PassTime& other) {
  sum.forward += other.forward;
  sum.backward += other.backward;
  return sum;
}

/// A product and, backward, the two with its transposes.
PassTime gemm_pass(const DeviceModel& device, const Gemm& gemm) {
  return {gemm_time(device, gemm),
          gemm_time(device, {gemm.m, gemm.k, gemm.n, gemm.batch}) +
              gemm_time(device, {gemm.n, gemm.k, gemm.m, gemm.batch})};
}

[[noreturn]] void misfit(std::string what, std::string found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {.message = "the layout does not fit: " + std::move(what),
               .where = {},
               .found = std::move(found),
               .expected = std::move(expected),
               .help = {}});
}

void check_divides(std::string_view what, int whole, std::string_view by, int part) {
  if (whole % part != 0) {
    misfit(std::string(what) + " must be a multiple of " + std::string(by),
           std::to_string(whole),
           "a multiple of " + std::to_string(part));
  }
}

void check_positive(std::string_view what, int value) {
  if (value < 1) {
    misfit(std::string(what) + " is too small", std::to_string(value), "1 or more");
  }
}

void check_schedule(const TransformerShape& shape, const Layout& layout) {
  const bool interleaved = layout.schedule == PipelineSchedule::kInterleaved;
  if (layout.virtual_stages > 1 && !interleaved) {
    misfit(
        "virtual stages need the interleaved schedule", std::to_string(layout.virtual_stages), "1");
  }
  if (interleaved) {
    check_divides(
        "the number of micro-batches", layout.micro_batches(), "pipeline", layout.pipeline);
  }
  check_divides(
      "layers", shape.layers, "pipeline x virtual_stages", layout.pipeline * layout.virtual_stages);
}

}  // namespace

std::string_view to_string(Recompute recompute) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"none", "attention", "full"};
  return kNames[static_cast<std::size_t>(recompute)];
}

std::string_view to_string(PipelineSchedule schedule) noexcept {
  constexpr std::array<std::string_view, 3> kNames = {"gpipe", "1f1b", "interleaved"};
  return kNames[static_cast<std::size_t>(schedule)];
}

void check_layout(const TransformerShape& shape, const Layout& layout) {
  const std::array<std::pair<std::string_view, int>, 12> sizes = {
      {{"layers", shape.layers},
       {"hidden", shape.hidden},
       {"heads", shape.heads},
       {"sequence", shape.sequence},
       {"vocab", shape.vocab},
       {"data", layout.data},
       {"tensor", layout.tensor},
       {"pipeline", layout.pipeline},
       {"expert", layout.expert},
       {"virtual_stages", layout.virtual_stages},
       {"micro_batch", layout.micro_batch},
       {"global_batch", layout.global_batch}}};
  for (const auto& size : sizes) {
    check_positive(size.first, size.second);
  }
  if (layout.zero_stage < 0 || layout.zero_stage > 3) {
    misfit("no such ZeRO stage", std::to_string(layout.zero_stage), "0, 1, 2 or 3");
  }
  if (!(layout.expert_imbalance >= 1.0)) {
    misfit("expert_imbalance is below 1", std::to_string(layout.expert_imbalance), "1 or more");
  }
  check_divides("hidden", shape.hidden, "heads", shape.heads);
  check_divides("heads", shape.heads, "tensor", layout.tensor);
  check_divides("heads", shape.heads, "kv_heads", kv_heads(shape));
  check_divides("kv_heads", kv_heads(shape), "tensor", layout.tensor);
  check_divides("ffn", ffn(shape), "tensor", layout.tensor);
  check_divides(
      "global_batch", layout.global_batch, "data x micro_batch", layout.data * layout.micro_batch);
  check_divides("data", layout.data, "expert", layout.expert);
  if (layout.expert > 1 || shape.experts > 0) {
    check_positive("experts (of the model)", shape.experts);
    check_divides("experts", shape.experts, "expert", layout.expert);
  }
  if (layout.sequence_parallel) {
    check_divides("sequence", shape.sequence, "tensor (for sequence parallelism)", layout.tensor);
  }
  check_schedule(shape, layout);
}

double routing_imbalance(std::span<const double> matrix) {
  const auto ranks = static_cast<std::size_t>(std::lround(std::sqrt(double(matrix.size()))));
  if (ranks == 0 || ranks * ranks != matrix.size()) {
    misfit("a routing matrix is square", std::to_string(matrix.size()) + " entries", "ranks^2");
  }
  double most = 0.0;
  double total = 0.0;
  for (std::size_t r = 0; r < ranks; ++r) {
    double row = 0.0;
    double column = 0.0;
    for (std::size_t s = 0; s < ranks; ++s) {
      if (!(matrix[r * ranks + s] >= 0.0)) {
        misfit("a routing matrix has no negative entry",
               std::to_string(matrix[r * ranks + s]),
               "0 or more");
      }
      row += matrix[r * ranks + s];
      column += matrix[s * ranks + r];
    }
    most = std::max({most, row, column});
    total += row;
  }
  if (!(total > 0.0)) {
    misfit("a routing matrix that sends nothing", "all 0", "one entry above 0");
  }
  return most * static_cast<double>(ranks) / total;
}

TransformerLayerTime layer_time(const TransformerShape& shape,
                                const Layout& layout,
                                const DeviceModel& device) {
  const double rows = tokens(shape, layout);
  const double hidden = shape.hidden;
  const double tensor = layout.tensor;
  const AttentionCore core = attention_core(shape, layout, device);
  TransformerLayerTime time;
  time.attention_core = core.forward;
  time.layer = {core.forward, core.backward};
  time.layer += gemm_pass(device, {rows, qkv_columns(shape) / tensor, hidden});
  time.layer += gemm_pass(device, {rows, hidden, hidden / tensor});
  for (const Gemm& gemm : ffn_gemms(shape, layout)) {
    time.layer += gemm_pass(device, gemm);
  }
  time.layer += elementwise(shape, layout, device);
  return time;
}

PassTime embedding_time(const TransformerShape& shape,
                        const Layout& layout,
                        const DeviceModel& device) {
  const double bytes = kEmbeddingPasses * hidden_bytes(shape, layout);
  const Seconds time =
      Seconds(bytes / (device.memory_bandwidth.value() * device.memory_efficiency)) +
      kEmbeddingKernels * device.launch;
  return {time / 3.0, 2.0 * time / 3.0};
}

PassTime head_time(const TransformerShape& shape, const Layout& layout, const DeviceModel& device) {
  const double columns = static_cast<double>(shape.vocab) / layout.tensor;
  const double rows = tokens(shape, layout);
  const Seconds loss(rows * columns * kLossBytesPerLogit /
                     (device.memory_bandwidth.value() * device.memory_efficiency));
  const Seconds launches = kHeadKernels * device.launch;
  PassTime time = gemm_pass(device, {rows, columns, static_cast<double>(shape.hidden)});
  time += {loss / 2.0 + launches / 3.0, loss / 2.0 + 2.0 * launches / 3.0};
  return time;
}

namespace {

/// Of one layer, on all tensor ranks together.
StageParameters layer_parameters(const TransformerShape& shape) {
  const double h = shape.hidden;
  const double block = (ffn_inputs(shape) + 1.0) * h * ffn(shape);
  StageParameters result;
  result.dense = h * qkv_columns(shape) + h * h + 13.0 * h;
  if (shape.experts > 0) {
    result.dense += h * shape.experts;  // the router
    result.experts = block * shape.experts;
  } else {
    result.dense += block;
  }
  return result;
}

/// In flight on the first stage at once, in layers of one micro-batch.
double layers_in_flight(const TransformerShape& shape, const Layout& layout) {
  const double p = layout.pipeline;
  const double per_stage = shape.layers / p;
  const double m = layout.micro_batches();
  if (layout.schedule == PipelineSchedule::kGPipe) {
    return m * per_stage;
  }
  if (layout.schedule == PipelineSchedule::kInterleaved) {
    return std::min(m, p + (p - 1.0) / layout.virtual_stages) * per_stage;
  }
  return std::min(m, p) * per_stage;
}

/// Bytes per layer of one micro-batch when nothing is recomputed or only attention is.
double layer_activations(const TransformerShape& shape, const Layout& layout, bool scores) {
  const double t = layout.tensor;
  const double h = shape.hidden;
  const double s = shape.sequence;
  const double sbh = tokens(shape, layout) * h;
  const double whole = layout.sequence_parallel ? 10.0 / t : 10.0;
  // 24 = 8 of attention + 16 of the feed-forward block whose inner size is 4h.
  const double block = 4.0 * ffn_inputs(shape) * ffn(shape) / h *
                       (shape.experts > 0 ? shape.experts_per_token * layout.expert_imbalance : 1);
  const double core = scores ? 5.0 * shape.heads * s / (h * t) : 0.0;
  return sbh * (whole + (8.0 + block) / t + core);
}

}  // namespace

double parameters(const TransformerShape& shape) {
  const StageParameters layer = layer_parameters(shape);
  const double h = shape.hidden;
  const double words = static_cast<double>(shape.vocab) * h * (shape.tied_embeddings ? 1.0 : 2.0);
  return shape.layers * (layer.dense + layer.experts) + words +
         static_cast<double>(shape.sequence) * h;
}

StageParameters stage_parameters(const TransformerShape& shape, const Layout& layout, int stage) {
  const StageParameters layer = layer_parameters(shape);
  const double layers = static_cast<double>(shape.layers) / layout.pipeline;
  const double tensor = layout.tensor;
  const double words = static_cast<double>(shape.vocab) * shape.hidden / tensor;
  StageParameters result;
  result.dense = layers * layer.dense / tensor;
  result.experts = layers * layer.experts / tensor / layout.expert;
  const bool first = stage == 0;
  const bool last = stage == layout.pipeline - 1;
  if (first) {
    result.dense += words + static_cast<double>(shape.sequence) * shape.hidden;
  }
  // A tied projection is a copy where the embedding is on another stage.
  if (last && !(first && shape.tied_embeddings)) {
    result.dense += words;
  }
  return result;
}

MemoryPerRank memory_per_rank(const TransformerShape& shape, const Layout& layout) {
  const StageParameters stage = stage_parameters(shape, layout, 0);
  const double experts_over = static_cast<double>(layout.data) / layout.expert;
  const auto bytes = [&](double per_parameter, bool shared) {
    return per_parameter * (stage.dense / (shared ? layout.data : 1.0) +
                            stage.experts / (shared ? experts_over : 1.0));
  };
  MemoryPerRank memory;
  memory.weights = bytes(2.0, layout.zero_stage >= 3);
  memory.gradients = bytes(2.0, layout.zero_stage >= 2);
  memory.optimizer = bytes(12.0, layout.zero_stage >= 1);

  const double in_flight = layers_in_flight(shape, layout);
  const bool written = !layout.fused_attention;
  if (layout.recompute == Recompute::kFull) {
    const double input = tokens(shape, layout) * shape.hidden * 2.0;
    memory.activations = in_flight * input + layer_activations(shape, layout, written);
  } else {
    const bool scores = written && layout.recompute == Recompute::kNone;
    memory.activations = in_flight * layer_activations(shape, layout, scores);
  }
  return memory;
}

}  // namespace stretto
