// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// The discrete events under simulate(). Private: not installed.
namespace stretto::detail {

/// One piece of compute. All ranks run the same program, each at its own speed.
struct ComputeTask {
  double work_s = 0.0;            ///< On a rank of speed 1, with no communication beside it.
  std::uint32_t waits_begin = 0;  ///< Into Program::waits: exchanges that must be over before.
  std::uint32_t waits_end = 0;
  std::uint32_t releases_begin = 0;  ///< Into Program::releases: exchanges it is the last to feed.
  std::uint32_t releases_end = 0;
};

/// One exchange between all ranks. It begins when every rank has released it, its stream is free
/// and no more urgent one wants the wire.
struct ExchangeTask {
  double wire_s = 0.0;     ///< Keeps the wire, which carries one at a time.
  double latency_s = 0.0;  ///< After that; keeps the stream, not the wire.
  double segment_s = 0.0;  ///< Of wire time, after which a more urgent one may take over; 0: never.
  std::int32_t urgency = 0;  ///< Higher goes first; among equals, the one released first.
  std::uint32_t stream = 0;
};

struct Program {
  std::vector<ComputeTask> tasks;
  std::vector<ExchangeTask> exchanges;
  std::vector<std::uint32_t> waits;
  std::vector<std::uint32_t> releases;
  std::uint32_t streams = 1;
  double slowdown = 1.0;  ///< Of all compute while an exchange has the wire or its latency runs.
};

/// When everything happened.
struct Trace {
  struct Exchange {
    double released_s = 0.0;  ///< By the last rank,
    double began_s = 0.0;
    double ended_s = 0.0;
  };
  std::vector<Exchange> exchanges;
  /// Of each class and task: began (after its waits) and ended. Kept for the first `recorded`
  /// classes: tasks of class c at [c * tasks, (c + 1) * tasks).
  std::vector<double> began_s;
  std::vector<double> ended_s;
  double end_s = 0.0;
  std::int64_t events = 0;
};

/// Runs `program` on one rank of each class; class c takes `compute_factor[c]` times the work.
/// @throws Error kInvalidArgument when tasks and exchanges wait for each other in a circle.
[[nodiscard]] Trace run_program(const Program& program,
                                std::span<const double> compute_factor,
                                std::size_t recorded);

}  // namespace stretto::detail
