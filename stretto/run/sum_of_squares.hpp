// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/base/buffer.hpp"

/// Private to run/: not installed.
namespace stretto {

/// In fp64, in an order that depends on `data.count` alone. Of a floating type.
[[nodiscard]] double sum_of_squares(const BufferView& data) noexcept;

}  // namespace stretto
