// SPDX-License-Identifier: Apache-2.0
#include "layouts.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "flags.hpp"
#include "numbers.hpp"
#include "profile.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/data/models.hpp"
#include "stretto/report/report.hpp"
#include "stretto/simulate/device.hpp"
#include "stretto/simulate/layouts.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

struct Field {
  std::string_view name;   ///< In --shape,
  std::string_view table;  ///< and in a model table's `config`.
  int TransformerShape::*value;
  bool required;
};
constexpr std::array kFields = {
    Field{"layers", "layers", &TransformerShape::layers, true},
    Field{"hidden", "hidden", &TransformerShape::hidden, true},
    Field{"heads", "heads", &TransformerShape::heads, true},
    Field{"kv-heads", "kv_heads", &TransformerShape::kv_heads, false},
    Field{"ffn", "intermediate", &TransformerShape::ffn, false},
    Field{"sequence", "ctx", &TransformerShape::sequence, true},
    Field{"vocab", "vocab", &TransformerShape::vocab, true},
    Field{"experts", "experts", &TransformerShape::experts, false},
    Field{"experts-per-token", "experts_per_token", &TransformerShape::experts_per_token, false}};

[[noreturn]] void refuse(std::string message, std::string found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message),
               "--shape",
               std::move(found),
               std::move(expected),
               "Example: --shape layers=96,hidden=12288,heads=96,sequence=2048,vocab=51200"});
}

TransformerShape shape_from_text(const std::string& text) {
  TransformerShape shape;
  std::vector<std::string_view> names;
  names.reserve(kFields.size());
  std::vector<bool> given(kFields.size(), false);
  for (const Field& field : kFields) {
    names.push_back(field.name);
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    if (name == "gated") {
      shape.gated_ffn = true;
      continue;
    }
    if (name == "untied") {
      shape.tied_embeddings = false;
      continue;
    }
    std::size_t f = 0;
    while (f < kFields.size() && kFields[f].name != name) {
      ++f;
    }
    if (f == kFields.size()) {
      refuse("no such dimension of a transformer",
             quote(name),
             join(names) + ", and the words gated (SwiGLU) and untied (embeddings)");
    }
    const std::string_view digits =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    int value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || failed != std::errc() || end != digits.data() + digits.size() ||
        value < 1) {
      refuse("a dimension is wrong", quote(part), std::string(name) + "=N, a whole number above 0");
    }
    shape.*kFields[f].value = value;
    given[f] = true;
  }
  for (std::size_t f = 0; f < kFields.size(); ++f) {
    if (kFields[f].required && !given[f]) {
      refuse("a dimension is missing", text, std::string(kFields[f].name) + "=N");
    }
  }
  return shape;
}

TransformerShape shape_of_model(const std::string& model) {
  const auto table = nlohmann::json::parse(from_flag("PROFILE", [&] { return model_json(model); }));
  const auto config = table.find("config");
  if (config == table.end() || !config->is_object()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"layouts are ranked for transformers",
                 "PROFILE",
                 model,
                 "a transformer's model table, or --shape",
                 "Models: " + model_list()});
  }
  TransformerShape shape;
  for (const Field& field : kFields) {
    if (const auto value = config->find(field.table); value != config->end()) {
      shape.*field.value = value->get<int>();
    }
  }
  if (shape.sequence == 0) {
    shape.sequence = config->value("max_pos", 0);
  }
  // Three projections in the feed-forward block and a head of its own: Llama.
  shape.gated_ffn = shape.ffn > 0 && shape.ffn != 4 * shape.hidden;
  shape.tied_embeddings = !config->contains("kv_heads");
  return shape;
}

std::vector<RankedLayout> rank(const LayoutFlags& flags,
                               const std::string& model,
                               const Machine& machine) {
  const TransformerShape shape =
      flags.shape.empty() ? shape_of_model(model) : shape_from_text(flags.shape);
  const DeviceModel device = from_flag("--device", [&] { return device_preset(flags.device); });
  LayoutOptions options;
  options.global_batch = flags.global_batch > 0 ? flags.global_batch : machine.ranks();
  options.virtual_stages = {1, 2, 4};
  options.fused_attention = flags.fused_attention;
  options.expert_imbalance = flags.expert_imbalance;
  options.most = static_cast<std::size_t>(flags.most);
  std::vector<RankedLayout> ranked = rank_layouts(shape, device, machine, options);
  if (ranked.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no layout fits",
                 fmt::format("{} ranks, {}", machine.ranks(), device.name),
                 fmt::format("global batch {}", options.global_batch),
                 "one that divides batch, layers and heads, and fits the device's memory",
                 "Use more ranks, another --global-batch, or a device with more memory"});
  }
  return ranked;
}

std::string gib(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / (1 << 30));
}

}  // namespace

void LayoutFlags::add_to(CLI::App& app) {
  auto* layouts = app.add_flag(
      "--layouts",
      wanted,
      "Rank data x tensor x pipeline x expert layouts of a transformer by step and memory");
  app.add_option(
         "--shape",
         shape,
         "With --layouts: layers=N,hidden=N,heads=N,sequence=N,vocab=N[,...] instead of the "
         "model's")
      ->needs(layouts)
      ->type_name("K=N,..");
  std::string names;
  for (const std::string_view name : device_preset_names()) {
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  app.add_option("--device", device, "With --layouts: " + names + " (default a100-80g)")
      ->needs(layouts)
      ->type_name("NAME");
  app.add_option(
         "--global-batch", global_batch, "With --layouts: sequences per step (default: ranks)")
      ->needs(layouts)
      ->check(whole_number_from(1, 1 << 24))
      ->type_name("N");
  app.add_option("--most", most, "With --layouts: so many of them (default 12)")
      ->needs(layouts)
      ->check(whole_number_from(1, 100000))
      ->type_name("N");
  app.add_flag("--fused-attention", fused_attention, "With --layouts: FlashAttention")
      ->needs(layouts);
  app.add_option("--imbalance",
                 expert_imbalance,
                 "With --layouts: load of the busiest expert rank over the mean (default 1)")
      ->needs(layouts)
      ->check(number_from(1.0, 1e6))
      ->type_name("X");
}

std::string LayoutFlags::text(const std::string& model, const Machine& machine) const {
  const std::vector<RankedLayout> ranked = rank(*this, model, machine);
  std::vector<std::vector<std::string>> rows = {{"data x tensor x pipeline x expert",
                                                 "micro-batch",
                                                 "virtual",
                                                 "recompute",
                                                 "ZeRO",
                                                 "step",
                                                 "over the best",
                                                 "samples/s",
                                                 "memory"}};
  for (const RankedLayout& entry : ranked) {
    const Layout& layout = entry.layout;
    rows.push_back(
        {fmt::format(
             "{} x {} x {} x {}", layout.data, layout.tensor, layout.pipeline, layout.expert),
         std::to_string(layout.micro_batch),
         std::to_string(layout.virtual_stages),
         std::string(to_string(layout.recompute)),
         std::to_string(layout.zero_stage),
         format(entry.step),
         fmt::format("+{:.1f} %", 100.0 * (entry.step / ranked.front().step - 1.0)),
         fmt::format("{:.1f}", entry.samples_per_s),
         gib(entry.memory.total())});
  }
  const DeviceModel preset = device_preset(device);
  return table(rows) + fmt::format("\ndevice: {} ({}: {})\nmachine: {} ({}: {})\n",
                                   preset.name,
                                   to_string(preset.basis),
                                   preset.source,
                                   machine.name,
                                   to_string(machine.basis),
                                   machine.source);
}

ordered_json LayoutFlags::json(const std::string& model, const Machine& machine) const {
  ordered_json list = ordered_json::array();
  for (const RankedLayout& entry : rank(*this, model, machine)) {
    const Layout& layout = entry.layout;
    list.push_back(ordered_json{{"data", layout.data},
                                {"tensor", layout.tensor},
                                {"pipeline", layout.pipeline},
                                {"expert", layout.expert},
                                {"micro_batch", layout.micro_batch},
                                {"virtual_stages", layout.virtual_stages},
                                {"recompute", to_string(layout.recompute)},
                                {"zero_stage", layout.zero_stage},
                                {"step_s", entry.step.count()},
                                {"samples_per_s", entry.samples_per_s},
                                {"memory_bytes", entry.memory.total()}});
  }
  return list;
}

}  // namespace stretto::cli
