// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/codec_choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/problem.hpp"

namespace stretto {
namespace {

void check(const CodecPolicy& policy, const ExchangeCosts& costs) {
  const auto refuse = [](std::string where, std::string found, std::string expected) {
    throw Error(ErrorCode::kInvalidArgument,
                {"codecs cannot be chosen by this",
                 std::move(where),
                 std::move(found),
                 std::move(expected),
                 {}});
  };
  for (const CodecSpec& codec : policy.allowed) {
    if (costs.codec(codec) == nullptr) {
      refuse("allowed codec", to_string(codec), "a codec with measured rates");
    }
  }
  if (policy.least_bytes < Bytes(0)) {
    refuse("least bytes of a bucket", format(policy.least_bytes), "0 or more");
  }
  if (!std::isfinite(policy.least_ratio) || policy.least_ratio < 0.0) {
    refuse("least ratio", fmt::format("{}", policy.least_ratio), "0 or more");
  }
  if (!(policy.least_gain >= 0.0 && policy.least_gain < 1.0)) {
    refuse("least gain", fmt::format("{}", policy.least_gain), "from 0 to below 1");
  }
}

/// The first of a bucket's tensors that is to stay exact.
const TensorSpec* kept_exact(const Plan& plan,
                             const std::vector<TensorRange>& ranges,
                             const std::vector<std::string>& exact) {
  for (const TensorRange& range : ranges) {
    const TensorSpec& tensor = plan.tensors[range.tensor];
    if (std::any_of(exact.begin(), exact.end(), [&](const std::string& pattern) {
          return matches(pattern, tensor.name);
        })) {
      return &tensor;
    }
  }
  return nullptr;
}

class Chooser {
 public:
  Chooser(const StepProfile& profile,
          const ExchangeCosts& costs,
          const Plan& plan,
          const SimulateOptions& options,
          const CodecPolicy& policy)
      : costs_(costs), policy_(policy), evaluate_(profile, costs, options) {
    choice_.plan = plan;
    for (Bucket& bucket : choice_.plan.buckets) {
      bucket.codec = {};
    }
  }

  CodecChoice choose() {
    Plan& plan = choice_.plan;
    choice_.exact_step = choice_.step = evaluate_.simulated_step(plan);
    find_candidates();
    const Plan exact = plan;
    const Seconds quickest = take_quickest();
    if (quickest > choice_.exact_step * (1.0 - policy_.least_gain)) {
      plan = exact;
      const double gain = std::max(0.0, 1.0 - quickest / choice_.exact_step);
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        if (!candidates_[b].empty()) {
          choice_.buckets[b].why = fmt::format(
              "all codecs together would make the step {:.2g} % shorter, less than "
              "the {:.2g} % asked for",
              100.0 * gain,
              100.0 * policy_.least_gain);
        }
      }
      return std::move(choice_);
    }
    give_back(quickest * 1.001);
    choice_.step = evaluate_.simulated_step(plan);
    explain();
    return std::move(choice_);
  }

 private:
  [[nodiscard]] Seconds as_it_is(std::size_t b) const {
    return costs_.all_reduce(choice_.plan.buckets[b].bytes());
  }
  [[nodiscard]] Seconds with(const CodecSpec& codec, std::size_t b) const {
    return (*costs_.codec(codec))(choice_.plan.buckets[b].bytes());
  }

  /// Of each bucket, the codecs that its exchange is quicker with, the least lossy first; and where
  /// there is none, why.
  void find_candidates() {
    const Plan& plan = choice_.plan;
    const std::vector<std::vector<TensorRange>> ranges = plan.all_ranges();
    std::vector<CodecSpec> allowed = policy_.allowed;
    std::stable_sort(allowed.begin(), allowed.end(), [this](const auto& a, const auto& b) {
      return costs_.codec(a)->rate().error < costs_.codec(b)->rate().error;
    });
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      candidates_.emplace_back();
      choice_.buckets.emplace_back();
      const Bucket& bucket = plan.buckets[b];
      std::string& why = choice_.buckets.back().why;
      const TensorSpec* const kept = kept_exact(plan, ranges[b], policy_.exact);
      if (bucket.dtype != DType::kF32) {
        why = fmt::format("{}, and codecs are for f32", to_string(bucket.dtype));
      } else if (kept != nullptr) {
        why = fmt::format("has {}, which is to stay exact", quote(kept->name));
      } else if (bucket.bytes() < policy_.least_bytes) {
        why = fmt::format("{} is less than {}, the least to encode",
                          format(bucket.bytes()),
                          format(policy_.least_bytes));
      } else {
        why = allowed.empty() ? "no codec is allowed" : "";
        for (const CodecSpec& codec : allowed) {
          consider(codec, b, why);
        }
      }
    }
  }

  void consider(const CodecSpec& codec, std::size_t b, std::string& why) {
    const Bytes size = choice_.plan.buckets[b].bytes();
    const CodecCost& cost = *costs_.codec(codec);
    const double ratio = static_cast<double>(size.count()) /
                         static_cast<double>(std::max<std::int64_t>(1, cost.encoded(size).count()));
    std::string against;
    if (ratio < policy_.least_ratio) {
      against = fmt::format("{} saves too little ({:.2g}x, {:.2g}x asked for)",
                            to_string(codec),
                            ratio,
                            policy_.least_ratio);
    } else if (with(codec, b) >= as_it_is(b)) {
      against = fmt::format("{} takes {}, as it is {}",
                            to_string(codec),
                            format(with(codec, b)),
                            format(as_it_is(b)));
    } else {
      candidates_[b].push_back(codec);
      return;
    }
    why += (why.empty() ? "" : "; ") + against;
  }

  /// The least step that codecs reach, with one for all buckets or with each bucket's quickest.
  Seconds take_quickest() {
    const Plan exact = choice_.plan;
    Seconds least = choice_.exact_step;
    const auto compare = [&](Plan plan) {
      const Seconds step = evaluate_.simulated_step(plan);
      if (step < least) {
        least = step;
        choice_.plan = std::move(plan);
      }
    };
    Plan each = exact;
    for (std::size_t b = 0; b < each.buckets.size(); ++b) {
      const auto quickest = std::min_element(
          candidates_[b].begin(), candidates_[b].end(), [&](const auto& x, const auto& y) {
            return with(x, b) < with(y, b);
          });
      if (quickest != candidates_[b].end()) {
        each.buckets[b].codec = *quickest;
      }
    }
    compare(std::move(each));
    for (const CodecSpec& codec : policy_.allowed) {
      Plan all = exact;
      for (std::size_t b = 0; b < all.buckets.size(); ++b) {
        const auto& possible = candidates_[b];
        if (std::find(possible.begin(), possible.end(), codec) != possible.end()) {
          all.buckets[b].codec = codec;
        }
      }
      compare(std::move(all));
    }
    return least;
  }

  /// To each bucket the least lossy codec, or none, with which the step stays within `most`.
  void give_back(Seconds most) {
    for (std::size_t b = 0; b < choice_.plan.buckets.size(); ++b) {
      Bucket& bucket = choice_.plan.buckets[b];
      const CodecSpec taken = bucket.codec;
      if (!taken.lossy()) {
        continue;
      }
      bucket.codec = {};
      for (auto next = candidates_[b].begin(); evaluate_.simulated_step(choice_.plan) > most;
           ++next) {
        bucket.codec = next == candidates_[b].end() ? taken : *next;
        if (bucket.codec == taken) {
          break;
        }
      }
    }
  }

  void explain() {
    for (std::size_t b = 0; b < choice_.plan.buckets.size(); ++b) {
      Bucket& bucket = choice_.plan.buckets[b];
      choice_.buckets[b].codec = bucket.codec;
      if (bucket.codec.lossy()) {
        const CodecSpec taken = bucket.codec;
        bucket.codec = {};
        const Seconds without = evaluate_.simulated_step(choice_.plan);
        bucket.codec = taken;
        choice_.buckets[b].why =
            fmt::format("exchange {} instead of {}; without, the step {}",
                        format(with(taken, b)),
                        format(as_it_is(b)),
                        without > choice_.step ? "is " + format(without - choice_.step) + " longer"
                                               : "is as long");
      } else if (!candidates_[b].empty()) {
        choice_.buckets[b].why = "hidden: the step is as long with a codec as without";
      }
    }
  }

  const ExchangeCosts& costs_;
  const CodecPolicy& policy_;
  detail::Evaluator evaluate_;
  CodecChoice choice_;
  std::vector<std::vector<CodecSpec>> candidates_;
};

}  // namespace

CodecChoice choose_codecs(const StepProfile& profile,
                          const ExchangeCosts& costs,
                          const Plan& plan,
                          const SimulateOptions& options,
                          const CodecPolicy& policy) {
  check(policy, costs);
  return Chooser(profile, costs, plan, options, policy).choose();
}

CodecChoice plan_codecs(const StepProfile& profile,
                        const ExchangeCosts& costs,
                        const SimulateOptions& options,
                        const CodecPolicy& policy) {
  CodecChoice best =
      choose_codecs(profile, costs, plan(profile, costs, options).plan, options, policy);
  const Seconds exact_step = best.exact_step;
  for (const CodecSpec& codec : policy.allowed) {
    ExchangeCosts with = costs;
    with.all_reduce = costs.codec(codec)->curve(std::max(Bytes(1), profile.bytes()));
    CodecChoice other =
        choose_codecs(profile, costs, plan(profile, with, options).plan, options, policy);
    if (other.step < best.step * 0.999 && other.step <= exact_step * (1.0 - policy.least_gain)) {
      best = std::move(other);
      best.exact_step = exact_step;
    }
  }
  return best;
}

Plan with_codec(Plan plan, const CodecSpec& codec, const std::vector<std::string>& exact) {
  const std::vector<std::vector<TensorRange>> ranges = plan.all_ranges();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const bool encodes =
        plan.buckets[b].dtype == DType::kF32 && kept_exact(plan, ranges[b], exact) == nullptr;
    plan.buckets[b].codec = encodes ? codec : CodecSpec{};
  }
  return plan;
}

bool matches(std::string_view pattern, std::string_view name) noexcept {
  // After the last `*` that was met, what follows it is tried at every place in turn.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t after_star = std::string_view::npos;
  std::size_t retry = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      retry = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++retry;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace stretto
