// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

/// Published measurements, beside the repository; they are not part of it.
namespace stretto::testing {

/// The rows of a file of validation data, as column name -> cell; empty if there is no such file.
inline std::vector<std::map<std::string, std::string>> read_rows(const std::string& name) {
  std::vector<std::map<std::string, std::string>> rows;
  std::ifstream file(std::filesystem::path(STRETTO_VALIDATION_DIR) / name);
  std::vector<std::string> header;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') {
      continue;
    }
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) {
      cells.push_back(cell);
    }
    if (header.empty()) {
      header = cells;
      continue;
    }
    for (std::size_t i = 0; i < header.size() && i < cells.size(); ++i) {
      if (i == 0) {
        rows.emplace_back();
      }
      rows.back()[header[i]] = cells[i];
    }
  }
  return rows;
}

}  // namespace stretto::testing
