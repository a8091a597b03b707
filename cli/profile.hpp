// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/data/step_profile.hpp"

namespace stretto::cli {

/// A model's name, a model table, or a profile: a file is a profile if it says so.
/// @throws Error kInvalidArgument (with the nearest model's name) or kParse.
[[nodiscard]] StepProfile load_profile(const std::string& argument, const AssumedDevice& device);

/// Whether `argument` is one of those, and not a trace.
[[nodiscard]] bool names_profile(const std::string& argument);

/// Whether it is a model's name or table, whose times are assumed, and not a step profile.
[[nodiscard]] bool names_model(const std::string& argument);

/// `bert_large, gpt2_124m, ...`
[[nodiscard]] std::string model_list();

}  // namespace stretto::cli
