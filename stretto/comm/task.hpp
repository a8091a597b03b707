// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

#include "stretto/comm/message.hpp"

namespace stretto::detail {

/// A coroutine that moves messages. Does not start by itself: awaiting it, or resuming its handle,
/// starts it. Owns its frame, and with it every frame and message it waits for.
///
/// A finished task hands its awaiter to the Resumer and does not transfer to it: symmetric transfer
/// needs a tail call, which g++ 12 does not make at -O0 or under sanitizers, and the stack
/// overflows.
class [[nodiscard]] Task {
 public:
  // The language asks for this name.
  struct promise_type {  // NOLINT(readability-identifier-naming): the language's
    Group::Resumer* resumer = nullptr;
    std::coroutine_handle<> awaiter;
    std::exception_ptr failure;

    // Every task function's first parameter is an Exchange, which knows the resumer; of a member
    // function the first but the object.
    template <typename Context, typename... Rest>
    requires requires(Context& context) { context.resumer; }
    explicit promise_type(Context& context, Rest&&... /*unused*/) : resumer(&context.resumer) {}
    template <typename Object, typename Context, typename... Rest>
    requires(!requires(Object & object) { object.resumer; })
        promise_type(Object& /*unused*/, Context& context, Rest&&... /*unused*/)
        : resumer(&context.resumer) {}

    Task get_return_object() { return Task(Handle::from_promise(*this)); }
    static std::suspend_always initial_suspend() noexcept { return {}; }
    static auto final_suspend() noexcept {
      struct Final {
        static bool await_ready() noexcept { return false; }
        static void await_suspend(std::coroutine_handle<promise_type> handle) noexcept {
          promise_type& promise = handle.promise();
          if (promise.awaiter) {
            promise.resumer->resume_later(promise.awaiter);
          }
        }
        static void await_resume() noexcept {}
      };
      return Final{};
    }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      destroy();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() { destroy(); }

  [[nodiscard]] Handle handle() const noexcept { return handle_; }
  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  /// Rethrows what ended a task that is done.
  void rethrow() const {
    if (handle_ && handle_.promise().failure) {
      std::rethrow_exception(handle_.promise().failure);
    }
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      Handle handle;
      [[nodiscard]] bool await_ready() const noexcept { return handle.done(); }
      void await_suspend(std::coroutine_handle<> awaiter) const {
        handle.promise().awaiter = awaiter;
        handle.resume();
      }
      void await_resume() const {
        if (handle.promise().failure) {
          std::rethrow_exception(handle.promise().failure);
        }
      }
    };
    return Awaiter{handle_};
  }

 private:
  explicit Task(Handle handle) : handle_(handle) {}
  void destroy() noexcept {
    if (handle_) {
      handle_.destroy();
      handle_ = nullptr;
    }
  }
  Handle handle_;
};

}  // namespace stretto::detail
