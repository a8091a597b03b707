// SPDX-License-Identifier: Apache-2.0
#include "tune_space.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "flags.hpp"
#include "schedule.hpp"
#include "stretto/base/text.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/plan/planner.hpp"

namespace stretto::cli {
namespace {

constexpr std::array<std::string_view, 7> kKnobs = {
    "buckets", "schedule", "algorithm", "streams", "codec", "ratio", "places"};
/// Sizes of uniform buckets that are looked at, as far as they are below the whole model.
constexpr std::array<std::string_view, 10> kCaps = {
    "64K", "256K", "512K", "1M", "2M", "4M", "8M", "16M", "25M", "64M"};

[[noreturn]] void refuse(std::string message, std::string_view found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message), "", quote(found), std::move(expected), ""});
}

const KnobValues* variable(const std::vector<KnobValues>& environment, std::string_view name) {
  const auto found = std::find_if(environment.begin(),
                                  environment.end(),
                                  [name](const KnobValues& one) { return one.name == name; });
  return found == environment.end() ? nullptr : &*found;
}

void check_value(const Knob& knob) {
  const std::string& value = knob.value;
  if (knob.name == "buckets" && value != "planned" && value != "ddp" && value != "single" &&
      parse_bytes(value) <= Bytes(0)) {
    refuse("a bucket must have a size", value, "more than 0");
  } else if (knob.name == "schedule") {
    (void)schedule_from_string(value);
  } else if (knob.name == "algorithm") {
    (void)algorithm_from_string(value);
  } else if (knob.name == "streams") {
    int streams = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), streams);
    if (error != std::errc() || end != value.data() + value.size() || streams < 0 ||
        streams > 4096) {
      refuse("this is no number of streams", value, "0 (all) to 4096");
    }
  } else if (knob.name == "codec") {
    (void)parse_codec(value);
  } else if (knob.name == "ratio") {
    (void)parse_codec("topk:" + value);
  } else if (knob.name == "places" && value != "in_order") {
    refuse("ranks have only one order that is better", value, "in_order");
  }
}

}  // namespace

Plan probe_plan(const Plan& plan) {
  Plan probe = single_bucket_plan(plan.tensors);
  std::vector<Bucket> buckets;
  for (const Bucket& whole : probe.buckets) {
    std::int64_t begin = 0;
    for (const std::int64_t part : {32, 16, 8, 4, 2, 1}) {
      Bucket bucket = whole;
      bucket.begin = begin;
      bucket.end = whole.end / part;
      if (bucket.end > bucket.begin) {
        buckets.push_back(bucket);
        begin = bucket.end;
      }
    }
  }
  for (Bucket& bucket : buckets) {
    bucket.algorithm = plan.buckets.empty() ? Algorithm::kAuto : plan.buckets[0].algorithm;
  }
  probe.buckets = std::move(buckets);
  probe.origin = "sizes to fit a line to";
  return probe;
}

TuneSpace::TuneSpace(RecordedProgram recorded, Allowed allowed)
    : recorded_(std::move(recorded)), allowed_(std::move(allowed)) {}

void TuneSpace::check(const Setting& setting, const Allowed& allowed) {
  for (const Knob& knob : setting) {
    const bool known = std::find(kKnobs.begin(), kKnobs.end(), knob.name) != kKnobs.end();
    if (!known && variable(allowed.environment, knob.name) == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"there is no such knob",
                   "",
                   quote(knob.name),
                   "",
                   suggest(knob.name, kKnobs) + ". Variables are allowed with --env NAME=VALUES"});
    }
    if (knob.name == "places" && !allowed.places) {
      refuse("places are for emulated machines with a --rank-map", knob.value, "no such knob here");
    }
    check_value(knob);
  }
  if (value_of(setting, "codec") && value_of(setting, "ratio")) {
    refuse("ratio is the codec topk", "codec and ratio", "one of them");
  }
}

std::optional<std::string> TuneSpace::knob(const Setting& setting, std::string_view name) const {
  for (const Setting& where : {setting, allowed_.fixed}) {
    if (const auto value = value_of(where, name)) {
      return std::string(*value);
    }
  }
  return std::nullopt;
}

TrialRequest TuneSpace::request(const Setting& setting) {
  check(setting, allowed_);
  TrialRequest request;
  request.schedule = knob(setting, "schedule").value_or("");
  request.streams = knob(setting, "streams").value_or("");
  request.algorithm = knob(setting, "algorithm").value_or("");
  request.places_in_order = knob(setting, "places").has_value();
  for (const KnobValues& one : allowed_.environment) {
    if (const auto value = knob(setting, one.name)) {
      request.environment.push_back(one.name + "=" + *value);
    }
  }
  if (knob(setting, "buckets") || knob(setting, "codec") || knob(setting, "ratio") ||
      !request.algorithm.empty()) {
    request.plan = plan_of(setting);
  }
  return request;
}

Plan TuneSpace::plan_of(const Setting& setting) {
  const Plan& base = recorded_.plan;
  const bool has_base = !base.buckets.empty();
  const std::string buckets = knob(setting, "buckets").value_or("");
  const auto named = knob(setting, "algorithm");
  const Algorithm algorithm = named      ? algorithm_from_string(*named)
                              : has_base ? base.buckets[0].algorithm
                                         : Algorithm::kAuto;
  std::optional<CodecSpec> codec;
  if (const auto value = knob(setting, "codec")) {
    codec = parse_codec(*value);
  } else if (const auto ratio = knob(setting, "ratio")) {
    codec = parse_codec("topk:" + *ratio);
  } else if (has_base && base.buckets[0].codec.lossy()) {
    codec = base.buckets[0].codec;
  }
  Plan plan;
  if (buckets.empty()) {
    plan = base;
  } else if (buckets == "ddp") {
    plan = ddp_plan(base.tensors);
  } else if (buckets == "single") {
    plan = single_bucket_plan(base.tensors);
  } else if (buckets == "planned") {
    const SimulateOptions how = options(setting);
    const std::string key = fmt::format("{} {}", to_string(how.schedule), to_string(algorithm));
    const auto known = planned_.find(key);
    if (known != planned_.end()) {
      plan = known->second;
    } else {
      const ExchangeCosts* const cost = costs(algorithm);
      if (cost == nullptr) {
        throw Error(ErrorCode::kInvalidArgument,
                    {"buckets can be planned where it is known what communication costs",
                     "buckets=planned",
                     fmt::format("no cost of {}", to_string(algorithm)),
                     "a machine, or exchanges of two sizes in the recording",
                     "Give --machine M"});
      }
      plan = stretto::plan(recorded_.profile, *cost, how).plan;
      planned_.emplace(key, plan);
    }
  } else {
    plan = uniform_plan(base.tensors, parse_bytes(buckets));
  }
  for (Bucket& bucket : plan.buckets) {
    if (!buckets.empty() || named) {
      bucket.algorithm = algorithm;
    }
    if (codec && bucket.dtype == DType::kF32) {
      bucket.codec = *codec;
    }
  }
  return plan;
}

const ExchangeCosts* TuneSpace::costs(Algorithm algorithm) {
  const auto known = costs_.find(algorithm);
  if (known != costs_.end()) {
    return known->second ? &*known->second : nullptr;
  }
  std::optional<ExchangeCosts>& cost = costs_[algorithm];
  if (recorded_.machine) {
    try {
      cost = emulated_costs(*recorded_.machine, algorithm, recorded_.profile.bytes());
    } catch (const Error&) {
      cost = std::nullopt;  // cannot run on that machine, or nobody can price it
    }
  } else if (!recorded_.plan.buckets.empty() && algorithm == recorded_.plan.buckets[0].algorithm) {
    cost = recorded_.fitted;
  }
  return cost ? &*cost : nullptr;
}

SimulateOptions TuneSpace::options(const Setting& setting) const {
  ScheduleOptions how;
  how.schedule = knob(setting, "schedule").value_or(recorded_.schedule);
  how.streams = std::stoi(knob(setting, "streams").value_or(recorded_.streams));
  SimulateOptions options;
  options.streams = how.streams;
  if (recorded_.machine) {
    options = how.simulated(*recorded_.machine);
  }
  options.schedule = schedule_from_string(how.schedule);
  options.optimizer_per_bucket = recorded_.optimizer_per_bucket;
  options.recorded_ranks = 0;
  return options;
}

std::optional<Seconds> TuneSpace::predict(const Setting& setting) {
  // A machine is priced with its ranks in order.
  if (allowed_.places && !knob(setting, "places")) {
    return std::nullopt;
  }
  for (const KnobValues& one : allowed_.environment) {
    if (value_of(setting, one.name)) {
      return std::nullopt;
    }
  }
  try {
    const Plan plan = plan_of(setting);
    const bool lossy = std::any_of(
        plan.buckets.begin(), plan.buckets.end(), [](const Bucket& b) { return b.codec.lossy(); });
    const ExchangeCosts* const cost =
        plan.buckets.empty() ? nullptr : costs(plan.buckets[0].algorithm);
    if (lossy || cost == nullptr) {
      return std::nullopt;
    }
    return simulate(recorded_.profile, *cost, plan, options(setting)).step;
  } catch (const Error&) {
    return std::nullopt;  // a trial will say why
  }
}

std::vector<KnobValues> TuneSpace::predictable() {
  std::vector<KnobValues> knobs;
  const auto add = [&](const char* name, std::vector<std::string> values) {
    if (!value_of(allowed_.fixed, name) && !values.empty()) {
      knobs.push_back({name, std::move(values)});
    }
  };
  const Algorithm base =
      recorded_.plan.buckets.empty() ? Algorithm::kAuto : recorded_.plan.buckets[0].algorithm;
  std::vector<std::string> buckets;
  if (recorded_.machine || recorded_.fitted) {
    buckets.emplace_back("planned");
  }
  for (const std::string_view cap : kCaps) {
    if (parse_bytes(cap) < recorded_.plan.bytes()) {
      buckets.emplace_back(cap);
    }
  }
  buckets.insert(buckets.end(), {"ddp", "single"});
  add("buckets", std::move(buckets));
  add("schedule", allowed_.schedules);
  std::vector<std::string> algorithms = {std::string(to_string(base))};
  if (recorded_.machine) {
    std::vector<Algorithm> all = runnable_algorithms(Collective::kAllReduce);
    all.push_back(Algorithm::kAuto);
    for (const Algorithm algorithm : all) {
      if (algorithm != base && costs(algorithm) != nullptr) {
        algorithms.emplace_back(to_string(algorithm));
      }
    }
  }
  add("algorithm", std::move(algorithms));
  add("streams", {"1", "4", "0"});
  if (allowed_.places) {
    add("places", {"in_order"});
  }
  return knobs;
}

bool TuneSpace::same_as_default(const Setting& setting) {
  const TrialRequest one = request(setting);
  const std::string schedule = one.schedule.empty() ? recorded_.schedule : one.schedule;
  const std::string streams = one.streams.empty() ? recorded_.streams : one.streams;
  const bool sets_variable = std::any_of(
      allowed_.environment.begin(), allowed_.environment.end(), [&](const KnobValues& knob) {
        return value_of(setting, knob.name).has_value();
      });
  return !sets_variable && schedule == recorded_.schedule && streams == recorded_.streams &&
         !(allowed_.places && one.places_in_order) &&
         (!one.plan || one.plan->hash() == recorded_.plan.hash());
}

std::vector<Candidate> TuneSpace::candidates(std::size_t count) {
  const std::vector<Setting> settings = stretto::combinations(predictable());
  combinations_ = settings.size();
  std::vector<Candidate> all;
  all.reserve(settings.size());
  for (const Setting& setting : settings) {
    all.push_back({setting, predict(setting)});
  }
  std::vector<Candidate> list = shortlist(all, count + 1);
  std::erase_if(list, [&](const Candidate& one) { return same_as_default(one.setting); });
  list.resize(std::min(list.size(), count));
  const auto with = [](Setting setting, const char* name, const std::string& value) {
    std::erase_if(setting, [name](const Knob& knob) { return knob.name == name; });
    setting.push_back({name, value});
    return Candidate{std::move(setting), std::nullopt};
  };
  const Setting best = list.empty() ? Setting{} : list.front().setting;
  std::vector<Candidate> more;
  if (!recorded_.machine && !value_of(allowed_.fixed, "algorithm")) {
    for (const char* algorithm : {"ring", "halving_doubling"}) {
      if (recorded_.plan.buckets.empty() ||
          to_string(recorded_.plan.buckets[0].algorithm) != algorithm) {
        // Planned buckets are for the algorithm that was measured; these are as many without it.
        more.push_back(with(best, "algorithm", algorithm));
        if (value_of(best, "buckets") == "planned") {
          more.back() = with(more.back().setting, "buckets", "4M");
        }
      }
    }
  }
  for (const std::string& codec : allowed_.codecs) {
    more.push_back(with(best, "codec", codec));
    // What travels is less, and rounds twice whatever the algorithm: fewer and larger buckets.
    if (!value_of(allowed_.fixed, "buckets") && value_of(best, "buckets") != "single") {
      more.push_back(with(with(best, "codec", codec).setting, "buckets", "single"));
    }
  }
  for (const KnobValues& one : allowed_.environment) {
    for (const std::string& value : one.values) {
      more.push_back(with(best, one.name.c_str(), value));
    }
  }
  combinations_ += more.size();
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

}  // namespace stretto::cli
