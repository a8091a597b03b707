// SPDX-License-Identifier: Apache-2.0
#include "stretto/plan/fixed_plans.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

// Each is an exchange of its own: more cannot be meant.
constexpr std::int64_t kMostBuckets = 1 << 20;

void check_cap(Bytes cap) {
  if (cap <= Bytes(0)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"bucket cap is not possible", {}, format(cap), "at least one byte", {}});
  }
}

/// Cuts each dtype's arena into buckets while tensors are added in backward order.
class PlanBuilder {
 public:
  PlanBuilder(std::string origin, std::vector<TensorSpec> tensors) {
    plan_.origin = std::move(origin);
    plan_.tensors = std::move(tensors);
  }

  [[nodiscard]] const std::vector<TensorSpec>& tensors() const { return plan_.tensors; }

  /// Appends to the open bucket of `dtype`.
  void add(DType dtype, std::int64_t elements, std::size_t tensor) {
    Arena& arena = of(dtype);
    arena.filled += elements;
    arena.last_tensor = elements > 0 ? tensor : arena.last_tensor;
  }

  [[nodiscard]] std::int64_t open_elements(DType dtype) {
    return of(dtype).filled - of(dtype).closed;
  }
  [[nodiscard]] Bytes open_bytes(DType dtype) {
    return Bytes(open_elements(dtype) * static_cast<std::int64_t>(size_of(dtype)));
  }
  [[nodiscard]] std::size_t closed_buckets(DType dtype) { return of(dtype).buckets; }

  /// Closes the open bucket of `dtype`; nothing happens if it holds no elements.
  void close(DType dtype) {
    Arena& arena = of(dtype);
    if (arena.filled > arena.closed) {
      closed_.push_back(
          {arena.last_tensor, {dtype, arena.closed, arena.filled, 0, Algorithm::kAuto}});
      arena.closed = arena.filled;
      ++arena.buckets;
    }
  }

  /// Closes what is open, and orders buckets by when they become complete.
  [[nodiscard]] Plan finish() {
    for (const DType dtype : kAllDTypes) {
      close(dtype);
    }
    std::stable_sort(closed_.begin(), closed_.end(), [](const Closed& a, const Closed& b) {
      return a.last_tensor < b.last_tensor;
    });
    for (const Closed& closed : closed_) {
      plan_.buckets.push_back(closed.bucket);
    }
    return std::move(plan_);
  }

 private:
  struct Arena {
    std::int64_t filled = 0;
    std::int64_t closed = 0;
    std::size_t buckets = 0;
    std::size_t last_tensor = 0;
  };
  struct Closed {
    std::size_t last_tensor = 0;
    Bucket bucket;
  };
  Arena& of(DType dtype) { return arenas_.at(static_cast<std::size_t>(dtype)); }

  Plan plan_;
  std::vector<Closed> closed_;
  std::array<Arena, std::size(kAllDTypes)> arenas_{};
};

Plan split_plan(PlanBuilder builder, Bytes cap) {
  for (std::size_t i = 0; i < builder.tensors().size(); ++i) {
    const DType dtype = builder.tensors()[i].dtype;
    const std::int64_t most =
        std::max<std::int64_t>(1, cap.count() / static_cast<std::int64_t>(size_of(dtype)));
    for (std::int64_t left = builder.tensors()[i].elements(); left > 0;) {
      const std::int64_t part = std::min(left, most - builder.open_elements(dtype));
      builder.add(dtype, part, i);
      left -= part;
      if (builder.open_elements(dtype) == most) {
        builder.close(dtype);
      }
    }
  }
  return builder.finish();
}

Plan whole_tensor_plan(PlanBuilder builder, Bytes cap) {
  for (std::size_t i = 0; i < builder.tensors().size(); ++i) {
    const TensorSpec& tensor = builder.tensors()[i];
    if (builder.open_bytes(tensor.dtype) + tensor.bytes() > cap) {
      builder.close(tensor.dtype);
    }
    builder.add(tensor.dtype, tensor.elements(), i);
  }
  return builder.finish();
}

}  // namespace

Plan single_bucket_plan(std::vector<TensorSpec> tensors) {
  PlanBuilder builder("one bucket per dtype", std::move(tensors));
  for (std::size_t i = 0; i < builder.tensors().size(); ++i) {
    builder.add(builder.tensors()[i].dtype, builder.tensors()[i].elements(), i);
  }
  return builder.finish();
}

Plan ddp_plan(std::vector<TensorSpec> tensors, Bytes cap, Bytes first_cap) {
  check_cap(cap);
  check_cap(first_cap);
  PlanBuilder builder("DDP rule, " + format(cap) + ", first " + format(first_cap),
                      std::move(tensors));
  for (std::size_t i = 0; i < builder.tensors().size(); ++i) {
    const DType dtype = builder.tensors()[i].dtype;
    builder.add(dtype, builder.tensors()[i].elements(), i);
    if (builder.open_bytes(dtype) >= (builder.closed_buckets(dtype) == 0 ? first_cap : cap)) {
      builder.close(dtype);
    }
  }
  return builder.finish();
}

Plan uniform_plan(std::vector<TensorSpec> tensors, Bytes cap, bool split) {
  check_cap(cap);
  if (!split) {
    return whole_tensor_plan(
        PlanBuilder("at most " + format(cap) + ", tensors whole", std::move(tensors)), cap);
  }
  PlanBuilder builder("at most " + format(cap) + ", tensors split", std::move(tensors));
  Bytes total;
  for (const TensorSpec& tensor : builder.tensors()) {
    total += tensor.bytes();
  }
  if (total.count() / cap.count() > kMostBuckets) {
    throw Error(ErrorCode::kInvalidArgument,
                {"bucket cap is too small for this model",
                 {},
                 format(cap) + " for " + format(total) + " of gradients",
                 "at most " + std::to_string(kMostBuckets) + " buckets",
                 {}});
  }
  return split_plan(std::move(builder), cap);
}

std::vector<TensorSpec> tensors_of(const StepProfile& profile) {
  std::vector<TensorSpec> tensors;
  tensors.reserve(profile.tensors.size());
  for (const ProfileTensor& tensor : profile.tensors) {
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return tensors;
}

}  // namespace stretto
