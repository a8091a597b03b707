// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/machine.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/data/json_reader.hpp"

namespace stretto {

using detail::JsonValue;
using nlohmann::ordered_json;

int Machine::ranks() const noexcept {
  int product = 1;
  for (const Level& level : levels) {
    product *= level.group_size;
  }
  return product;
}

std::vector<std::vector<int>> Machine::groups() const {
  std::vector<std::vector<int>> groups;
  int members = 1;
  for (std::size_t l = 0; l + 1 < levels.size(); ++l) {
    members *= levels[l].group_size;
    std::vector<int> group_of(static_cast<std::size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
      group_of[static_cast<std::size_t>(rank)] = rank / members;
    }
    groups.push_back(std::move(group_of));
  }
  return groups;
}

int Machine::level_between(int rank_a, int rank_b) const noexcept {
  int outermost = -1;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    const int size = levels[l].group_size;
    if (rank_a % size != rank_b % size) {
      outermost = static_cast<int>(l);
    }
    rank_a /= size;
    rank_b /= size;
  }
  return outermost;
}

std::string to_json(const Machine& machine) {
  ordered_json levels = ordered_json::array();
  for (const Level& level : machine.levels) {
    ordered_json json{{"name", level.name},
                      {"group_size", level.group_size},
                      {"latency_s", level.latency.count()},
                      {"bandwidth_bytes_per_s", level.bandwidth.value()}};
    if (level.in_switch_efficiency > 0.0) {
      json["in_switch_efficiency"] = level.in_switch_efficiency;
    }
    levels.push_back(std::move(json));
  }
  ordered_json document{{"schema", "stretto.machine/1"},
                        {"name", machine.name},
                        {"basis", to_string(machine.basis)},
                        {"source", machine.source},
                        {"levels", std::move(levels)}};
  if (machine.compute_slowdown != 1.0) {
    document["compute_slowdown"] = machine.compute_slowdown;
  }
  if (machine.reduction.value() > 0.0) {
    document["reduction_bytes_per_s"] = machine.reduction.value();
  }
  if (!machine.codecs.empty()) {
    ordered_json codecs = ordered_json::array();
    for (const CodecRate& rate : machine.codecs) {
      codecs.push_back(ordered_json{{"codec", to_string(rate.codec)},
                                    {"encode_bytes_per_s", rate.encode.value()},
                                    {"decode_bytes_per_s", rate.decode.value()},
                                    {"ratio", rate.ratio},
                                    {"error_ratio", rate.error}});
    }
    document["codecs"] = std::move(codecs);
  }
  if (!machine.curves.empty()) {
    ordered_json curves = ordered_json::array();
    for (const CollectiveCurve& curve : machine.curves) {
      ordered_json sizes = ordered_json::array();
      ordered_json times = ordered_json::array();
      for (const CurvePoint& point : curve.points) {
        sizes.push_back(point.size.count());
        times.push_back(point.time.count());
      }
      curves.push_back(ordered_json{{"collective", to_string(curve.collective)},
                                    {"algorithm", to_string(curve.algorithm)},
                                    {"ranks", curve.ranks},
                                    {"size_bytes", std::move(sizes)},
                                    {"time_s", std::move(times)}});
    }
    document["curves"] = std::move(curves);
  }
  return detail::write_json(document);
}

namespace {

constexpr int kMostRanks = std::numeric_limits<int>::max();

Level read_level(const JsonValue& json, int most_members) {
  json.allow_only(
      {"name", "group_size", "latency_s", "bandwidth_bytes_per_s", "in_switch_efficiency"});
  Level level;
  level.name = json.at("name").text();
  level.group_size = static_cast<int>(json.at("group_size").integer(1, most_members));
  level.latency = json.at("latency_s").seconds();
  const JsonValue bandwidth = json.at("bandwidth_bytes_per_s");
  level.bandwidth = BytesPerSecond(bandwidth.number());
  if (level.bandwidth.value() == 0.0) {
    bandwidth.fail_type("a number above zero");
  }
  if (const auto efficiency = json.find("in_switch_efficiency")) {
    level.in_switch_efficiency = efficiency->number();
    if (level.in_switch_efficiency > 1.0) {
      efficiency->fail_type("a number from 0 to 1");
    }
  }
  return level;
}

CollectiveCurve read_curve(const JsonValue& json, int machine_ranks) {
  json.allow_only({"collective", "algorithm", "ranks", "size_bytes", "time_s"});
  CollectiveCurve curve;
  const JsonValue collective = json.at("collective");
  curve.collective = collective.located([&] { return collective_from_string(collective.text()); });
  const JsonValue algorithm = json.at("algorithm");
  curve.algorithm = algorithm.located([&] { return algorithm_from_string(algorithm.text()); });
  curve.ranks = static_cast<int>(json.at("ranks").integer(2, std::max(2, machine_ranks)));
  const JsonValue size_list = json.at("size_bytes");
  const JsonValue time_list = json.at("time_s");
  const std::vector<JsonValue> sizes = size_list.elements();
  const std::vector<JsonValue> times = time_list.elements();
  if (sizes.empty()) {
    size_list.fail_type("at least one size");
  }
  if (sizes.size() != times.size()) {
    time_list.fail({"a curve has not as many times as sizes",
                    {},
                    std::to_string(times.size()),
                    std::to_string(sizes.size()),
                    {}});
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t least = i == 0 ? 1 : curve.points.back().size.count() + 1;
    const CurvePoint point{Bytes(sizes[i].integer(least, std::int64_t{1} << 56)),
                           times[i].seconds()};
    if (point.time <= Seconds(0)) {
      times[i].fail_type("a time above zero");
    }
    curve.points.push_back(point);
  }
  return curve;
}

double above_zero(const JsonValue& json) {
  const double value = json.number();
  if (value == 0.0) {
    json.fail_type("a number above zero");
  }
  return value;
}

CodecRate read_codec(const JsonValue& json) {
  json.allow_only({"codec", "encode_bytes_per_s", "decode_bytes_per_s", "ratio", "error_ratio"});
  CodecRate rate;
  const JsonValue codec = json.at("codec");
  rate.codec = codec.located([&] { return parse_codec(codec.text()); });
  if (!rate.codec.lossy()) {
    codec.fail_type("a codec; without one nothing is encoded");
  }
  rate.encode = BytesPerSecond(above_zero(json.at("encode_bytes_per_s")));
  rate.decode = BytesPerSecond(above_zero(json.at("decode_bytes_per_s")));
  rate.ratio = above_zero(json.at("ratio"));
  rate.error = json.at("error_ratio").number();
  return rate;
}

}  // namespace

Machine machine_from_json(std::string_view text, std::string_view where) {
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("machine");
  root.allow_only({"schema",
                   "name",
                   "basis",
                   "source",
                   "levels",
                   "compute_slowdown",
                   "reduction_bytes_per_s",
                   "codecs",
                   "curves"});
  Machine machine;
  machine.name = root.at("name").text();
  if (const auto basis = root.find("basis")) {
    machine.basis = basis->located([&] { return basis_from_string(basis->text()); });
  }
  if (const auto source = root.find("source")) {
    machine.source = source->text();
  }
  const JsonValue levels = root.at("levels");
  int ranks = 1;
  for (const JsonValue& json : levels.elements()) {
    machine.levels.push_back(read_level(json, kMostRanks / ranks));
    ranks *= machine.levels.back().group_size;
  }
  if (machine.levels.empty()) {
    levels.fail_type("at least one level, innermost first");
  }
  if (const auto slowdown = root.find("compute_slowdown")) {
    machine.compute_slowdown = slowdown->number();
    if (machine.compute_slowdown < 1.0) {
      slowdown->fail_type("1 (no slower) or more");
    }
  }
  if (const auto reduction = root.find("reduction_bytes_per_s")) {
    machine.reduction = BytesPerSecond(reduction->number());
  }
  if (const auto codecs = root.find("codecs")) {
    for (const JsonValue& json : codecs->elements()) {
      machine.codecs.push_back(read_codec(json));
      for (std::size_t i = 0; i + 1 < machine.codecs.size(); ++i) {
        if (machine.codecs[i].codec == machine.codecs.back().codec) {
          json.fail_type("each codec once");
        }
      }
    }
  }
  if (const auto curves = root.find("curves")) {
    for (const JsonValue& json : curves->elements()) {
      machine.curves.push_back(read_curve(json, ranks));
    }
  }
  return machine;
}

}  // namespace stretto
