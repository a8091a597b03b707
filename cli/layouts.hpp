// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "app.hpp"
#include "stretto/data/machine.hpp"

namespace stretto::cli {

/// `plan --layouts`: which data x tensor x pipeline x expert a transformer runs quickest with.
struct LayoutFlags {
  bool wanted = false;
  std::string shape;  ///< `layers=32,hidden=4096,...`; empty: the model's own.
  std::string device = "a100-80g";
  int global_batch = 0;
  int most = 12;
  bool fused_attention = false;
  double expert_imbalance = 1.0;

  void add_to(CLI::App& app);
  /// The table for people.
  [[nodiscard]] std::string text(const std::string& model, const Machine& machine) const;
  /// The member `layouts` of the result.
  [[nodiscard]] nlohmann::ordered_json json(const std::string& model, const Machine& machine) const;
};

}  // namespace stretto::cli
