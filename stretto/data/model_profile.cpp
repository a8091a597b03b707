// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/data/json_reader.hpp"
#include "stretto/data/shape.hpp"
#include "stretto/data/step_profile.hpp"

namespace stretto {
namespace {

using detail::JsonValue;

constexpr std::int64_t kMostSamples = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kDefaultSequence = 4096;
constexpr double kBackwardOverForward = 2.0;
constexpr double kFlopsPerMultiplyAdd = 2.0;

struct Parameter {
  std::string name;
  std::vector<std::int64_t> shape;
  double elements = 0.0;
  std::optional<double> multiply_adds;  ///< Forward, one sample.
  std::string tied;                     ///< Name of its second use, at the end of forward.
};

struct ModelTable {
  std::string model;
  std::int64_t batch = 0;
  std::int64_t sequence = kDefaultSequence;
  bool counted = false;  ///< Multiply-adds stand in the table.
  std::vector<Parameter> parameters;
};

/// One module: its parameters are consecutive in the table and become ready together.
struct Layer {
  std::string name;
  double multiply_adds = 0.0;
  std::vector<std::size_t> parameters;
};

/// `h.0.attn.c_attn` of `h.0.attn.c_attn.weight`.
std::string module_of(std::string_view parameter) {
  return std::string(parameter.substr(0, parameter.rfind('.')));
}

bool is_embedding(std::string_view name) {
  return name.find("embed") != std::string_view::npos ||
         name.find("wte.") != std::string_view::npos || name.find("wpe.") != std::string_view::npos;
}

Parameter read_parameter(const JsonValue& json, std::int64_t& total_elements) {
  json.allow_only({"index", "name", "shape", "numel", "fwd_macs_per_sample", "tied"});
  Parameter parameter;
  parameter.name = json.at("name").text();
  const JsonValue shape = json.at("shape");
  parameter.shape = shape.integers(0, detail::kMaxElements);
  const auto elements = detail::checked_elements(parameter.shape);
  if (!elements || (total_elements += *elements) > detail::kMaxElements) {
    shape.fail({"tensor size is not possible", {}, {}, "at most 2^56 elements in all", {}});
  }
  parameter.elements = static_cast<double>(*elements);
  if (const auto stated = json.find("numel")) {
    if (stated->integer(0, detail::kMaxElements) != *elements) {
      stated->fail_type(std::to_string(*elements) + ", the product of the shape");
    }
  }
  if (const auto multiply_adds = json.find("fwd_macs_per_sample")) {
    parameter.multiply_adds = multiply_adds->number();
  }
  if (const auto tied = json.find("tied")) {
    parameter.tied = tied->text();
  }
  return parameter;
}

ModelTable read_table(const JsonValue& root) {
  root.allow_only({"model",
                   "assumed_batch",
                   "params",
                   "config",
                   "input",
                   "fwd_gmacs_per_sample",
                   "published_total",
                   "published_source",
                   "computed_total",
                   "match",
                   "n_tensors",
                   "order",
                   "note"});
  ModelTable table;
  table.model = root.at("model").text();
  std::int64_t total_elements = 0;
  const JsonValue parameters = root.at("params");
  for (const JsonValue& json : parameters.elements()) {
    table.parameters.push_back(read_parameter(json, total_elements));
    table.counted = table.counted || table.parameters.back().multiply_adds.has_value();
  }
  if (table.parameters.empty()) {
    parameters.fail_type("at least one parameter");
  }
  constexpr std::int64_t kPictures = 32;
  constexpr std::int64_t kSequences = 1;
  table.batch = table.counted ? kPictures : kSequences;
  if (const auto batch = root.find("assumed_batch")) {
    table.batch = batch->integer(1, kMostSamples);
  }
  const auto config = root.find("config");
  if (config && config->is_object()) {
    const auto context = config->find("ctx");
    const auto positions = context ? context : config->find("max_pos");
    if (positions) {
      table.sequence = positions->integer(1, kMostSamples);
    }
  }
  return table;
}

/// Forward multiply-adds of one use of a parameter.
double cost_of(const ModelTable& table, const Parameter& parameter) {
  if (table.counted) {
    return parameter.multiply_adds.value_or(0.0);
  }
  const bool matrix = parameter.shape.size() >= 2;
  return matrix ? parameter.elements * static_cast<double>(table.sequence) : 0.0;
}

std::vector<Layer> layers_of(const ModelTable& table) {
  std::vector<Layer> layers;
  std::vector<Layer> heads;
  for (std::size_t i = 0; i < table.parameters.size(); ++i) {
    const Parameter& parameter = table.parameters[i];
    std::string module = module_of(parameter.name);
    if (layers.empty() || layers.back().name != module) {
      layers.push_back({std::move(module), 0.0, {}});
    }
    layers.back().parameters.push_back(i);
    const bool look_up = !table.counted && is_embedding(parameter.name);
    layers.back().multiply_adds += look_up ? 0.0 : cost_of(table, parameter);
    if (look_up && !parameter.tied.empty()) {
      heads.push_back({module_of(parameter.tied), cost_of(table, parameter), {}});
    }
  }
  layers.insert(
      layers.end(), std::make_move_iterator(heads.begin()), std::make_move_iterator(heads.end()));
  return layers;
}

std::string assumptions_of(const ModelTable& table, double flops_per_s, std::int64_t batch) {
  const std::string cost =
      table.counted ? "multiply-adds as in the model table"
                    : fmt::format(
                          "each matrix is multiplied with {} positions per sample, embeddings are "
                          "look-ups, attention scores are not counted",
                          table.sequence);
  return fmt::format(
      "fp32 gradients; {} {} per rank; device sustains {:.4g} TFLOP/s; {}; backward = {:g} x "
      "forward; gradients ready in reverse order of use, tied ones last; optimizer takes no time",
      batch,
      batch == 1 ? "sample" : "samples",
      flops_per_s / 1e12,
      cost,
      kBackwardOverForward);
}

void check(const AssumedDevice& device) {
  if (!(device.flops_per_s > 0.0) || !std::isfinite(device.flops_per_s)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"device rate is not possible",
                 {},
                 fmt::format("{} FLOP/s", device.flops_per_s),
                 "above zero",
                 {}});
  }
  if (device.batch < 0 || device.batch > kMostSamples) {
    throw Error(ErrorCode::kInvalidArgument,
                {"batch is not possible",
                 {},
                 std::to_string(device.batch),
                 "samples per rank from 1 to " + std::to_string(kMostSamples) +
                     ", or 0 for the model's own",
                 {}});
  }
}

}  // namespace

StepProfile profile_from_model_json(std::string_view text,
                                    std::string_view where,
                                    AssumedDevice device) {
  check(device);
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  const ModelTable table = read_table(root);
  const std::vector<Layer> layers = layers_of(table);

  StepProfile profile;
  profile.model = table.model;
  profile.batch = device.batch > 0 ? device.batch : table.batch;
  profile.basis = Basis::kAssumed;
  profile.assumptions = assumptions_of(table, device.flops_per_s, profile.batch);
  const double seconds_per_multiply_add =
      kFlopsPerMultiplyAdd * static_cast<double>(profile.batch) / device.flops_per_s;
  Seconds time{};
  for (const Layer& layer : layers) {
    const Seconds forward(layer.multiply_adds * seconds_per_multiply_add);
    profile.forward.push_back({layer.name, forward});
    time += forward;
  }
  profile.forward_end = time;
  std::vector<ProfileTensor> tied;
  for (std::size_t l = layers.size(); l-- > 0;) {
    time += kBackwardOverForward * profile.forward[l].forward;
    for (std::size_t p = layers[l].parameters.size(); p-- > 0;) {
      const Parameter& parameter = table.parameters[layers[l].parameters[p]];
      std::vector<ProfileTensor>& order = parameter.tied.empty() ? profile.tensors : tied;
      order.push_back({parameter.name, DType::kF32, parameter.shape, time});
    }
  }
  if (!std::isfinite(time.count())) {
    root.fail({"the step takes longer than a number can say", {}, {}, {}, {}});
  }
  for (ProfileTensor& tensor : tied) {
    tensor.ready = time;
    profile.tensors.push_back(std::move(tensor));
  }
  profile.backward_end = time;
  profile.compute_end = time;
  return profile;
}

}  // namespace stretto
