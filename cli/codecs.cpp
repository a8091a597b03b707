// SPDX-License-Identifier: Apache-2.0
#include "codecs.hpp"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "flags.hpp"
#include "stretto/base/text.hpp"
#include "stretto/measure/codec_rates.hpp"
#include "stretto/report/report.hpp"
#include "stretto/run/text_exchange.hpp"
#include "stretto/simulate/codec_cost.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kAuto = "auto";

void add_once(std::vector<CodecSpec>& codecs, const CodecSpec& codec) {
  if (codec.lossy() && std::find(codecs.begin(), codecs.end(), codec) == codecs.end()) {
    codecs.push_back(codec);
  }
}

}  // namespace

std::vector<CodecSpec> codecs_from_flag(std::string_view flag, const std::string& text) {
  std::vector<CodecSpec> codecs;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name == "all") {
      for (const CodecSpec& codec : usual_codecs()) {
        add_once(codecs, codec);
      }
      continue;
    }
    const CodecSpec codec = from_flag(flag, [&] { return parse_codec(name); });
    if (!codec.lossy()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"none is no codec", std::string(flag), name, "int8, topk:0.01... or all", {}});
    }
    add_once(codecs, codec);
  }
  return codecs;
}

std::vector<CodecSpec> codecs_of(const Plan& plan) {
  std::vector<CodecSpec> codecs;
  for (const Bucket& bucket : plan.buckets) {
    add_once(codecs, bucket.codec);
  }
  return codecs;
}

PricedCodecs price_codecs(const Machine* machine, const std::vector<CodecSpec>& codecs) {
  PricedCodecs priced;
  std::size_t measured = 0;
  for (const CodecSpec& codec : codecs) {
    const CodecRate* known = nullptr;
    if (machine != nullptr) {
      for (const CodecRate& rate : machine->codecs) {
        known = rate.codec == codec ? &rate : known;
      }
    }
    measured += known == nullptr ? 1 : 0;
    priced.rates.push_back(known != nullptr ? *known : measure_codec(codec));
  }
  if (!codecs.empty()) {
    priced.basis = measured == 0 ? "codecs as the machine's file has them"
                   : measured == codecs.size()
                       ? "codecs measured on this computer, now"
                       : "codecs as the machine's file has them, the others "
                         "measured on this computer, now";
  }
  return priced;
}

std::string codec_table(const std::vector<CodecRate>& rates) {
  std::vector<std::vector<std::string>> rows = {
      {"codec", "encode", "decode", "ratio", "error", "pays below"}};
  for (const CodecRate& rate : rates) {
    // Two ranks, nothing hidden and one thing at a time: what is saved on the wire is as long as
    // the processor's time.
    constexpr Bytes kBucket(8 << 20);
    const Seconds work = CodecCost(rate, {}, {}, 2).processor(kBucket);
    const double saved = (1.0 - 1.0 / rate.ratio) * static_cast<double>(kBucket.count());
    rows.push_back({to_string(rate.codec),
                    format(rate.encode),
                    format(rate.decode),
                    fmt::format("{:.1f}x", rate.ratio),
                    fmt::format("{:.2g} %", 100.0 * rate.error),
                    saved > 0.0 ? format(BytesPerSecond(saved / work.count())) : "never"});
  }
  return table(rows);
}

void CompressFlags::add_to(CLI::App& app, const std::string& help) {
  auto* compress = app.add_option("--compress", codec, help)->type_name("CODEC");
  app.add_option(
         "--compress-except", exact, "Tensors whose buckets are not encoded; * stands for anything")
      ->needs(compress)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME");
  app.add_option("--compress-min",
                 least_bytes,
                 "With --compress auto: the smallest bucket to encode (default 64K)")
      ->needs(compress)
      ->type_name("SIZE");
  app.add_option("--compress-ratio",
                 least_ratio,
                 fmt::format("With auto: bytes it must save, as a ratio (default {})", least_ratio))
      ->needs(compress)
      ->check(number_from(0.0, 1e6))
      ->type_name("X");
  app.add_option("--compress-gain",
                 least_gain_percent,
                 fmt::format("With auto: how much shorter the step must be, in % (default {})",
                             least_gain_percent))
      ->needs(compress)
      ->check(number_from(0.0, 99.0))
      ->type_name("X");
}

bool CompressFlags::automatic() const noexcept {
  return codec == kAuto || codec.starts_with("auto:");
}

void CompressFlags::refuse_idle() const {
  const CompressFlags usual;
  const char* const idle = least_bytes != usual.least_bytes                 ? "--compress-min"
                           : least_ratio != usual.least_ratio               ? "--compress-ratio"
                           : least_gain_percent != usual.least_gain_percent ? "--compress-gain"
                                                                            : nullptr;
  if (idle != nullptr && !automatic()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"only a codec that is chosen bucket by bucket asks for that",
                 idle,
                 "--compress " + codec,
                 "--compress auto, or auto:CODEC,...",
                 {}});
  }
}

CodecSpec CompressFlags::uniform() const {
  refuse_idle();
  return codec.empty() || automatic() ? CodecSpec{}
                                      : from_flag("--compress", [&] { return parse_codec(codec); });
}

std::optional<double> CompressFlags::momentum() const {
  const std::vector<CodecSpec> named = automatic() ? policy().allowed : std::vector{uniform()};
  for (const CodecSpec& one : named) {
    if (one.momentum > 0.0) {
      return one.momentum;
    }
  }
  return std::nullopt;
}

CodecPolicy CompressFlags::policy() const {
  CodecPolicy policy;
  policy.allowed = codecs_from_flag(
      "--compress", codec == kAuto ? std::string("fp16,int8") : codec.substr(kAuto.size() + 1));
  policy.least_bytes = from_flag("--compress-min", [&] { return parse_bytes(least_bytes); });
  policy.least_ratio = least_ratio;
  policy.least_gain = least_gain_percent / 100.0;
  policy.exact = exact;
  return policy;
}

void CompressFlags::set(Plan& plan) const {
  if (codec.empty() || automatic()) {
    return;
  }
  const CodecSpec chosen = uniform();
  plan = with_codec(std::move(plan), chosen, exact);
  const bool any = !codecs_of(plan).empty();
  if (chosen.lossy() && !any) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is nothing to compress",
                 "--compress",
                 exact.empty() ? "no gradient of f32" : "no bucket of f32 without such a tensor",
                 "gradients of f32",
                 "Leave --compress out"});
  }
}

Plan try_codecs(Communicator& communicator,
                AutoCodecs& codecs,
                double least_gain,
                const std::function<Seconds(const Plan&)>& step_of) {
  // Rank 0 decides: another clock would be another choice.
  Plan chosen = plan_from_json(broadcast_text(communicator, to_json(codecs.choice.plan), 0),
                               "rank 0's choice of codecs");
  if (codecs_of(chosen).empty()) {
    return chosen;
  }
  Plan exact = chosen;
  for (Bucket& bucket : exact.buckets) {
    bucket.codec = {};
  }
  // Before and after: what drifts hits both.
  const Seconds before = step_of(exact);
  codecs.step = step_of(chosen);
  codecs.exact_step = std::min(before, step_of(exact));
  codecs.reverted = *codecs.step > *codecs.exact_step * (1.0 - least_gain / 2.0);
  const std::string verdict = broadcast_text(communicator, codecs.reverted ? "no" : "yes", 0);
  return verdict == "no" ? exact : chosen;
}

std::optional<CodecWatchOptions> watch_agreed(const Plan& plan,
                                              const AutoCodecs& codecs,
                                              double least_gain) {
  if (codecs_of(plan).empty()) {
    return std::nullopt;
  }
  CodecWatchOptions options;
  options.exact_step = codecs.exact_step.value_or(Seconds(0));
  options.least_gain = least_gain;
  return options;
}

std::string auto_codecs_text(const AutoCodecs& codecs) {
  const CodecChoice& choice = codecs.choice;
  std::vector<std::vector<std::string>> rows = {{"bucket", "size", "codec", "why"}};
  for (std::size_t b = 0; b < choice.buckets.size(); ++b) {
    rows.push_back({std::to_string(b),
                    format(choice.plan.buckets[b].bytes()),
                    to_string(choice.buckets[b].codec),
                    choice.buckets[b].why});
  }
  std::string text = fmt::format("codecs, predicted: step {}, {} without ({:.1f} % shorter)\n",
                                 format(choice.step),
                                 format(choice.exact_step),
                                 100.0 * (1.0 - choice.step / choice.exact_step)) +
                     table(rows);
  if (codecs.step) {
    text += fmt::format("codecs, tried: step {}, {} without; {}\n",
                        format(*codecs.step),
                        format(*codecs.exact_step),
                        codecs.reverted ? "they do not pay here and were left out" : "kept");
  }
  for (const CodecSwitch& one : codecs.switches) {
    text += fmt::format("codecs, after step {}: {} with, {} without; {}\n",
                        one.step,
                        format(one.with),
                        format(one.without),
                        one.changed ? (one.codecs ? "they pay again, and are back"
                                                  : "they do not pay any more, and were turned off")
                                    : (one.codecs ? "stay on" : "stay off"));
  }
  return text;
}

ordered_json auto_codecs_json(const AutoCodecs& codecs) {
  ordered_json buckets = ordered_json::array();
  for (const BucketCodec& bucket : codecs.choice.buckets) {
    buckets.push_back({{"codec", to_string(bucket.codec)}, {"why", bucket.why}});
  }
  const auto seconds = [](const std::optional<Seconds>& time) {
    return time ? ordered_json(time->count()) : ordered_json(nullptr);
  };
  ordered_json switches = ordered_json::array();
  for (const CodecSwitch& one : codecs.switches) {
    switches.push_back({{"step", one.step},
                        {"codecs", one.codecs},
                        {"changed", one.changed},
                        {"step_with_s", one.with.count()},
                        {"step_without_s", one.without.count()}});
  }
  return {{"predicted_step_s", codecs.choice.step.count()},
          {"predicted_exact_step_s", codecs.choice.exact_step.count()},
          {"tried_step_s", seconds(codecs.step)},
          {"tried_exact_step_s", seconds(codecs.exact_step)},
          {"reverted", codecs.reverted},
          {"switches", std::move(switches)},
          {"buckets", std::move(buckets)}};
}

void set_codecs(Machine& machine, const std::vector<CodecRate>& rates) {
  for (const CodecRate& rate : rates) {
    std::erase_if(machine.codecs, [&](const CodecRate& old) { return old.codec == rate.codec; });
    machine.codecs.push_back(rate);
  }
}

}  // namespace stretto::cli
