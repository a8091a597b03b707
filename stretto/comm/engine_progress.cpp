// SPDX-License-Identifier: Apache-2.0
// Who drives an Engine, how long it polls and when it sleeps.
#include <algorithm>
#include <chrono>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stretto/comm/engine.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace stretto::detail {
namespace {

// How often a sleeping driver with operations in flight looks for dead peers and time-outs.
constexpr auto kHeartbeat = std::chrono::milliseconds(20);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// An emulated machine is a clock: its thread runs rarely, for microseconds, and should run on time
// even where compute keeps every core busy.
void prefer_this_thread() {
  // Timed waits: the default slack of 50 us would be added to each.
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  // Only root may; for others the fair share of a thread that sleeps most of the time must do.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -15);
}

}  // namespace

Nanoseconds Engine::now() {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

bool Engine::busy_with_backlog() const noexcept {
  return !failed_.load(std::memory_order_acquire) && transport_->has_backlog();
}

bool Engine::busy() const noexcept {
  return in_flight_.load(std::memory_order_seq_cst) > 0 || busy_with_backlog();
}

void Engine::wait_for(WorkState& state) {
  if (options_.emulated) {
    // Times are the machine's, so nothing is gained by driving; and a caller that lost its core
    // while it holds the lock would stop the clock.
    state.phase.wait(WorkState::kPending, std::memory_order_acquire);
    return;
  }
  callers_.fetch_add(1, std::memory_order_seq_cst);
  {
    std::unique_lock lock(mutex_);
    auto last_progress = std::chrono::steady_clock::time_point{};
    const Patience patience = transport_->patience();
    int idle = 0;
    while (!state.over()) {
      if (callers_.load(std::memory_order_relaxed) > 1) {  // others want to look, or to abort
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
      }
      if (poll()) {
        idle = 0;
        continue;
      }
      relax();
      // The clock is read seldom: reading it may cost more than a poll.
      if (++idle % patience.polls == 0) {
        const auto at = std::chrono::steady_clock::now();
        if (idle == patience.polls) {
          last_progress = at;
        } else if (at - last_progress > patience.caller) {
          break;
        }
      }
    }
  }
  callers_.fetch_sub(1, std::memory_order_seq_cst);
  if (!state.over()) {
    transport_->wake();
    state.phase.wait(WorkState::kPending, std::memory_order_acquire);
  } else if (busy() || background_posted_.load(std::memory_order_seq_cst)) {
    // The thread left the driving to us: what others have started meanwhile is its again.
    transport_->wake();
  }
}

void Engine::run(const std::stop_token& stop) {
  if (options_.emulated) {
    prefer_this_thread();
  }
  const Patience patience = transport_->patience();
  const Nanoseconds idle_interval = transport_->idle_interval();
  Nanoseconds next_heartbeat = now() + kHeartbeat;
  while (!stop.stop_requested()) {
    bool busy_now = false;
    ModelTime event = 0;
    if (callers_.load(std::memory_order_seq_cst) == 0) {
      const std::scoped_lock lock(mutex_);
      auto last_progress = std::chrono::steady_clock::now();
      int idle = 0;
      while (!stop.stop_requested() && callers_.load(std::memory_order_relaxed) == 0) {
        if (poll()) {
          idle = 0;
          last_progress = {};
          continue;
        }
        relax();
        if (!busy()) {
          break;
        }
        if (patience.background.count() == 0) {
          break;
        }
        if (++idle % (patience.polls / 4) == 0) {
          const auto at = std::chrono::steady_clock::now();
          if (last_progress == std::chrono::steady_clock::time_point{}) {
            last_progress = at;
          }
          if (at - last_progress > patience.background) {
            break;
          }
        }
      }
      if (busy()) {
        if (now() >= next_heartbeat) {
          guarded([this] {
            transport_->check_peers();
            check_deadlines();
          });
          next_heartbeat = now() + kHeartbeat;
        }
        busy_now = busy();
        event = transport_->next_event();
        if (!held_.empty() && (event == 0 || held_.top().until < event)) {
          event = held_.top().until;
        }
      } else if (idle_interval.count() > 0) {
        guarded([this] { transport_->poll(); });
      }
    }
    ModelTime until = 0;
    if (busy_now) {
      until = std::max(next_heartbeat, now()).count() + 1;
      if (event != 0 && event < until) {
        until = event;
      }
    } else if (idle_interval.count() > 0 && !failed_.load(std::memory_order_acquire)) {
      until = (now() + idle_interval).count();
    }
    transport_->sleep(busy_now, until, [this, &stop, busy_now] {
      return stop.stop_requested() ||
             (callers_.load(std::memory_order_seq_cst) == 0 &&
              (background_posted_.load(std::memory_order_seq_cst) || (!busy_now && busy())));
    });
  }
}

bool Engine::poll() {
  bool any = false;
  if (inbox_.load(std::memory_order_relaxed) != nullptr ||
      background_posted_.load(std::memory_order_relaxed)) {
    any = drain_inbox();
  }
  if (failure_ || (active_.empty() && !transport_->has_backlog())) {
    return any;
  }
  guarded([&] {
    any |= transport_->poll();
    any |= resume_ready();
    any |= release_held();
    while (admit_ && !waiting_.empty()) {
      admit_ = false;
      any |= admit_waiting();
    }
  });
  return any;
}

}  // namespace stretto::detail
