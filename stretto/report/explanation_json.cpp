// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "stretto/report/explanation.hpp"

namespace stretto {
namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::optional<BytesPerSecond>& rate) {
  return rate ? ordered_json(rate->value()) : ordered_json();
}
ordered_json or_null(const std::optional<Seconds>& time) {
  return time ? ordered_json(time->count()) : ordered_json();
}

ordered_json collectives_json(const CollectiveReport& report) {
  ordered_json list = ordered_json::array();
  for (const CollectiveSummary& kind : report.kinds) {
    list.push_back({{"collective", to_string(kind.collective)},
                    {"name", kind.name},
                    {"group", kind.group.empty() ? ordered_json() : ordered_json(kind.group)},
                    {"group_size", kind.group_size},
                    {"bytes", kind.bytes.count()},
                    {"count", kind.count},
                    {"total_s", kind.total.count()},
                    {"least_s", kind.duration_least.count()},
                    {"median_s", kind.duration_median.count()},
                    {"p90_s", kind.duration_p90.count()},
                    {"most_s", kind.duration_most.count()},
                    {"transfer_s", kind.transfer.count()},
                    {"matched", kind.matched},
                    {"algbw_bytes_per_s", or_null(kind.algorithm_bandwidth)},
                    {"busbw_bytes_per_s", or_null(kind.bus_bandwidth)}});
  }
  return list;
}

ordered_json modules_json(const std::vector<ModuleSummary>& modules) {
  ordered_json list = ordered_json::array();
  for (const ModuleSummary& module : modules) {
    list.push_back({{"module", module.module},
                    {"collective", to_string(module.collective)},
                    {"calls", module.calls},
                    {"bytes", module.bytes.count()},
                    {"total_s", module.total.count()},
                    {"exposed_share_s", module.exposed_share.count()}});
  }
  return list;
}

ordered_json stragglers_json(const CollectiveReport& report) {
  ordered_json list = ordered_json::array();
  for (const RankWaiting& rank : report.ranks) {
    list.push_back({{"rank", rank.rank},
                    {"waited_s", rank.waited.count()},
                    {"last", rank.last},
                    {"made_others_wait_s", rank.made_others_wait.count()}});
  }
  return list;
}

ordered_json all_to_all_json(const std::optional<AllToAllBalance>& balance) {
  if (!balance) {
    return {};
  }
  ordered_json ranks = ordered_json::array();
  for (const AllToAllRank& rank : balance->ranks) {
    ranks.push_back(
        {{"rank", rank.rank},
         {"calls", rank.calls},
         {"sent_bytes", rank.sent.count()},
         {"received_bytes", rank.received ? ordered_json(rank.received->count()) : ordered_json()},
         {"bytes", rank.bytes.count()},
         {"total_s", rank.total.count()}});
  }
  return {{"max_over_mean", balance->max_over_mean},
          {"max_over_mean_per_call",
           balance->max_over_mean_per_call ? ordered_json(*balance->max_over_mean_per_call)
                                           : ordered_json()},
          {"ranks", std::move(ranks)}};
}

ordered_json diagnoses_json(const Explanation& explanation) {
  ordered_json list = ordered_json::array();
  for (const Diagnosis& diagnosis : explanation.diagnoses) {
    list.push_back({{"id", diagnosis.id},
                    {"weight", to_string(diagnosis.weight)},
                    {"finding", diagnosis.finding},
                    {"evidence", diagnosis.evidence},
                    {"threshold", diagnosis.threshold},
                    {"advice", diagnosis.advice}});
  }
  return list;
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  ordered_json summary;
  ordered_json buckets = ordered_json::array();
  if (explanation.summary) {
    summary = ordered_json::parse(to_json(*explanation.summary));
    if (!explanation.has_communication()) {
      // Undefined is not zero.
      summary["exposed_s"] = nullptr;
      summary["communication_s"] = nullptr;
    }
    buckets = summary["buckets"];
  }
  ordered_json fit;
  if (explanation.fitted) {
    const double per_byte = explanation.fitted->cost.seconds_per_byte;
    fit = {
        {"latency_s", explanation.fitted->cost.latency.count()},
        {"bandwidth_bytes_per_s", per_byte > 0.0 ? ordered_json(1.0 / per_byte) : ordered_json()},
        {"sizes", explanation.fitted->sizes},
        {"of_halves", explanation.fitted->of_halves},
        {"median_error_ratio",
         explanation.fitted->median_error ? ordered_json(*explanation.fitted->median_error)
                                          : ordered_json()}};
  }
  ordered_json slowdown;
  if (explanation.slowdown) {
    slowdown = {{"factor", explanation.slowdown->factor},
                {"kernels", explanation.slowdown->kernels},
                {"same_position", explanation.slowdown->same_position},
                {"extra_s", explanation.slowdown->extra.count()},
                {"compute_without_s",
                 explanation.slowdown->compute_without
                     ? ordered_json(explanation.slowdown->compute_without->count())
                     : ordered_json()}};
  }
  ordered_json certificate;
  if (explanation.certificate) {
    const Certificate& c = *explanation.certificate;
    certificate = {{"sharded", c.sharded},
                   {"exposed_now_s", c.exposed_now.count()},
                   {"exposed_model_s", c.exposed_model.count()},
                   {"exposed_best_s", c.exposed_best.count()},
                   {"exposed_bound_s", c.exposed_bound.count()},
                   {"recoverable_s", c.recoverable.count()},
                   {"settings", c.settings.text},
                   {"assumptions", c.assumptions}};
  }
  const ordered_json document = {
      {"verdict", verdict(explanation)},
      {"host_only", explanation.host_only},
      {"summary", std::move(summary)},
      {"least_exposed_s", or_null(explanation.least_exposed())},
      {"buckets", std::move(buckets)},
      {"modules", modules_json(explanation.modules)},
      {"collectives", collectives_json(explanation.collectives)},
      {"matched", explanation.collectives.matched},
      {"unmatched", explanation.collectives.unmatched},
      {"stragglers", stragglers_json(explanation.collectives)},
      {"all_to_all", all_to_all_json(explanation.collectives.all_to_all)},
      {"fit", std::move(fit)},
      {"certificate", std::move(certificate)},
      {"slowdown", std::move(slowdown)},
      {"diagnoses", diagnoses_json(explanation)}};
  return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace stretto
