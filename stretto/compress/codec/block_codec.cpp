// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/codec/block_codec.hpp"

namespace stretto {

std::size_t block_elements(BlockFormat format) noexcept {
  switch (format) {
    case BlockFormat::kInt8:
    case BlockFormat::kInt8Stochastic:
      return 512;
    case BlockFormat::kInt4:
    case BlockFormat::kInt4Stochastic:
      return 128;
    case BlockFormat::kOneBit:
      return 2048;
    case BlockFormat::kFp16:
    case BlockFormat::kBf16:
      break;
  }
  return 1;
}

std::size_t encoded_bytes(BlockFormat format, std::size_t count) noexcept {
  if (format == BlockFormat::kFp16 || format == BlockFormat::kBf16) {
    return 2 * count;
  }
  const std::size_t block = block_elements(format);
  const auto with_scale = [format](std::size_t elements) {
    switch (format) {
      case BlockFormat::kInt4:
      case BlockFormat::kInt4Stochastic:
        return sizeof(float) + (elements + 1) / 2;
      case BlockFormat::kOneBit:
        return sizeof(float) + (elements + 7) / 8;
      default:
        return sizeof(float) + elements;
    }
  };
  const std::size_t rest = count % block;
  return count / block * with_scale(block) + (rest == 0 ? 0 : with_scale(rest));
}

bool encode(BlockFormat format,
            const CodecInput& input,
            std::uint64_t key,
            std::byte* wire) noexcept {
  return detail::codec_kernels().encode(format, input, key, wire);
}

bool decode(BlockFormat format,
            const std::byte* wire,
            float factor,
            float* out,
            std::size_t count) noexcept {
  return detail::codec_kernels().decode(format, wire, factor, out, count);
}

bool decode_add(BlockFormat format, const std::byte* wire, float* sum, std::size_t count) noexcept {
  return detail::codec_kernels().decode_add(format, wire, sum, count);
}

namespace detail {

const CodecKernels& codec_kernels(InstructionSet set) noexcept {
#if defined(__x86_64__)
  switch (set) {
    case InstructionSet::kV4:
      return kCodecV4;
    case InstructionSet::kV3:
      return kCodecV3;
    case InstructionSet::kBaseline:
      break;
  }
#else
  static_cast<void>(set);
#endif
  return kCodecBaseline;
}

const CodecKernels& codec_kernels() noexcept {
  static const CodecKernels& best = codec_kernels(best_instruction_set());
  return best;
}

}  // namespace detail
}  // namespace stretto
