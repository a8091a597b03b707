// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

/// A table of published measurements: CSV (RFC 4180, no line breaks in fields) with one line of
/// column names; lines that begin with `#` say where the figures come from and are skipped.
class Measurements {
 public:
  /// `where` names the text in errors.
  /// @throws Error kParse with the line: no column names, another number of fields than columns, a
  /// quote that does not end.
  Measurements(std::string_view text, std::string where);

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  /// @throws Error kParse: no such column.
  [[nodiscard]] const std::string& text(std::size_t row, std::string_view column) const;
  /// @throws Error kParse: no such column, or not a finite number, with the line.
  [[nodiscard]] double number(std::size_t row, std::string_view column) const;
  /// @throws Error kParse, also where the number is not whole or does not fit.
  [[nodiscard]] int whole(std::size_t row, std::string_view column) const;

 private:
  struct Row {
    std::size_t line = 0;
    std::vector<std::string> fields;
  };
  [[nodiscard]] std::size_t column(std::string_view name) const;
  [[nodiscard]] std::string place(std::size_t row, std::string_view column) const;

  std::string where_;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
};

/// @throws Error kUnavailable: the file cannot be read.
[[nodiscard]] Measurements read_measurements(const std::string& path);

}  // namespace stretto
