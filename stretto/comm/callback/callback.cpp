// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/callback/callback.hpp"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "stretto/comm/operation.hpp"

namespace stretto {
namespace {

using detail::Call;
using detail::WorkState;

Nanoseconds now() {
  return std::chrono::duration_cast<Nanoseconds>(
      std::chrono::steady_clock::now().time_since_epoch());
}

// Shared by the communicator and every callback handed out: a callback may come after the
// communicator is gone.
struct Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<WorkState>> in_flight;
  std::optional<Error> failure;

  void settle(const std::shared_ptr<WorkState>& state, const std::optional<Error>& error) {
    {
      const std::scoped_lock lock(mutex);
      if (std::erase(in_flight, state) == 0) {
        return;  // failed already, or told twice
      }
      state->times.ended = now();
      if (error) {
        state->fail(*error);
      } else {
        state->complete();
      }
    }
    changed.notify_all();
  }
  void fail_all(const Error& reason) {
    {
      const std::scoped_lock lock(mutex);
      if (!failure) {
        failure.emplace(reason);
      }
      for (const auto& state : in_flight) {
        state->times.ended = now();
        state->fail(*failure);
      }
      in_flight.clear();
    }
    changed.notify_all();
  }
};

class HostArena final : public Arena {
 public:
  explicit HostArena(std::vector<std::byte> memory, std::size_t skip, std::size_t size)
      : Arena(std::span(memory.data() + skip, size)), memory_(std::move(memory)) {}

 private:
  std::vector<std::byte> memory_;
};

class CallbackCommunicator final : public Communicator, private WorkState::Waiter {
 public:
  CallbackCommunicator(int rank, int size, CallbackStart start, const CallbackOptions& options)
      : Communicator(rank, size), start_(std::move(start)), timeout_(options.timeout) {}
  ~CallbackCommunicator() override {
    pending_->fail_all(
        Error(ErrorCode::kBackend, "the communicator was destroyed while this was in flight"));
  }
  CallbackCommunicator(const CallbackCommunicator&) = delete;
  CallbackCommunicator& operator=(const CallbackCommunicator&) = delete;

  [[nodiscard]] std::string_view backend() const noexcept override { return "callback"; }
  [[nodiscard]] Ordering ordering() const noexcept override { return Ordering::kTotal; }
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size) override {
    constexpr std::size_t kAlign = 64;
    const auto bytes = static_cast<std::size_t>(size.count());
    std::vector<std::byte> memory(bytes + kAlign);
    const std::size_t skip = kAlign - reinterpret_cast<std::uintptr_t>(memory.data()) % kAlign;
    return std::make_unique<HostArena>(std::move(memory), skip, bytes);
  }
  void abort(const Error& reason,
             std::uint32_t /*step*/,
             std::uint32_t /*bucket*/) noexcept override {
    pending_->fail_all(reason);
  }

 private:
  Work start(const Call& call) override {
    auto state = std::make_shared<WorkState>();
    state->waiter = this;
    state->times.launched = state->times.started = now();
    {
      const std::scoped_lock lock(pending_->mutex);
      if (pending_->failure) {
        state->fail(*pending_->failure);
        return Work(std::move(state));
      }
      pending_->in_flight.push_back(state);
    }
    const CallbackDone done = [pending = pending_, state](const std::optional<Error>& error) {
      pending->settle(state, error);
    };
    try {
      start_(call, done);
    } catch (const Error& error) {
      done(error);
    } catch (const std::exception& error) {
      done(Error(ErrorCode::kBackend, error.what()));
    }
    return Work(std::move(state));
  }

  void wait_for(WorkState& state) override {
    std::unique_lock lock(pending_->mutex);
    if (!pending_->changed.wait_for(lock, timeout_, [&] { return state.over(); })) {
      lock.unlock();
      pending_->fail_all(Error(ErrorCode::kTimeout,
                               {"the process group did not finish in time",
                                "rank " + std::to_string(rank()),
                                "nothing after " + format(Seconds(timeout_)),
                                "",
                                "Every rank must start the same operations in the same order."}));
    }
  }

  CallbackStart start_;
  Nanoseconds timeout_;
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
};

}  // namespace

std::unique_ptr<Communicator> make_callback_communicator(int rank,
                                                         int size,
                                                         CallbackStart start,
                                                         CallbackOptions options) {
  if (size < 1 || rank < 0 || rank >= size || !start) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a callback communicator needs a rank, a size and a function",
                 "",
                 "rank " + std::to_string(rank) + " of " + std::to_string(size),
                 "0 <= rank < size",
                 ""});
  }
  return std::make_unique<CallbackCommunicator>(rank, size, std::move(start), options);
}

}  // namespace stretto
