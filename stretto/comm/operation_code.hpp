// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/message.hpp"

namespace stretto::detail {

/// Equal on all ranks of an operation: 3 bits each of collective and type, 2 of what is done.
[[nodiscard]] OperationCode code_of(const Call& call) noexcept;
/// For people: `all_reduce (sum) of f32`.
[[nodiscard]] std::string text_of(OperationCode code);

}  // namespace stretto::detail
