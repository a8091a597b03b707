// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/measurements.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

[[noreturn]] void bad(std::string message,
                      std::string where,
                      std::string found,
                      std::string expected) {
  throw Error(ErrorCode::kParse,
              {.message = std::move(message),
               .where = std::move(where),
               .found = std::move(found),
               .expected = std::move(expected),
               .help = {}});
}

std::vector<std::string> fields(std::string_view line, const std::string& where) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      result.back() += c;
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  if (quoted) {
    bad("a quote does not end", where, quote(line), "a closing quote on the same line");
  }
  return result;
}

}  // namespace

Measurements::Measurements(std::string_view text, std::string where) : where_(std::move(where)) {
  std::size_t number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') {
      line.remove_suffix(1);
    }
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::string place = where_ + ", line " + std::to_string(number);
    std::vector<std::string> cells = fields(line, place);
    if (columns_.empty()) {
      columns_ = std::move(cells);
      continue;
    }
    if (cells.size() != columns_.size()) {
      bad("a row has another number of fields than there are columns",
          place,
          std::to_string(cells.size()),
          std::to_string(columns_.size()));
    }
    rows_.push_back({number, std::move(cells)});
  }
  if (columns_.empty()) {
    bad("no column names", where_, "no line of text", "a line of names");
  }
}

std::size_t Measurements::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  if (found == columns_.end()) {
    const std::vector<std::string_view> known(columns_.begin(), columns_.end());
    bad("no such column", where_, quote(name), join(known));
  }
  return static_cast<std::size_t>(found - columns_.begin());
}

std::string Measurements::place(std::size_t row, std::string_view column) const {
  return where_ + ", line " + std::to_string(rows_[row].line) + ", column " + std::string(column);
}

const std::string& Measurements::text(std::size_t row, std::string_view column) const {
  return rows_[row].fields[this->column(column)];
}

double Measurements::number(std::size_t row, std::string_view column) const {
  const std::string& field = text(row, column);
  double value = 0.0;
  const char* end = field.data() + field.size();
  const auto [rest, code] = std::from_chars(field.data(), end, value);
  if (code != std::errc{} || rest != end || !std::isfinite(value)) {
    bad("not a number", place(row, column), quote(field), "a finite number");
  }
  return value;
}

int Measurements::whole(std::size_t row, std::string_view column) const {
  const double value = number(row, column);
  if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int>::max()) {
    bad("not a whole number", place(row, column), quote(text(row, column)), "a whole number");
  }
  return static_cast<int>(value);
}

Measurements read_measurements(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) {
    throw Error(ErrorCode::kUnavailable,
                {.message = "cannot read the measurements",
                 .where = path,
                 .found = {},
                 .expected = {},
                 .help = "Name the directory that holds the CSV files"});
  }
  return {text, path};
}

}  // namespace stretto
