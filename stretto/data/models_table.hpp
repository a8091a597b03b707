// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stretto::detail {

struct EmbeddedModel {
  std::string_view name;
  std::string_view json;
};

/// By name, ascending. Generated at build time by cmake/EmbedModels.cmake.
[[nodiscard]] std::span<const EmbeddedModel> embedded_models() noexcept;

}  // namespace stretto::detail
