// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stretto/base/instruction_set.hpp"

/// Codecs that send every element with fewer bits. A number of elements always takes the same
/// number of bytes; a block of elements has its scale with it, so that a wire can be cut at blocks.
///
/// All quantise symmetrically: zero is on the grid, and an error is never larger than the value it
/// is of. So D(Q(c)) is a contraction, and error feedback converges.
namespace stretto {

enum class BlockFormat : std::uint8_t {
  kFp16,            ///< Rounded to nearest even; beyond +-65504 saturated.
  kBf16,            ///< Rounded to nearest even.
  kInt8,            ///< 512 elements share a scale, largest magnitude / 127; rounded to nearest.
  kInt8Stochastic,  ///< The same, rounded up with the probability of the remainder: unbiased.
  kInt4,            ///< 128 elements, / 7.
  kInt4Stochastic,
  kOneBit,  ///< 2048 elements: the sign, times the mean magnitude of the block.
};

/// Elements that share a scale; 1 for the two without one.
[[nodiscard]] std::size_t block_elements(BlockFormat format) noexcept;
[[nodiscard]] std::size_t encoded_bytes(BlockFormat format, std::size_t count) noexcept;

/// What is encoded: c = gradient + residual.
struct CodecInput {
  const float* gradient = nullptr;
  /// What earlier steps left out; null: there is no error feedback, and c = gradient.
  const float* residual = nullptr;
  /// Receives c - D(Q(c)); null exactly if `residual` is. May be `residual` itself.
  float* next_residual = nullptr;
  std::size_t count = 0;
};

/// Writes Q(c) to `wire`, encoded_bytes(format, input.count) of them, and what it left out to
/// next_residual, in one pass. The wire of 16-bit formats must be aligned to 2 bytes.
///
/// The bits depend on the values, `key` and nothing else: not on the instruction set. `key` is of
/// this step, bucket and stretch of elements; only the stochastic formats look at it.
///
/// @return false where some |c| is 2^127 or more (kOneBit: the sum of a block's), or not a number.
///         Such a block decodes to NaN throughout (16 bits: the elements that are not finite) and
///         its residual stays as it was.
///         A block whose largest magnitude is below 2^-100 is sent as zeros and stays in the
///         residual: 1 / scale would overflow.
[[nodiscard]] bool encode(BlockFormat format,
                          const CodecInput& input,
                          std::uint64_t key,
                          std::byte* wire) noexcept;

/// out = D(wire) * factor. @return false where the wire is of values that were not finite.
[[nodiscard]] bool decode(BlockFormat format,
                          const std::byte* wire,
                          float factor,
                          float* out,
                          std::size_t count) noexcept;
/// sum += D(wire), likewise.
[[nodiscard]] bool decode_add(BlockFormat format,
                              const std::byte* wire,
                              float* sum,
                              std::size_t count) noexcept;

namespace detail {

/// One compilation of the kernels.
struct CodecKernels {
  bool (*encode)(BlockFormat, const CodecInput&, std::uint64_t, std::byte*) noexcept;
  bool (*decode)(BlockFormat, const std::byte*, float, float*, std::size_t) noexcept;
  bool (*decode_add)(BlockFormat, const std::byte*, float*, std::size_t) noexcept;
  /// c = gradient + residual into `sums`, and into counts[kMagnitudeBins] how many magnitudes are
  /// in each bin: the top 12 bits below the sign.
  void (*add_and_count)(const CodecInput&, float* sums, std::uint32_t* counts) noexcept;
  /// The indices of values with magnitude bits >= least, in order; at most `room`.
  /// @return how many there are.
  std::size_t (*indices_from)(const float* values,
                              std::size_t count,
                              std::uint32_t least,
                              std::uint32_t* indices,
                              std::size_t room) noexcept;
};
inline constexpr std::size_t kMagnitudeBins = 4096;
inline constexpr unsigned kMagnitudeShift = 19;

/// Those compiled for a set this processor has; narrower ones for tests.
[[nodiscard]] const CodecKernels& codec_kernels(InstructionSet set) noexcept;
[[nodiscard]] const CodecKernels& codec_kernels() noexcept;

extern const CodecKernels kCodecBaseline;
extern const CodecKernels kCodecV3;
extern const CodecKernels kCodecV4;

}  // namespace detail
}  // namespace stretto
