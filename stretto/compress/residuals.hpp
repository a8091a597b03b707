// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

namespace stretto {

/// Error-feedback memory of one rank for all fp32 elements of a plan, in the order of their arena:
/// so it is keyed by parameter and element, and cutting buckets differently leaves it alone. In the
/// units of the gradients, whatever the learning rate is.
///
/// Three kinds: what this rank's own gradient has not sent yet, and what was lost when this rank
/// rounded a sum that it made for all (of two-shot exchanges; elsewhere zero, and without pages),
/// and the velocity of codecs with momentum correction (likewise). Each twice: an exchange reads
/// one and writes the other, and commit() exchanges them. So a step can be undone without a copy,
/// bit by bit.
class Residuals {
 public:
  explicit Residuals(std::size_t elements);

  [[nodiscard]] std::size_t elements() const noexcept { return elements_; }

  /// What an exchange of elements from `begin` on reads, and writes.
  [[nodiscard]] const float* own(std::size_t begin) const noexcept {
    return own_.current.get() + begin;
  }
  [[nodiscard]] float* next_own(std::size_t begin) const noexcept {
    return own_.next.get() + begin;
  }
  [[nodiscard]] const float* of_sums(std::size_t begin) const noexcept {
    return sums_.current.get() + begin;
  }
  [[nodiscard]] float* next_of_sums(std::size_t begin) const noexcept {
    return sums_.next.get() + begin;
  }

  [[nodiscard]] const float* velocity(std::size_t begin) const noexcept {
    return velocity_.current.get() + begin;
  }
  [[nodiscard]] float* next_velocity(std::size_t begin) const noexcept {
    return velocity_.next.get() + begin;
  }

  /// Elements [begin, end) stay as they were: their exchange was not of finite numbers. Before
  /// commit(). What no exchange writes stays anyway.
  void keep(std::size_t begin, std::size_t end) noexcept;
  /// The step is over: what was written is what is read from now on.
  void commit() noexcept;
  /// As it was before the last commit(): the optimizer left that step out.
  void undo() noexcept { commit(); }
  /// For another plan, which may give sums to other ranks and leave other elements alone: what was
  /// lost in sums becomes this rank's own, whose total over ranks stays. No undo() after it.
  void settle() noexcept;
  /// The gradients of steps from now on are `factor` times as large (another loss scale), and so is
  /// what is left of the older ones; what undo() brings back too.
  void scale(float factor) noexcept;

  /// After settle(), of elements [begin, end), whose codec has another momentum from now on, or
  /// none: residual becomes `own` times itself and `velocity` times the velocity, which ends. No
  /// undo() after it.
  void end_velocity(std::size_t begin, std::size_t end, float own, float velocity) noexcept;

  /// The three kinds of elements [begin, end), as the next exchange will read them.
  [[nodiscard]] std::span<const float> own_part(std::size_t begin, std::size_t end) const noexcept {
    return {own(begin), end - begin};
  }
  [[nodiscard]] std::span<const float> sums_part(std::size_t begin,
                                                 std::size_t end) const noexcept {
    return {of_sums(begin), end - begin};
  }
  [[nodiscard]] std::span<const float> velocity_part(std::size_t begin,
                                                     std::size_t end) const noexcept {
    return {velocity(begin), end - begin};
  }
  /// Elements from `begin` on become these; `sums` and `velocity` may be empty: zeros. No undo()
  /// after it.
  void set(std::size_t begin,
           std::span<const float> own,
           std::span<const float> sums,
           std::span<const float> velocity) noexcept;

  /// Euclidean norm of what was not sent and what was lost in sums, together.
  [[nodiscard]] double norm() const noexcept;

 private:
  struct Free {
    void operator()(float* memory) const noexcept { std::free(memory); }
  };
  using Memory = std::unique_ptr<float[], Free>;  // NOLINT(modernize-avoid-c-arrays): from calloc
  struct Pair {
    Memory current;
    Memory next;
  };
  [[nodiscard]] static Memory zeroed(std::size_t elements);

  std::size_t elements_;
  Pair own_;
  Pair sums_;
  Pair velocity_;
};

}  // namespace stretto
