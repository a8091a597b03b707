// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/cells.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stretto::detail {
namespace {

struct Range {
  std::uint32_t first;
  std::uint32_t last;
};

// Unicode's East_Asian_Width W and F, and general categories Mn and Me, as blocks: coarse, but the
// blocks that names are written in are right.
constexpr std::array kWide = {
    Range{0x1100, 0x115f},
    Range{0x2e80, 0x303e},
    Range{0x3041, 0x33ff},
    Range{0x3400, 0x4dbf},
    Range{0x4e00, 0x9fff},
    Range{0xa000, 0xa4cf},
    Range{0xa960, 0xa97f},
    Range{0xac00, 0xd7a3},
    Range{0xf900, 0xfaff},
    Range{0xfe30, 0xfe6f},
    Range{0xff00, 0xff60},
    Range{0xffe0, 0xffe6},
    Range{0x1f300, 0x1f64f},
    Range{0x1f680, 0x1f6ff},
    Range{0x1f900, 0x1f9ff},
    Range{0x20000, 0x3fffd},
};
constexpr std::array kZero = {
    Range{0x0300, 0x036f},
    Range{0x0483, 0x0489},
    Range{0x0591, 0x05bd},
    Range{0x064b, 0x065f},
    Range{0x1ab0, 0x1aff},
    Range{0x1dc0, 0x1dff},
    Range{0x200b, 0x200d},
    Range{0x20d0, 0x20ff},
    Range{0x302a, 0x302d},
    Range{0x3099, 0x309a},
    Range{0xfe00, 0xfe0f},
    Range{0xfe20, 0xfe2f},
};

bool is_in(std::uint32_t point, std::span<const Range> ranges) noexcept {
  return std::any_of(ranges.begin(), ranges.end(), [point](const Range& range) {
    return point >= range.first && point <= range.last;
  });
}

/// Reads one character and removes it from `text`.
std::uint32_t next_point(std::string_view& text) noexcept {
  const auto lead = static_cast<unsigned char>(text.front());
  const auto length = static_cast<std::size_t>(std::countl_one(lead));
  constexpr std::size_t kLongest = 4;
  if (length < 2 || length > kLongest || length > text.size()) {
    text.remove_prefix(1);
    return lead < 0x80 ? lead : 0xfffd;
  }
  std::uint32_t point = lead & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0U) != 0x80U) {
      text.remove_prefix(1);
      return 0xfffd;
    }
    point = (point << 6U) | (byte & 0x3fU);
  }
  text.remove_prefix(length);
  return point;
}

}  // namespace

std::size_t cells(std::string_view text) noexcept {
  std::size_t count = 0;
  while (!text.empty()) {
    const std::uint32_t point = next_point(text);
    count += is_in(point, kZero) ? 0U : is_in(point, kWide) ? 2U : 1U;
  }
  return count;
}

}  // namespace stretto::detail
