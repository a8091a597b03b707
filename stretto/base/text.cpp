// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/text.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {
namespace {

constexpr std::size_t kQuotedBytes = 60;
constexpr std::size_t kLongestWord = 64;  // keeps the quadratic distance away from hostile input

/// Letters to insert, remove, replace, or swap with their neighbour (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);  // the row before the last
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = last[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({replaced, last[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
  }
  return row.back();
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::size_t length = std::min(text.size(), kQuotedBytes);
  if (length < text.size()) {  // do not cut a UTF-8 character in half
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0U) == 0x80U) {
      --length;
    }
  }
  std::string quoted = "'";
  for (const char c : text.substr(0, length)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      quoted += "\\x";
      quoted += kHex[byte >> 4U];
      quoted += kHex[byte & 15U];
    } else {
      quoted += c;
    }
  }
  return quoted + (length < text.size() ? "...'" : "'");
}

std::string join(std::span<const std::string_view> words) {
  std::string joined;
  for (const std::string_view word : words) {
    if (!joined.empty()) {
      joined += ", ";
    }
    joined += word;
  }
  return joined;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > kLongestWord) {
    return {};
  }
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view best = nearest(word, known);
  const std::string all = "Known: " + join(known);
  return best.empty() ? all : "Did you mean '" + std::string(best) + "'? " + all;
}

}  // namespace stretto
