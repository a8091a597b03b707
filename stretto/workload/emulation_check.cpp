// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/emulation_check.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include <fmt/format.h>

#include "stretto/base/buffer.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"

namespace stretto {
namespace {

constexpr double kMostLate = 0.05;
constexpr Nanoseconds kMostLag = std::chrono::milliseconds(100);

}  // namespace

EmulationCheck::EmulationCheck(Communicator& communicator)
    : communicator_(communicator), before_(communicator.emulation_statistics()) {}

void EmulationCheck::verify() {
  const EmulationStatistics now = communicator_.emulation_statistics();
  std::array<std::int64_t, 2> counts = {static_cast<std::int64_t>(now.messages - before_.messages),
                                        static_cast<std::int64_t>(now.late - before_.late)};
  // The communicator keeps the worst of its life; what was there before is not this run's.
  const bool grew = now.worst_lag > before_.worst_lag;
  std::array<std::int64_t, 1> worst_ns = {grew ? now.worst_lag.count() : 0};
  // One verdict for all: a rank that failed alone would look like a lost peer to the others.
  const Work summed = communicator_.all_reduce(view(std::span(counts)));
  const Work highest = communicator_.all_reduce(view(std::span(worst_ns)), ReduceOp::kMax);
  summed.wait();
  highest.wait();
  const auto [messages, late] = counts;
  const Nanoseconds worst(worst_ns[0]);
  if (static_cast<double>(late) <= kMostLate * static_cast<double>(messages) && worst <= kMostLag) {
    return;
  }
  throw Error(
      ErrorCode::kBackend,
      {"the host cannot keep up with the emulated machine, so its times would be wrong",
       "",
       fmt::format(
           "{} of {} messages late, the worst by {}", late, messages, format(Seconds(worst))),
       fmt::format("at most {:.0f} % late and none by more than {}",
                   100.0 * kMostLate,
                   format(Seconds(kMostLag))),
       "Stop other programs, use fewer ranks, or emulate a slower network"});
}

}  // namespace stretto
