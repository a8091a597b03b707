// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/codecs.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/intervals.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/data/codec_records.hpp"

namespace stretto::detail {
namespace {

/// What a record's name says.
struct Named {
  std::size_t codec = 0;
  bool encodes = false;
};

/// What one codec did on one rank in one step.
struct Done {
  std::vector<Interval> encode;
  std::vector<Interval> decode;
  std::set<std::uint32_t> buckets;
};
using StepOfRank = std::pair<std::uint32_t, std::uint32_t>;  // step, rank

/// In one step, means over ranks.
struct Numbers {
  double exchanges = 0.0;
  double bytes = 0.0;
  double exchange_ns = 0.0;
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double wire_ns = 0.0;
};

/// The names of a timeline that speak of codecs; `codecs` gets those codecs.
std::map<std::uint32_t, Named> named_in(const Timeline& timeline,
                                        std::vector<std::string>& codecs) {
  std::map<std::uint32_t, Named> names;
  for (std::size_t i = 0; i < timeline.names.size(); ++i) {
    for (const bool encodes : {true, false}) {
      const std::optional<std::string_view> codec =
          codec_of_record(timeline.names[i], encodes ? kEncodeRecord : kDecodeRecord);
      if (codec) {
        const auto known = std::find(codecs.begin(), codecs.end(), *codec);
        const auto index = static_cast<std::size_t>(known - codecs.begin());
        if (known == codecs.end()) {
          codecs.emplace_back(*codec);
        }
        names.emplace(static_cast<std::uint32_t>(i), Named{index, encodes});
      }
    }
  }
  return names;
}

void add(Numbers& sum, const RankStep& rank, const Done& done) {
  std::vector<Interval> exchanges;
  for (const Record* const record : rank.records) {
    if (record->kind == RecordKind::kCommunication && done.buckets.contains(record->bucket)) {
      exchanges.push_back({record->begin_ns, record->end_ns});
      sum.exchanges += 1.0;
      sum.bytes += static_cast<double>(record->bytes);
    }
  }
  const IntervalSet all(std::move(exchanges));
  const IntervalSet encode = intersect(all, IntervalSet(done.encode));
  const IntervalSet decode = intersect(all, IntervalSet(done.decode));
  sum.exchange_ns += static_cast<double>(all.measure_ns());
  sum.encode_ns += static_cast<double>(encode.measure_ns());
  sum.decode_ns += static_cast<double>(decode.measure_ns());
  sum.wire_ns += static_cast<double>(subtract(all, unite(encode, decode)).measure_ns());
}

}  // namespace

std::vector<CodecSummary> summarize_codecs(const Timeline& timeline,
                                           const std::vector<Step>& steps) {
  std::vector<std::string> codecs;
  const std::map<std::uint32_t, Named> names = named_in(timeline, codecs);
  if (names.empty()) {
    return {};
  }
  std::vector<std::map<StepOfRank, Done>> done(codecs.size());
  for (const Record& record : timeline.records) {
    if (record.kind != RecordKind::kAnnotation || record.lane != Lane::kCommunication) {
      continue;
    }
    if (const auto named = names.find(record.name); named != names.end()) {
      Done& of = done[named->second.codec][{record.step, record.rank}];
      (named->second.encodes ? of.encode : of.decode).push_back({record.begin_ns, record.end_ns});
      of.buckets.insert(record.bucket);
    }
  }
  std::vector<CodecSummary> summaries;
  for (std::size_t c = 0; c < codecs.size(); ++c) {
    std::vector<Numbers> series;
    for (const Step& step : steps) {
      Numbers sum;
      for (const RankStep& rank : step.ranks) {
        if (const auto found = done[c].find({step.number, rank.rank}); found != done[c].end()) {
          add(sum, rank, found->second);
        }
      }
      if (sum.exchanges > 0.0) {
        const auto ranks = static_cast<double>(step.ranks.size());
        series.push_back({sum.exchanges / ranks,
                          sum.bytes / ranks,
                          sum.exchange_ns / ranks,
                          sum.encode_ns / ranks,
                          sum.decode_ns / ranks,
                          sum.wire_ns / ranks});
      }
    }
    if (series.empty()) {
      continue;
    }
    const auto median_of = [&](double Numbers::*field) {
      std::vector<double> values;
      values.reserve(series.size());
      for (const Numbers& one : series) {
        values.push_back(one.*field);
      }
      return median(values);
    };
    const auto seconds_of = [&](double Numbers::*field) { return Seconds(median_of(field) / 1e9); };
    summaries.push_back({codecs[c],
                         median_of(&Numbers::exchanges),
                         Bytes(static_cast<std::int64_t>(median_of(&Numbers::bytes))),
                         seconds_of(&Numbers::exchange_ns),
                         seconds_of(&Numbers::encode_ns),
                         seconds_of(&Numbers::decode_ns),
                         seconds_of(&Numbers::wire_ns)});
  }
  return summaries;
}

}  // namespace stretto::detail
