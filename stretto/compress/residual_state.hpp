// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

/// What codecs have not sent on one rank of a job, for a later job to send. By parameter, so that
/// other buckets, codecs and numbers of ranks can take it up.
struct ResidualState {
  /// CodecSpec::momentum of the bucket that had these elements of a tensor.
  struct Momentum {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    double momentum = 0.0;  ///< From 0 to below 1.
    friend bool operator==(const Momentum&, const Momentum&) = default;
  };
  struct Tensor {
    std::string name;
    std::vector<float> own;         ///< One for each element.
    std::vector<float> sums;        ///< Likewise, or empty: all zero.
    std::vector<float> velocity;    ///< Likewise.
    std::vector<Momentum> momenta;  ///< Of all elements, the same on all ranks.
    friend bool operator==(const Tensor&, const Tensor&) = default;
  };
  std::uint32_t world = 1;
  std::uint32_t rank = 0;
  std::uint32_t step = 0;       ///< Finished so far: what is drawn at random goes on from there.
  std::uint64_t plan_hash = 0;  ///< Of the plan under which `sums` were this rank's to make.
  std::vector<Tensor> tensors;  ///< Of f32, in that plan's order.
  /// CompressedBucket::directions() of that plan's buckets, the same on all ranks; may be empty.
  /// For another plan, or number of ranks, codecs find them anew.
  std::vector<std::vector<float>> directions;
  friend bool operator==(const ResidualState&, const ResidualState&) = default;
};

/// `SRES`, version 4, little-endian, with an xxh64 of all of it at the end.
[[nodiscard]] std::vector<std::byte> to_bytes(const ResidualState& state);
/// @throws Error kParse naming `where`: another format, cut off, or a checksum that does not fit.
[[nodiscard]] ResidualState residual_state_from_bytes(std::span<const std::byte> bytes,
                                                      std::string_view where);

/// What rank `rank` of `world` takes up of the states of an older job, some or all of them, in any
/// order. With as many ranks, its own, as it is. Else the parts of ranks that are equal to it
/// modulo `world`, own and sums together; for means (`mean`), times world / older world, so that
/// the mean over ranks of what is not sent stays. Ranks that get none begin with zeros.
/// @throws Error kMismatch: a state that is missing, there twice, or of another job than the
/// others;
///         kInvalidArgument: no states.
[[nodiscard]] ResidualState remapped(std::span<const ResidualState> states,
                                     std::uint32_t rank,
                                     std::uint32_t world,
                                     bool mean);

}  // namespace stretto
