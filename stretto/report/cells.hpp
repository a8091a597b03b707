// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace stretto::detail {

/// Terminal cells that UTF-8 text takes: two for East Asian wide characters and emoji, none for
/// combining marks. Bytes that are not UTF-8 count one each.
[[nodiscard]] std::size_t cells(std::string_view text) noexcept;

}  // namespace stretto::detail
