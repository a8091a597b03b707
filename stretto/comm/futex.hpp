// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "stretto/comm/message.hpp"

namespace stretto::detail {

/// Blocks while `word` is `seen`, until futex_wake() or `until` (monotonic; 0 = for ever). Every
/// return is a reason to look again. Works between processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, ModelTime until) noexcept;
void futex_wake(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace stretto::detail
