// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stretto {

/// The model tables that ship with the library (see models/README.md), compiled in.
[[nodiscard]] std::vector<std::string> model_names();

/// The text of one table, for profile_from_model_json. Valid for ever.
/// @throws Error kInvalidArgument with the nearest name.
[[nodiscard]] std::string_view model_json(std::string_view name);

}  // namespace stretto
