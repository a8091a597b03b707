// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

/// Small enumerations that the five nouns and the runtime share. The text of each is its JSON form.
namespace stretto {

enum class Collective : std::uint8_t {
  kNone,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kSend,
  kRecv,
  kReduce,
  kAllToAll,
  kSendRecv,  ///< Device kernels that do both: sends, receives, all_to_all, until a trace says
              ///< which.
};
[[nodiscard]] std::string_view to_string(Collective collective) noexcept;

enum class ReduceOp : std::uint8_t { kSum, kMean, kMin, kMax };
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

enum class Algorithm : std::uint8_t {
  kAuto,    ///< The communicator chooses.
  kDirect,  ///< Every rank reduces its part from all others, in rank order 0..P-1: the result does
            ///< not depend on how the tensor was cut, so neither on the plan.
  kRing,    ///< Reduce-scatter and all-gather around a ring. Same plan, same bits.
};
[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Algorithm algorithm_from_string(std::string_view name);

/// When communication may happen in a step.
enum class Schedule : std::uint8_t {
  kSerial,   ///< After the whole backward pass.
  kOverlap,  ///< As soon as a bucket's gradients are ready.
};
[[nodiscard]] std::string_view to_string(Schedule schedule) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Schedule schedule_from_string(std::string_view name);

}  // namespace stretto
