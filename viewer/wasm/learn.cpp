// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "page.hpp"
#include "stretto/base/error.hpp"
#include "stretto/compress/codec/block_codec.hpp"
#include "stretto/compress/codec/selection.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/models.hpp"
#include "stretto/plan/rank_order.hpp"
#include "stretto/simulate/collective_cost.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/training_step.hpp"
#include "stretto/simulate/transformer.hpp"

namespace stretto::page {
namespace {

Machine machine_of(const Json& question) {
  return machine_from_text(question.at("machine").get<std::string>());
}

/// Of a model table with a `config`: a transformer.
TransformerShape shape_of(const std::string& model) {
  const Json table = Json::parse(model_json(model));
  const Json& config = table.at("config");
  TransformerShape shape;
  shape.layers = config.at("layers").get<int>();
  shape.hidden = config.at("hidden").get<int>();
  shape.heads = config.at("heads").get<int>();
  shape.kv_heads = config.value("kv_heads", 0);
  shape.ffn = config.value("intermediate", 0);
  shape.sequence = config.contains("ctx") ? config["ctx"].get<int>() : config.value("max_pos", 0);
  shape.vocab = config.at("vocab").get<int>();
  shape.gated_ffn = shape.ffn > 0 && shape.ffn != 4 * shape.hidden;
  shape.tied_embeddings = !config.contains("kv_heads");
  return shape;
}

}  // namespace

Json collective_times(const Json& question) {
  Json times = Json::array();
  for (const AlgorithmCost& cost :
       compare_algorithms(machine_of(question),
                          collective_from_string(question.value("collective", "all_reduce")),
                          Bytes(question.at("bytes").get<std::int64_t>()))) {
    times.push_back(Json{{"algorithm", to_string(cost.algorithm)}, {"time_s", cost.time.count()}});
  }
  return times;
}

Json ring(const Json& question) {
  const auto places = question.at("places").get<std::vector<int>>();
  const RingOrder order =
      ring_order(machine_of(question), places, Bytes(question.at("bytes").get<std::int64_t>()));
  Json edges = Json::array();
  for (const RingEdge& edge : order.edges) {
    edges.push_back({edge.from, edge.to, edge.level});
  }
  return Json{{"all_reduce_s", order.all_reduce.count()},
              {"crossings", order.crossings},
              {"most_on_a_link", order.most_on_a_link},
              {"edges", std::move(edges)}};
}

Json layout(const Json& question) {
  TransformerShape shape = shape_of(question.at("model").get<std::string>());
  shape.experts = question.value("experts", 0);
  Layout way;
  way.data = question.at("data").get<int>();
  way.tensor = question.at("tensor").get<int>();
  way.pipeline = question.at("pipeline").get<int>();
  way.expert = question.value("expert", 1);
  way.micro_batch = question.value("micro_batch", 1);
  way.global_batch = question.at("global_batch").get<int>();
  way.overlap_gradients = true;
  way.recompute = Recompute::kAttention;
  const TrainingStep step = simulate_training(
      shape, way, device_preset(question.value("device", "a100-80g")), machine_of(question));
  const StageParameters held = stage_parameters(shape, way, 0);
  // What one rank sends in, per step, as simulate_training() reckons (its comment has the
  // formulas).
  const double activation = 2.0 * way.micro_batch * shape.sequence * shape.hidden;
  const double passes = way.micro_batches();
  const double layers = static_cast<double>(shape.layers) / way.pipeline;
  return Json{
      {"step_s", step.step.count()},
      {"memory_bytes", step.memory.total()},
      {"gradient_bytes", way.data > 1 ? 2.0 * (held.dense + held.experts) : 0.0},
      {"tensor_bytes", way.tensor > 1 ? 4.0 * activation * layers * passes : 0.0},
      {"pipeline_bytes", way.pipeline > 1 ? 2.0 * activation / way.tensor * passes : 0.0},
      {"expert_bytes",
       way.expert > 1 ? 4.0 * activation * shape.experts_per_token / way.tensor * layers * passes
                      : 0.0},
      {"micro_batches", way.micro_batches()},
      {"layers", layers}};
}

Json compress(const Json& question) {
  const auto gradient = question.at("gradient").get<std::vector<float>>();
  auto residual = question.at("residual").get<std::vector<float>>();
  const CodecSpec codec = parse_codec(question.at("codec").get<std::string>());
  if (residual.size() != gradient.size()) {
    throw Error(ErrorCode::kInvalidArgument, "gradient and residual differ in length");
  }
  std::vector<float> next(gradient.size(), 0.0F);
  std::vector<float> arrived(gradient.size(), 0.0F);
  const CodecInput input{gradient.data(), residual.data(), next.data(), gradient.size()};
  std::size_t bytes = 0;
  bool finite = true;
  if (codec.kind == CodecKind::kTopK) {
    SparseValues chosen;
    Selector selector;
    finite = selector.top_k(input, codec.chosen_of(gradient.size()), chosen);
    for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
      arrived[chosen.indices[i]] = chosen.values[i];
    }
    bytes = chosen.indices.size() * (sizeof(std::uint32_t) + sizeof(float));
  } else if (codec.kind == CodecKind::kInt8) {
    bytes = encoded_bytes(BlockFormat::kInt8, gradient.size());
    std::vector<std::byte> wire(bytes);
    finite = encode(BlockFormat::kInt8, input, 0, wire.data()) &&
             decode(BlockFormat::kInt8, wire.data(), 1.0F, arrived.data(), arrived.size());
  } else {
    throw Error(ErrorCode::kInvalidArgument, "the page shows int8 and topk");
  }
  return Json{{"arrived", arrived},
              {"residual", next},
              {"wire_bytes", bytes},
              {"plain_bytes", gradient.size() * sizeof(float)},
              {"finite", finite}};
}

Json names() {
  Json models = Json::array();
  for (const std::string& name : model_names()) {
    const Json table = Json::parse(model_json(name));
    models.push_back(Json{
        {"name", name}, {"title", table.at("model")}, {"transformer", table.contains("config")}});
  }
  Json devices = Json::array();
  for (const std::string_view name : device_preset_names()) {
    devices.push_back(name);
  }
  return Json{
      {"models", std::move(models)}, {"machines", preset_names()}, {"devices", std::move(devices)}};
}

}  // namespace stretto::page
