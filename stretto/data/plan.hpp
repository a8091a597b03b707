// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/dtype.hpp"
#include "stretto/base/units.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// A tensor whose gradient travels.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  /// 1 for a scalar; 0 for a shape that Plan::validate() rejects.
  [[nodiscard]] std::int64_t elements() const noexcept;
  [[nodiscard]] Bytes bytes() const noexcept {
    return Bytes(elements() * static_cast<std::int64_t>(size_of(dtype)));
  }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

/// Elements [begin, end) of the arena of `dtype`: what travels as one exchange. All tensors of one
/// dtype lie in that arena one after the other, in the plan's order and without padding, so a
/// bucket may begin or end inside a tensor.
struct Bucket {
  DType dtype = DType::kF32;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  int priority = 0;  ///< Higher overtakes lower at segment boundaries.
  Algorithm algorithm = Algorithm::kAuto;
  CodecSpec codec = {};  ///< Of buckets of f32 only.
  [[nodiscard]] Bytes bytes() const noexcept {
    return Bytes((end - begin) * static_cast<std::int64_t>(size_of(dtype)));
  }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// Part of a bucket: elements [begin, end) of tensor number `tensor`.
struct TensorRange {
  std::size_t tensor = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// How the gradients travel. Plain data: print it, save it, edit it by hand.
struct Plan {
  std::string origin;               ///< For people: which rule made it. Not hashed.
  std::vector<TensorSpec> tensors;  ///< In backward order: the order in which they become ready.
  std::vector<Bucket> buckets;      ///< In launch order.

  /// Every element of every tensor in exactly one bucket, no empty bucket, codecs for f32 only.
  /// @throws Error kInvalidArgument naming the first bucket or tensor that breaks this.
  void validate() const;

  /// xxh64 over all fields but `origin`. Ranks compare it once, when a plan is installed.
  [[nodiscard]] std::uint64_t hash() const;

  /// First element of tensor i in its dtype's arena.
  [[nodiscard]] std::vector<std::int64_t> offsets() const;
  /// Which parts of which tensors bucket b holds, in order.
  [[nodiscard]] std::vector<TensorRange> ranges(std::size_t b) const;
  /// The same of all buckets, in the time of one pass over the tensors.
  [[nodiscard]] std::vector<std::vector<TensorRange>> all_ranges() const;
  [[nodiscard]] Bytes bytes() const noexcept;
};

/// In words: the first difference between two plans, as "tensor 'fc2.weight': shape [512, 10]"
/// against the same for `found`. Both empty when the plans hash alike.
struct PlanDifference {
  std::string where;
  std::string expected;
  std::string found;
};
[[nodiscard]] PlanDifference difference(const Plan& expected, const Plan& found);

/// Schema `stretto.plan/1`. Buckets carry their bytes and tensor names too, for the reader's eyes.
[[nodiscard]] std::string to_json(const Plan& plan);
/// Key `evidence`, which `stretto tune` adds, may hold anything and is not read.
/// @throws Error kParse (unknown keys are errors with the nearest known key) or what validate()
/// throws.
[[nodiscard]] Plan plan_from_json(std::string_view text, std::string_view where);

}  // namespace stretto
