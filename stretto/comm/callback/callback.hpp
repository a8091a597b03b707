// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "stretto/comm/communicator.hpp"

namespace stretto {

/// Tells a callback communicator that an operation is over: nothing, or why it failed. Call it
/// once, from any thread.
using CallbackDone = std::function<void(std::optional<Error>)>;

/// Starts one operation on somebody else's process group and returns without waiting for it.
/// Runs on the thread that called the communicator. What it throws becomes the operation's failure.
using CallbackStart = std::function<void(const detail::Call&, CallbackDone)>;

struct CallbackOptions {
  Nanoseconds timeout = std::chrono::seconds(1800);
};

/// A communicator whose operations somebody else runs (a PyTorch process group, NCCL): ordering()
/// is kTotal. allocate() gives ordinary memory. abort() fails what is in flight here; peers are the
/// other side's business.
[[nodiscard]] std::unique_ptr<Communicator> make_callback_communicator(
    int rank, int size, CallbackStart start, CallbackOptions options = {});

}  // namespace stretto
