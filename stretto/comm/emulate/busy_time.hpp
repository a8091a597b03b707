// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace stretto::detail {

/// When one direction of an emulated link is taken, in nanoseconds of model time (doubles, so that
/// fractions do not add up). A host that is late may hear of an earlier message after a later one:
/// that gets the time that was still free then, if it is among the latest `kGaps` stretches of it.
/// Plain data: it also lies in shared memory.
template <std::size_t kGaps>
class BusyTime {
 public:
  /// Nanoseconds. Times of messages are whole ones, so what is shorter comes from rounding.
  static constexpr double kNothing = 1.0;

  /// Takes `ns` from `earliest` on, whatever is free, and returns when that is over.
  double take(double earliest, double ns) noexcept {
    double over = earliest;
    const double left = ns - fill(earliest, ns, over);
    if (left <= kNothing && earliest < end_) {
      return over;
    }
    const double begin = std::max(end_, earliest);
    if (begin > end_ + kNothing) {
      insert(count_, {end_, begin});
    }
    end_ = begin + left;
    return end_;
  }

  /// As much of `ns` as was left free before end(): returns how much, and in `over` until when.
  double fill(double earliest, double ns, double& over) noexcept {
    double taken = 0;
    for (std::size_t i = 0; i < count_ && taken < ns;) {
      const Gap gap = gaps_[i];
      const double begin = std::max(gap.begin, earliest);
      const double length = std::min(ns - taken, gap.end - begin);
      if (length <= 0 || (length <= kNothing && ns - taken > kNothing)) {
        ++i;
        continue;
      }
      taken += length;
      over = begin + length;
      // What is left of it, before and after.
      erase(i);
      if (over + kNothing < gap.end) {
        insert(i, {over, gap.end});
      }
      if (gap.begin + kNothing < begin) {
        insert(i, {gap.begin, begin});
        ++i;
      }
    }
    return taken;
  }

  /// From here on all is free.
  [[nodiscard]] double end() const noexcept { return end_; }

 private:
  struct Gap {
    double begin;
    double end;
  };

  void insert(std::size_t at, Gap gap) noexcept {
    if (count_ == kGaps) {  // the earliest goes
      if (at == 0) {
        return;
      }
      erase(0);
      --at;
    }
    std::copy_backward(begin(at), begin(count_), begin(count_ + 1));
    gaps_[at] = gap;
    ++count_;
  }
  void erase(std::size_t at) noexcept {
    std::copy(begin(at + 1), begin(count_), begin(at));
    --count_;
  }
  [[nodiscard]] auto begin(std::size_t at) noexcept {
    return gaps_.begin() + static_cast<std::ptrdiff_t>(at);
  }

  double end_ = 0;
  std::size_t count_ = 0;
  std::array<Gap, kGaps> gaps_{};  // in order
};

/// One that several ranks take from, in memory that all of them map.
struct SharedBusyTime {
  std::atomic<std::uint32_t> locked;
  BusyTime<12> busy;
};

/// One direction of a link, its own or shared.
class LinkSide {
 public:
  /// `shared` may be null.
  explicit LinkSide(SharedBusyTime* shared = nullptr) noexcept : shared_(shared) {}

  template <typename Function>
  double with(Function&& function) {
    if (shared_ == nullptr) {
      return function(own_);
    }
    // Held for nanoseconds, or until its holder gets its core back. A rank that died holding it has
    // ended the job: its peers must come to see that, and their times no longer matter.
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (shared_->locked.exchange(1, std::memory_order_acquire) != 0) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() > give_up) {
        return function(own_);
      }
    }
    const double result = function(shared_->busy);
    shared_->locked.store(0, std::memory_order_release);
    return result;
  }
  [[nodiscard]] double end() {
    return with([](const auto& busy) { return busy.end(); });
  }

 private:
  BusyTime<256> own_;
  SharedBusyTime* shared_;
};

}  // namespace stretto::detail
