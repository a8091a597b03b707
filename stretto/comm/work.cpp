// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/work.hpp"

#include "stretto/comm/operation.hpp"

namespace stretto {

using detail::WorkState;

bool Work::done() const noexcept {
  return !state_ || state_->over();
}

void Work::wait() const {
  if (!state_) {
    return;
  }
  if (!state_->over()) {
    if (state_->waiter != nullptr) {
      state_->waiter->wait_for(*state_);
    } else {
      state_->phase.wait(WorkState::kPending, std::memory_order_acquire);
    }
  }
  if (state_->error) {
    throw Error(*state_->error);
  }
}

std::optional<Error> Work::error() const {
  return state_ && state_->over() ? state_->error : std::nullopt;
}

WorkTimes Work::times() const noexcept {
  return state_ && state_->over() ? state_->times : WorkTimes{};
}

}  // namespace stretto
