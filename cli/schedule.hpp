// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/run/session.hpp"

namespace stretto::cli {

/// The flags that train and replay share: when and how gradients travel, and for how long.
struct ScheduleOptions {
  std::string schedule = "overlap";
  std::string buckets;
  std::string plan;
  std::string algorithm = "auto";
  int streams = 1;
  std::uint32_t verify = 0;
  std::uint32_t steps = 0;
  std::uint32_t warmup = 0;

  void add_to(CLI::App& app);

  /// What a run will do, made of the flags.
  struct Resolved {
    std::string name;  ///< For people.
    Plan plan;
    SessionOptions session;
  };
  [[nodiscard]] Resolved resolve(const std::vector<TensorSpec>& tensors) const;
};

}  // namespace stretto::cli
