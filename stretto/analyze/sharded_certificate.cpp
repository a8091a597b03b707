// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/sharded_certificate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stretto/analyze/activity.hpp"
#include "stretto/analyze/buckets.hpp"
#include "stretto/analyze/steps.hpp"

namespace stretto::detail {
namespace {

constexpr int kMostAhead = 4;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// One collective. Places are in the step without what is exposed: how much else was done before.
struct Travel {
  bool gather = false;
  std::int64_t bytes = 0;
  double cost_s = 0.0;
  double asked_s =
      0.0;  ///< Of a gather, when it began; of a scatter, when its gradients were there.
  double needed_s = 0.0;  ///< What was done until here needed no result of it.
  bool movable = true;    ///< Of a gather: its parameters are not those that the optimizer changes.
};

struct Recorded {
  std::vector<Travel> travels;  // by begin
  double length_s = 0.0;        // of the step without what is exposed
  double gradients_needed_s = 0.0;
};

std::optional<Recorded> recorded_of(const Timeline& timeline,
                                    const Summary& summary,
                                    const ExchangeCosts& costs) {
  constexpr double kFew = 0.05;  // norms and losses, not a replica's gradients
  const Activities activities(timeline);
  const Buckets buckets = summarize_buckets(whole_steps(timeline, activities), activities);
  Recorded recorded;
  recorded.length_s = (summary.step - summary.exposed).count();
  double reduced = 0.0;
  double scattered = 0.0;
  double scatters_end_s = 0.0;
  bool gathers = false;
  std::vector<std::pair<double, Travel>> by_begin;
  for (std::size_t i = 0; i < buckets.summaries.size(); ++i) {
    const BucketSummary& bucket = buckets.summaries[i];
    const auto bytes = static_cast<double>(bucket.bytes.count());
    if (bucket.collective == Collective::kAllReduce) {
      reduced += bytes;
      continue;
    }
    Travel travel;
    travel.gather = bucket.collective == Collective::kAllGather;
    if (!travel.gather && bucket.collective != Collective::kReduceScatter) {
      continue;
    }
    if (bucket.bytes == Bytes(0)) {
      return std::nullopt;
    }
    travel.bytes = bucket.bytes.count();
    travel.cost_s = (travel.gather ? costs.all_gather : costs.reduce_scatter)(bucket.bytes).count();
    travel.asked_s =
        (travel.gather ? buckets.started_at_best[i] : buckets.ready_at_best[i]).count();
    travel.needed_s = std::min(buckets.ended_at_best[i].count(), recorded.length_s);
    if (travel.gather) {
      gathers = true;
    } else {
      scattered += bytes;
      scatters_end_s = std::max(scatters_end_s, bucket.ended.count());
      recorded.gradients_needed_s = std::max(recorded.gradients_needed_s, travel.needed_s);
    }
    by_begin.emplace_back(bucket.started.count(), travel);
  }
  if (!gathers || scattered == 0.0 || reduced > kFew * scattered) {
    return std::nullopt;
  }
  std::stable_sort(by_begin.begin(), by_begin.end(), [](const auto& a, const auto& b) {
    return a.first < b.first;
  });
  for (auto& [started_s, travel] : by_begin) {
    // ZeRO-1 and 2 gather what the optimizer has made of the gradients.
    travel.movable = started_s < scatters_end_s;
    recorded.travels.push_back(travel);
  }
  return recorded;
}

/// With each gather asked for when that `ahead` of them before it is needed; 0: as it was.
std::vector<Travel> ask_ahead(std::vector<Travel> travels, int ahead) {
  std::vector<double> needed_s;
  for (Travel& travel : travels) {
    if (!travel.gather || !travel.movable || ahead == 0) {
      continue;
    }
    const std::size_t place = needed_s.size();
    needed_s.push_back(travel.needed_s);
    const auto back = static_cast<std::size_t>(ahead);
    travel.asked_s = std::min(travel.asked_s, place < back ? 0.0 : needed_s[place - back]);
  }
  return travels;
}

/// One wire, which takes gathers in their order before scatters in theirs, and a device that stands
/// where what it needs has not come.
class Step {
 public:
  explicit Step(const std::vector<Travel>& travels)
      : travels_(travels), issued_s_(travels.size(), kNever), ended_s_(travels.size(), kNever) {}

  /// Seconds that are exposed.
  [[nodiscard]] double exposed_s(double length_s, double gradients_needed_s) {
    enum class What : std::uint8_t { kAsked, kNeeded, kGradients, kEnd };
    struct Event {
      double at_s;
      What what;
      std::size_t travel;
    };
    std::vector<Event> events = {{gradients_needed_s, What::kGradients, 0},
                                 {length_s, What::kEnd, 0}};
    for (std::size_t i = 0; i < travels_.size(); ++i) {
      events.push_back({std::min(travels_[i].asked_s, length_s), What::kAsked, i});
      if (travels_[i].gather) {
        events.push_back({std::max(travels_[i].needed_s, travels_[i].asked_s), What::kNeeded, i});
      }
    }
    std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
      return std::pair(a.at_s, a.what) < std::pair(b.at_s, b.what);
    });
    for (const Event& event : events) {
      const double now_s = std::min(event.at_s, length_s) + stood_s_;
      if (event.what == What::kAsked) {
        issued_s_[event.travel] = now_s;
      } else if (event.what == What::kNeeded) {
        wait(event.travel, now_s);
      } else {
        for (std::size_t i = 0; i < travels_.size(); ++i) {
          if (issued_s_[i] < kNever && (event.what == What::kEnd || !travels_[i].gather)) {
            wait(i, std::min(event.at_s, length_s) + stood_s_);
          }
        }
      }
    }
    return stood_s_;
  }

 private:
  void wait(std::size_t travel, double now_s) {
    while (ended_s_[travel] == kNever) {
      carry_next();
    }
    stood_s_ += std::max(0.0, ended_s_[travel] - now_s);
  }

  void carry_next() {
    double first_s = kNever;
    for (std::size_t i = 0; i < travels_.size(); ++i) {
      first_s = ended_s_[i] == kNever ? std::min(first_s, issued_s_[i]) : first_s;
    }
    const double at_s = std::max(free_s_, first_s);
    std::size_t next = travels_.size();
    for (std::size_t i = 0; i < travels_.size(); ++i) {
      const bool waits = ended_s_[i] == kNever && issued_s_[i] <= at_s;
      if (waits && (next == travels_.size() || (travels_[i].gather && !travels_[next].gather))) {
        next = i;
      }
    }
    free_s_ = at_s + travels_[next].cost_s;
    ended_s_[next] = free_s_;
  }

  const std::vector<Travel>& travels_;
  std::vector<double> issued_s_;
  std::vector<double> ended_s_;
  double free_s_ = 0.0;
  double stood_s_ = 0.0;
};

double exposed_with(const Recorded& recorded, int ahead) {
  const std::vector<Travel> travels = ask_ahead(recorded.travels, ahead);
  return Step(travels).exposed_s(recorded.length_s, recorded.gradients_needed_s);
}

/// Before the first parameters nothing that needs them runs, and behind the last gradients they
/// travel alone. What lies between may be hidden, for all that a trace says.
double least_exposed(const Recorded& recorded, const ExchangeCosts& costs) {
  double first_s = 0.0;
  for (const Travel& travel : recorded.travels) {
    if (travel.gather) {
      first_s = std::max(0.0, travel.cost_s - travel.needed_s);
      break;
    }
  }
  std::vector<const Travel*> scatters;
  for (const Travel& travel : recorded.travels) {
    if (!travel.gather) {
      scatters.push_back(&travel);
    }
  }
  std::stable_sort(scatters.begin(), scatters.end(), [](const Travel* a, const Travel* b) {
    return a->asked_s < b->asked_s;
  });
  // All but the last byte of each may have been ready with the one before.
  std::vector<ReadyBytes> gradients;
  Bytes total;
  Seconds before{};
  for (const Travel* scatter : scatters) {
    gradients.push_back({before, Bytes(scatter->bytes - 1)});
    gradients.push_back({Seconds(scatter->asked_s), Bytes(1)});
    total += Bytes(scatter->bytes);
    before = Seconds(scatter->asked_s);
  }
  const Seconds end = release_bound(gradients, exchange_floor(costs.reduce_scatter, total, 1));
  return std::max(0.0, first_s + std::max(0.0, end.count() - recorded.length_s));
}

std::string lines_for(int ahead) {
  return fmt::format(
      "# FSDP2 (fully_shard): ask for the parameters of {0} module{1} ahead. It keeps as many "
      "more\n"
      "# in memory. `layers` are the modules that fully_shard() was called on, in order.\n"
      "for i, layer in enumerate(layers):\n"
      "    layer.set_modules_to_forward_prefetch(layers[i + 1 : i + {2}])\n"
      "    layer.set_modules_to_backward_prefetch(layers[max(0, i - {0}) : i][::-1])\n",
      ahead,
      ahead == 1 ? "" : "s",
      ahead + 1);
}

}  // namespace

std::optional<Certificate> certify_sharded(const Timeline& timeline,
                                           const Summary& summary,
                                           const ExchangeCosts& costs) {
  constexpr double kAsGood = 0.01;
  constexpr double kCannotBe = 1.1;
  const std::optional<Recorded> recorded = recorded_of(timeline, summary, costs);
  if (!recorded) {
    return std::nullopt;
  }
  const double now_s = exposed_with(*recorded, 0);
  if (recorded->length_s + now_s > summary.step.count() * kCannotBe) {
    return std::nullopt;
  }
  double best_s = now_s;
  int best = 0;
  for (int ahead = 1; ahead <= kMostAhead; ++ahead) {
    const double exposed_s = exposed_with(*recorded, ahead);
    if (exposed_s < best_s - kAsGood * now_s) {  // more ahead is more memory
      best_s = exposed_s;
      best = ahead;
    }
  }
  Certificate certificate;
  certificate.sharded = true;
  certificate.exposed_now = summary.exposed;
  certificate.exposed_model = Seconds(now_s);
  certificate.exposed_best = Seconds(best_s);
  certificate.exposed_bound = Seconds(std::min(least_exposed(*recorded, costs), best_s));
  certificate.recoverable = std::clamp(Seconds(now_s - best_s), Seconds(0), summary.exposed);
  certificate.settings.framework = Framework::kFsdp;
  certificate.settings.step = Seconds(recorded->length_s + best_s);
  certificate.settings.text =
      best == 0 ? "# none: to ask for parameters earlier saves nothing here\n" : lines_for(best);
  certificate.assumptions =
      "the best order is a model: one wire, gathers before scatters, each gather needed where the "
      "recorded one ended, gradients ready as recorded; the bound is claimed for the first gather "
      "and what follows the last gradients only, since no trace says which compute needs which "
      "gather";
  return certificate;
}

}  // namespace stretto::detail
