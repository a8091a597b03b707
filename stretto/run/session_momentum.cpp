// SPDX-License-Identifier: Apache-2.0
// What is in flight when a bucket's codec gets another momentum, or loses it.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "stretto/run/session_impl.hpp"

namespace stretto {

std::vector<Session::Impl::Momentum> Session::Impl::momenta() const {
  std::vector<Momentum> result;
  for (const Bucket& bucket : plan.buckets) {
    if (bucket.dtype == DType::kF32) {
      result.push_back({static_cast<std::size_t>(bucket.begin),
                        static_cast<std::size_t>(bucket.end),
                        bucket.codec.momentum});
    }
  }
  return result;
}

// With momentum m of its own a codec sends what moves weights once, and a velocity u still moves
// them by m u + m^2 u + ...; what other buckets send, the optimizer's momentum o moves on, by
// 1 / (1 - o) of it in all. It is all sent at once: a residual is much more than what its velocity
// still does, so nothing would be smoother if that came step by step.
void Session::Impl::convert_momentum(const std::vector<Momentum>& before) {
  const double by_optimizer = 1.0 / (1.0 - options.optimizer_momentum);
  const auto moves = [&](double momentum) { return momentum > 0.0 ? 1.0 : by_optimizer; };
  for (const Momentum& now : momenta()) {
    for (const Momentum& then : before) {
      const std::size_t begin = std::max(now.begin, then.begin);
      const std::size_t end = std::min(now.end, then.end);
      if (begin >= end || now.momentum == then.momentum) {
        continue;
      }
      const double unit = moves(now.momentum);
      residuals->end_velocity(begin,
                              end,
                              static_cast<float>(moves(then.momentum) / unit),
                              static_cast<float>(then.momentum / (1.0 - then.momentum) / unit));
    }
  }
}

}  // namespace stretto
