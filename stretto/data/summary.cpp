// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/summary.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/data/json_reader.hpp"

namespace stretto {
namespace {

using detail::JsonValue;
using nlohmann::ordered_json;

ordered_json optional_json(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json();
}
ordered_json optional_json(std::optional<Seconds> value) {
  return value ? ordered_json(value->count()) : ordered_json();
}

/// Absent and null mean the same.
std::optional<double> read_optional(const JsonValue& root, std::string_view key) {
  const auto value = root.find(key);
  if (!value || value->is_null()) {
    return std::nullopt;
  }
  return value->number();
}
std::optional<Seconds> read_optional_seconds(const JsonValue& root, std::string_view key) {
  const auto value = read_optional(root, key);
  return value ? std::optional(Seconds(*value)) : std::nullopt;
}

std::uint32_t read_count(const JsonValue& json) {
  return static_cast<std::uint32_t>(json.integer(0, std::numeric_limits<std::uint32_t>::max()));
}

/// The enumerator with that name; the first one for names of a later version.
template <typename Enum>
Enum read_name(const JsonValue& json, Enum last) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (to_string(static_cast<Enum>(i)) == json.text()) {
      return static_cast<Enum>(i);
    }
  }
  return Enum{};
}

}  // namespace

std::string_view to_string(WaitedFor reason) noexcept {
  switch (reason) {
    case WaitedFor::kUnknown:
      return "unknown";
    case WaitedFor::kGradients:
      return "gradients";
    case WaitedFor::kLaunch:
      return "launch";
    case WaitedFor::kEarlierCommunication:
      return "earlier_communication";
  }
  return "unknown";
}

std::optional<double> Summary::exposed_ratio(const BucketSummary& bucket) const {
  Seconds shares{};
  for (const BucketSummary& each : buckets) {
    shares += each.exposed_share;
  }
  const Seconds all = std::max(exposed, shares);
  return all.count() > 0.0 ? std::optional(bucket.exposed_share / all) : std::nullopt;
}

std::optional<double> Summary::hidden_ratio() const {
  if (communication.count() > 0.0) {
    return 1.0 - exposed / communication;
  }
  return std::nullopt;
}

std::optional<double> Summary::overlap_degree() const {
  if (communication.count() > 0.0 && step.count() > 0.0) {
    return 1.0 - exposed / step;
  }
  return std::nullopt;
}

std::optional<double> Summary::communication_ratio() const {
  if (communication.count() > 0.0) {
    return communication / (communication + compute);
  }
  return std::nullopt;
}

std::optional<double> Summary::bound_gap_ratio() const {
  if (bound && bound->count() > 0.0) {
    return step / *bound - 1.0;
  }
  return std::nullopt;
}

std::string to_json(const Summary& summary) {
  ordered_json buckets = ordered_json::array();
  for (const BucketSummary& bucket : summary.buckets) {
    buckets.push_back(ordered_json{{"bucket", bucket.bucket},
                                   {"collective", to_string(bucket.collective)},
                                   {"bytes", bucket.bytes.count()},
                                   {"ready_s", optional_json(bucket.ready)},
                                   {"launched_s", bucket.launched.count()},
                                   {"started_s", bucket.started.count()},
                                   {"ended_s", bucket.ended.count()},
                                   {"exposed_s", bucket.exposed.count()},
                                   {"exposed_share_s", bucket.exposed_share.count()},
                                   {"transfer_s", bucket.transfer.count()},
                                   {"compute_left_s", optional_json(bucket.compute_left)},
                                   {"waited_for", to_string(bucket.waited_for)}});
  }
  ordered_json per_rank = ordered_json::array();
  for (const RankSummary& rank : summary.per_rank) {
    per_rank.push_back(ordered_json{{"rank", rank.rank},
                                    {"step_s", rank.step.count()},
                                    {"compute_s", rank.compute.count()},
                                    {"communication_s", rank.communication.count()},
                                    {"exposed_s", rank.exposed.count()}});
  }
  ordered_json codecs = ordered_json::array();
  for (const CodecSummary& codec : summary.codecs) {
    codecs.push_back(ordered_json{{"codec", codec.codec},
                                  {"exchanges", codec.exchanges},
                                  {"bytes", codec.bytes.count()},
                                  {"exchange_s", codec.exchange.count()},
                                  {"encode_s", codec.encode.count()},
                                  {"wire_s", codec.wire.count()},
                                  {"decode_s", codec.decode.count()}});
  }
  return detail::write_json(
      ordered_json{{"schema", "stretto.summary/1"},
                   {"steps", summary.steps},
                   {"ranks", summary.ranks},
                   {"step_s", summary.step.count()},
                   {"step_p10_s", summary.step_p10.count()},
                   {"step_p90_s", summary.step_p90.count()},
                   {"compute_s", summary.compute.count()},
                   {"communication_s", summary.communication.count()},
                   {"exposed_s", summary.exposed.count()},
                   {"first_launch_s", optional_json(summary.first_launch)},
                   {"communication_end_s", optional_json(summary.communication_end)},
                   {"launches", summary.launches},
                   {"hidden_ratio", optional_json(summary.hidden_ratio())},
                   {"overlap_degree", optional_json(summary.overlap_degree())},
                   {"communication_ratio", optional_json(summary.communication_ratio())},
                   {"bound_s", optional_json(summary.bound)},
                   {"bound_gap_ratio", optional_json(summary.bound_gap_ratio())},
                   {"samples_per_s", optional_json(summary.samples_per_s)},
                   {"scaling_efficiency", optional_json(summary.scaling_efficiency)},
                   {"buckets", std::move(buckets)},
                   {"per_rank", std::move(per_rank)},
                   {"codecs", std::move(codecs)}});
}

Summary summary_from_json(std::string_view text, std::string_view where) {
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("summary");
  Summary summary;
  summary.steps = read_count(root.at("steps"));
  summary.ranks = read_count(root.at("ranks"));
  summary.step = root.at("step_s").seconds();
  summary.step_p10 = root.at("step_p10_s").seconds();
  summary.step_p90 = root.at("step_p90_s").seconds();
  summary.compute = root.at("compute_s").seconds();
  summary.communication = root.at("communication_s").seconds();
  summary.exposed = root.at("exposed_s").seconds();
  summary.first_launch = read_optional_seconds(root, "first_launch_s");
  summary.communication_end = read_optional_seconds(root, "communication_end_s");
  summary.launches = root.at("launches").number();
  summary.bound = read_optional_seconds(root, "bound_s");
  summary.samples_per_s = read_optional(root, "samples_per_s");
  summary.scaling_efficiency = read_optional(root, "scaling_efficiency");
  // The other ratios follow from these.
  for (const JsonValue& json : root.at("buckets").elements()) {
    BucketSummary bucket;
    bucket.bucket = read_count(json.at("bucket"));
    bucket.bytes = Bytes(json.at("bytes").integer(0, std::numeric_limits<std::int64_t>::max()));
    bucket.ready = read_optional_seconds(json, "ready_s");
    bucket.launched = json.at("launched_s").seconds();
    bucket.ended = json.at("ended_s").seconds();
    bucket.exposed = json.at("exposed_s").seconds();
    // Results of versions before these were written have none.
    bucket.exposed_share = read_optional_seconds(json, "exposed_share_s").value_or(bucket.exposed);
    bucket.started = read_optional_seconds(json, "started_s").value_or(bucket.launched);
    bucket.transfer = read_optional_seconds(json, "transfer_s")
                          .value_or(std::max(Seconds(0), bucket.ended - bucket.started));
    bucket.compute_left = read_optional_seconds(json, "compute_left_s");
    if (const auto name = json.find("collective")) {
      bucket.collective = read_name<Collective>(*name, Collective::kSendRecv);
    }
    if (const auto name = json.find("waited_for")) {
      bucket.waited_for = read_name<WaitedFor>(*name, WaitedFor::kEarlierCommunication);
    }
    summary.buckets.push_back(bucket);
  }
  for (const JsonValue& json : root.at("per_rank").elements()) {
    RankSummary rank;
    rank.rank = read_count(json.at("rank"));
    rank.step = json.at("step_s").seconds();
    rank.compute = json.at("compute_s").seconds();
    rank.communication = json.at("communication_s").seconds();
    rank.exposed = json.at("exposed_s").seconds();
    summary.per_rank.push_back(rank);
  }
  if (const auto codecs = root.find("codecs")) {  // older results have none
    for (const JsonValue& json : codecs->elements()) {
      CodecSummary codec;
      codec.codec = json.at("codec").text();
      codec.exchanges = json.at("exchanges").number();
      codec.bytes = Bytes(json.at("bytes").integer(0, std::numeric_limits<std::int64_t>::max()));
      codec.exchange = json.at("exchange_s").seconds();
      codec.encode = json.at("encode_s").seconds();
      codec.wire = json.at("wire_s").seconds();
      codec.decode = json.at("decode_s").seconds();
      summary.codecs.push_back(std::move(codec));
    }
  }
  return summary;
}

}  // namespace stretto
