// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/report/cells.hpp"
#include "stretto/report/report.hpp"

namespace stretto {
namespace {

/// Names come from files: what would move the cursor or break the line is written out.
std::string printable(const std::string& cell) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const char c : cell) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 15U]};
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> shown = rows;
  for (std::vector<std::string>& row : shown) {
    std::transform(row.begin(), row.end(), row.begin(), printable);
  }
  std::vector<std::size_t> widths;
  for (const std::vector<std::string>& row : shown) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) {
      widths[c] = std::max(widths[c], detail::cells(row[c]));
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : shown) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - detail::cells(row[c]), ' ');
      line += c == 0 ? row[c] + padding : "  " + padding + row[c];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace stretto
