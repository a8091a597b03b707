// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/futex.hpp"

#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace stretto::detail {

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, ModelTime until) noexcept {
  timespec deadline{static_cast<time_t>(until / 1'000'000'000),
                    static_cast<long>(until % 1'000'000'000)};
  // The bitset form takes an absolute CLOCK_MONOTONIC time.
  syscall(SYS_futex,
          &word,
          FUTEX_WAIT_BITSET,
          seen,
          until == 0 ? nullptr : &deadline,
          nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace stretto::detail
