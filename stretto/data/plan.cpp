// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/plan.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/hash.hpp"
#include "stretto/base/text.hpp"
#include "stretto/data/json_reader.hpp"
#include "stretto/data/shape.hpp"

namespace stretto {
namespace {

using detail::JsonValue;
using nlohmann::ordered_json;

constexpr std::size_t kDTypes = std::size(kAllDTypes);

/// The arenas of a plan: the tensors with elements of each dtype, where each ends, in order.
class Arenas {
 public:
  explicit Arenas(const std::vector<TensorSpec>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Arena& arena = arenas_.at(static_cast<std::size_t>(tensors[i].dtype));
      const std::int64_t elements = tensors[i].elements();
      if (elements > 0) {
        arena.tensors.push_back(i);
        arena.ends.push_back((arena.ends.empty() ? 0 : arena.ends.back()) + elements);
      }
    }
  }

  [[nodiscard]] std::int64_t size(DType dtype) const {
    const Arena& arena = of(dtype);
    return arena.ends.empty() ? 0 : arena.ends.back();
  }

  [[nodiscard]] std::vector<TensorRange> ranges(const Bucket& bucket) const {
    const Arena& arena = of(bucket.dtype);
    std::vector<TensorRange> ranges;
    for (std::size_t i = index_at(arena, bucket.begin); i < arena.tensors.size(); ++i) {
      const std::int64_t first = i == 0 ? 0 : arena.ends[i - 1];
      if (first >= bucket.end) {
        break;
      }
      ranges.push_back({arena.tensors[i],
                        std::max(bucket.begin, first) - first,
                        std::min(bucket.end, arena.ends[i]) - first});
    }
    return ranges;
  }

  /// The tensor that element `position` belongs to; position < size(dtype).
  [[nodiscard]] std::size_t tensor_at(DType dtype, std::int64_t position) const {
    return of(dtype).tensors.at(index_at(of(dtype), position));
  }

 private:
  struct Arena {
    std::vector<std::size_t> tensors;
    std::vector<std::int64_t> ends;
  };

  [[nodiscard]] const Arena& of(DType dtype) const {
    return arenas_.at(static_cast<std::size_t>(dtype));
  }
  static std::size_t index_at(const Arena& arena, std::int64_t position) {
    return static_cast<std::size_t>(
        std::upper_bound(arena.ends.begin(), arena.ends.end(), position) - arena.ends.begin());
  }

  std::array<Arena, kDTypes> arenas_;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t dimension : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  }
  return text + "]";
}

std::string describe(const TensorSpec& tensor) {
  return "'" + tensor.name + "' " + std::string(to_string(tensor.dtype)) + " " +
         shape_text(tensor.shape);
}

std::string describe(const Bucket& bucket) {
  return "elements [" + std::to_string(bucket.begin) + ", " + std::to_string(bucket.end) + ") of " +
         std::string(to_string(bucket.dtype)) + ", priority " + std::to_string(bucket.priority) +
         ", " + std::string(to_string(bucket.algorithm)) +
         (bucket.codec.lossy() ? ", codec " + to_string(bucket.codec) : std::string());
}

std::string bucket_name(std::size_t b) {
  return "bucket " + std::to_string(b);
}

void check_tensors(const std::vector<TensorSpec>& tensors) {
  std::int64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    const auto elements = detail::checked_elements(tensor.shape);
    if (!elements || (total += *elements) > detail::kMaxElements) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"tensor size is not possible",
                   "tensor " + quote(tensor.name),
                   "shape " + shape_text(tensor.shape),
                   "dimensions of zero or more, at most 2^56 elements in all",
                   {}});
    }
  }
}

/// Every element of one arena is in exactly one bucket.
void check_cover(const Plan& plan, const Arenas& arenas, DType dtype) {
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    if (plan.buckets[b].dtype == dtype) {
      order.push_back(b);
    }
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plan.buckets[a].begin < plan.buckets[b].begin;
  });
  const std::int64_t size = arenas.size(dtype);
  const std::string type(to_string(dtype));
  std::int64_t covered = 0;
  const auto check_gap = [&](std::int64_t next) {
    if (next > covered) {
      const std::size_t tensor = arenas.tensor_at(dtype, covered);
      throw Error(ErrorCode::kInvalidArgument,
                  {"part of a tensor is in no bucket",
                   "tensor " + quote(plan.tensors[tensor].name),
                   "no bucket for " + type + " elements [" + std::to_string(covered) + ", " +
                       std::to_string(next) + ")",
                   "every element in exactly one bucket",
                   {}});
    }
  };
  for (const std::size_t b : order) {
    const Bucket& bucket = plan.buckets[b];
    if (bucket.begin < covered || bucket.end > size) {
      throw Error(ErrorCode::kInvalidArgument,
                  {bucket.begin < covered ? "bucket overlaps another one, or begins below 0"
                                          : "bucket reaches past the last tensor",
                   bucket_name(b),
                   describe(bucket),
                   "a part of [" + std::to_string(covered) + ", " + std::to_string(size) + ")",
                   {}});
    }
    check_gap(bucket.begin);
    covered = bucket.end;
  }
  check_gap(size);
}

TensorSpec read_tensor(const JsonValue& json) {
  json.allow_only({"name", "dtype", "shape"});
  TensorSpec tensor;
  tensor.name = json.at("name").text();
  const JsonValue dtype = json.at("dtype");
  tensor.dtype = dtype.located([&] { return dtype_from_string(dtype.text()); });
  tensor.shape = json.at("shape").integers(0, detail::kMaxElements);
  return tensor;
}

Bucket read_bucket(const JsonValue& json) {
  // `bytes` and `tensors` follow from the rest: written for people, see check_derived().
  json.allow_only({"dtype",
                   "begin_element",
                   "end_element",
                   "priority",
                   "algorithm",
                   "codec",
                   "bytes",
                   "tensors"});
  Bucket bucket;
  const JsonValue dtype = json.at("dtype");
  bucket.dtype = dtype.located([&] { return dtype_from_string(dtype.text()); });
  bucket.begin = json.at("begin_element").integer(0, detail::kMaxElements);
  bucket.end = json.at("end_element").integer(0, detail::kMaxElements);
  if (const auto priority = json.find("priority")) {
    bucket.priority = static_cast<int>(
        priority->integer(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
  }
  if (const auto algorithm = json.find("algorithm")) {
    bucket.algorithm = algorithm->located([&] { return algorithm_from_string(algorithm->text()); });
  }
  if (const auto codec = json.find("codec")) {
    bucket.codec = codec->located([&] { return parse_codec(codec->text()); });
  }
  return bucket;
}

/// What a bucket says of itself for people has to be true where it is said: a plan in which
/// somebody changed `bytes`, and not the elements they follow from, would otherwise run as it was
/// before.
void check_derived(const JsonValue& json,
                   const Plan& plan,
                   const std::vector<TensorRange>& ranges,
                   const Bucket& bucket) {
  constexpr std::string_view kHelp =
      "It follows from begin_element and end_element, which count: change those, or leave it out";
  if (const auto bytes = json.find("bytes")) {
    const std::int64_t found = bytes->integer(0, std::numeric_limits<std::int64_t>::max());
    if (found != bucket.bytes().count()) {
      bytes->fail({"this is not the size of the bucket's elements",
                   {},
                   std::to_string(found),
                   std::to_string(bucket.bytes().count()) + ", of elements [" +
                       std::to_string(bucket.begin) + ", " + std::to_string(bucket.end) + ") of " +
                       std::string(to_string(bucket.dtype)),
                   std::string(kHelp)});
    }
  }
  if (const auto names = json.find("tensors")) {
    const std::vector<JsonValue> found = names->elements();
    for (std::size_t i = 0; i < std::max(found.size(), ranges.size()); ++i) {
      const std::string is = i < found.size() ? quote(found[i].text()) : "no more";
      const std::string should =
          i < ranges.size() ? quote(plan.tensors[ranges[i].tensor].name) : "no more";
      if (i >= found.size() || i >= ranges.size() ||
          found[i].text() != plan.tensors[ranges[i].tensor].name) {
        (i < found.size() ? found[i] : *names)
            .fail({"this tensor is not what the bucket's elements are of",
                   {},
                   is,
                   should,
                   std::string(kHelp)});
      }
    }
  }
}

}  // namespace

std::int64_t TensorSpec::elements() const noexcept {
  return detail::checked_elements(shape).value_or(0);
}

void Plan::validate() const {
  check_tensors(tensors);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (buckets[b].end <= buckets[b].begin) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"bucket is empty", bucket_name(b), describe(buckets[b]), "begin < end", {}});
    }
    if (buckets[b].codec.lossy() && buckets[b].dtype != DType::kF32) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"codecs are for gradients of f32",
                   bucket_name(b),
                   describe(buckets[b]),
                   "codec none for this bucket",
                   {}});
    }
  }
  const Arenas arenas(tensors);
  for (const DType dtype : kAllDTypes) {
    check_cover(*this, arenas, dtype);
  }
}

std::uint64_t Plan::hash() const {
  // Names of enumerators, not their numbers: these may change between versions.
  Hasher hasher;
  hasher.add("stretto.plan/1").add(std::uint64_t{tensors.size()});
  for (const TensorSpec& tensor : tensors) {
    hasher.add(tensor.name).add(to_string(tensor.dtype)).add(std::uint64_t{tensor.shape.size()});
    for (const std::int64_t dimension : tensor.shape) {
      hasher.add(static_cast<std::uint64_t>(dimension));
    }
  }
  hasher.add(std::uint64_t{buckets.size()});
  for (const Bucket& bucket : buckets) {
    hasher.add(to_string(bucket.dtype))
        .add(static_cast<std::uint64_t>(bucket.begin))
        .add(static_cast<std::uint64_t>(bucket.end))
        .add(static_cast<std::uint64_t>(std::int64_t{bucket.priority}))
        .add(to_string(bucket.algorithm));
    if (bucket.codec.lossy()) {  // plans without codecs keep the hash they have had
      hasher.add("codec").add(to_string(bucket.codec));
    }
  }
  return hasher.digest();
}

std::vector<std::int64_t> Plan::offsets() const {
  std::array<std::int64_t, kDTypes> next{};
  std::vector<std::int64_t> offsets;
  offsets.reserve(tensors.size());
  for (const TensorSpec& tensor : tensors) {
    std::int64_t& offset = next.at(static_cast<std::size_t>(tensor.dtype));
    offsets.push_back(offset);
    offset += tensor.elements();
  }
  return offsets;
}

std::vector<TensorRange> Plan::ranges(std::size_t b) const {
  return Arenas(tensors).ranges(buckets.at(b));
}

std::vector<std::vector<TensorRange>> Plan::all_ranges() const {
  const Arenas arenas(tensors);
  std::vector<std::vector<TensorRange>> all;
  all.reserve(buckets.size());
  for (const Bucket& bucket : buckets) {
    all.push_back(arenas.ranges(bucket));
  }
  return all;
}

Bytes Plan::bytes() const noexcept {
  return std::accumulate(
      tensors.begin(), tensors.end(), Bytes{}, [](Bytes sum, const TensorSpec& tensor) {
        return sum + tensor.bytes();
      });
}

PlanDifference difference(const Plan& expected, const Plan& found) {
  const auto count = [](std::size_t n) { return std::to_string(n); };
  for (std::size_t i = 0; i < std::min(expected.tensors.size(), found.tensors.size()); ++i) {
    const TensorSpec& a = expected.tensors[i];
    const TensorSpec& b = found.tensors[i];
    if (a == b) {
      continue;
    }
    if (a.name != b.name) {
      return {"tensor " + count(i), describe(a), describe(b)};
    }
    const std::string where = "tensor '" + a.name + "'";
    return a.dtype != b.dtype
               ? PlanDifference{where,
                                "dtype " + std::string(to_string(a.dtype)),
                                "dtype " + std::string(to_string(b.dtype))}
               : PlanDifference{
                     where, "shape " + shape_text(a.shape), "shape " + shape_text(b.shape)};
  }
  if (expected.tensors.size() != found.tensors.size()) {
    const std::size_t first = std::min(expected.tensors.size(), found.tensors.size());
    const auto there = [&](const Plan& plan) {
      return (first < plan.tensors.size() ? describe(plan.tensors[first]) : "none") + " (of " +
             count(plan.tensors.size()) + " tensors)";
    };
    return {"tensor " + count(first), there(expected), there(found)};
  }
  for (std::size_t b = 0; b < std::min(expected.buckets.size(), found.buckets.size()); ++b) {
    if (!(expected.buckets[b] == found.buckets[b])) {
      return {bucket_name(b), describe(expected.buckets[b]), describe(found.buckets[b])};
    }
  }
  if (expected.buckets.size() != found.buckets.size()) {
    return {"number of buckets", count(expected.buckets.size()), count(found.buckets.size())};
  }
  return {};
}

std::string to_json(const Plan& plan) {
  ordered_json tensors = ordered_json::array();
  for (const TensorSpec& tensor : plan.tensors) {
    tensors.push_back(ordered_json{
        {"name", tensor.name}, {"dtype", to_string(tensor.dtype)}, {"shape", tensor.shape}});
  }
  const Arenas arenas(plan.tensors);
  ordered_json buckets = ordered_json::array();
  for (const Bucket& bucket : plan.buckets) {
    ordered_json names = ordered_json::array();
    for (const TensorRange& range : arenas.ranges(bucket)) {
      names.push_back(plan.tensors[range.tensor].name);
    }
    ordered_json json{{"dtype", to_string(bucket.dtype)},
                      {"begin_element", bucket.begin},
                      {"end_element", bucket.end},
                      {"priority", bucket.priority},
                      {"algorithm", to_string(bucket.algorithm)}};
    if (bucket.codec.lossy()) {
      json["codec"] = to_string(bucket.codec);
    }
    json["bytes"] = bucket.bytes().count();
    json["tensors"] = std::move(names);
    buckets.push_back(std::move(json));
  }
  return detail::write_json(ordered_json{{"schema", "stretto.plan/1"},
                                         {"origin", plan.origin},
                                         {"tensors", std::move(tensors)},
                                         {"buckets", std::move(buckets)}});
}

Plan plan_from_json(std::string_view text, std::string_view where) {
  const nlohmann::json document = detail::parse_json(text, where);
  const JsonValue root(document, where, "");
  root.check_schema("plan");
  // `evidence` is what a tuner found out about the plan: for people and other programs.
  root.allow_only({"schema", "origin", "tensors", "buckets", "evidence"});
  Plan plan;
  if (const auto origin = root.find("origin")) {
    plan.origin = origin->text();
  }
  for (const JsonValue& tensor : root.at("tensors").elements()) {
    plan.tensors.push_back(read_tensor(tensor));
  }
  const std::vector<JsonValue> buckets = root.at("buckets").elements();
  for (const JsonValue& bucket : buckets) {
    plan.buckets.push_back(read_bucket(bucket));
  }
  plan.validate();
  const Arenas arenas(plan.tensors);
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    check_derived(buckets[b], plan, arenas.ranges(plan.buckets[b]), plan.buckets[b]);
  }
  return plan;
}

}  // namespace stretto
