// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace stretto {

/// The instruction sets that kernels are compiled for, one source each: the levels of the x86-64
/// psABI. Elsewhere there is the baseline alone.
enum class InstructionSet : std::uint8_t {
  kBaseline,
  kV3,  ///< x86-64-v3: AVX2, FMA, F16C.
  kV4,  ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL.
};
[[nodiscard]] std::string_view to_string(InstructionSet set) noexcept;

/// The widest that this processor has.
[[nodiscard]] InstructionSet best_instruction_set() noexcept;

}  // namespace stretto
