// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "stretto/base/units.hpp"

/// Small enumerations that the five nouns and the runtime share. The text of each is its JSON form.
namespace stretto {

/// Where a number comes from. Printed beside it, always.
enum class Basis : std::uint8_t { kMeasured, kAssumed };
[[nodiscard]] std::string_view to_string(Basis basis) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Basis basis_from_string(std::string_view name);

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
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Collective collective_from_string(std::string_view name);

enum class ReduceOp : std::uint8_t { kSum, kMean, kMin, kMax };
[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;

enum class Algorithm : std::uint8_t {
  kAuto,    ///< The communicator chooses.
  kDirect,  ///< Every rank reduces its part from all others, in rank order 0..P-1: the result does
            ///< not depend on how the tensor was cut, so neither on the plan.
  kRing,    ///< Reduce-scatter and all-gather around a ring. Same plan, same bits.
  // From here on: what simulate/ can price; a communicator says which of them it can run.
  kRecursiveDoubling,
  kHalvingDoubling,        ///< Recursive halving, then recursive doubling (Rabenseifner).
  kBinomialTree,           ///< Reduce to rank 0 and broadcast, each over a binomial tree.
  kPipelinedChain,         ///< Reduce and broadcast along a chain, in segments.
  kDoubleBinaryTree,       ///< Two trees that each carry half (Sanders, Speck, Traeff).
  kInSwitch,               ///< The switches add: NVLink SHARP, InfiniBand SHARP.
  kHierarchical,           ///< Reduce-scatter inside, all-reduce between, all-gather inside.
  kHierarchicalPipelined,  ///< The same in chunks, so that the levels work at the same time.
  kLeader,                 ///< Reduce to one rank of each node, all-reduce between them, broadcast.
  kParameterServer,
  kPairwise,  ///< Of all_to_all: P - 1 rounds, each with another partner.
  kBruck,     ///< Of all_gather and all_to_all: fewer, larger messages.
};
inline constexpr Algorithm kLastAlgorithm = Algorithm::kBruck;
[[nodiscard]] std::string_view to_string(Algorithm algorithm) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Algorithm algorithm_from_string(std::string_view name);

/// Into how many segments kPipelinedChain and kDoubleBinaryTree cut a tensor: of 64 KiB, up to 64
/// of them. Communicators send as many, and simulate/ reckons with as many.
[[nodiscard]] int pipeline_segments(Bytes size) noexcept;
/// Into how many chunks kHierarchicalPipelined cuts it: of 256 KiB, up to 8.
[[nodiscard]] int level_chunks(Bytes size) noexcept;

/// When communication may happen in a step.
enum class Schedule : std::uint8_t {
  kSerial,    ///< After the whole backward pass.
  kOverlap,   ///< As soon as a bucket's gradients are ready.
  kPriority,  ///< As kOverlap, and on into the next forward pass: what it needs first goes first.
};
[[nodiscard]] std::string_view to_string(Schedule schedule) noexcept;
/// @throws Error kInvalidArgument listing the known names.
[[nodiscard]] Schedule schedule_from_string(std::string_view name);

}  // namespace stretto
