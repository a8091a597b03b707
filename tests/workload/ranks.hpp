// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/comm/shm/shm.hpp"

namespace stretto {

/// Runs `body` on every rank of a world of threads; element r is what rank r returned. Throws the
/// first rank's exception, by number.
template <typename Result>
std::vector<Result> on_ranks(int ranks,
                             const std::function<Result(Communicator&)>& body,
                             const ShmOptions& options = {}) {
  std::vector<std::unique_ptr<Communicator>> world = local_shm_world(ranks, options);
  std::vector<Result> results(world.size());
  std::vector<std::exception_ptr> failures(world.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < world.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          results[rank] = body(*world[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  return results;
}

/// The Error that `action` throws.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kBackend, ""};
}

}  // namespace stretto
