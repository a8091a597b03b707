// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto::testing {

/// As `stretto analyze` reads one file per rank.
inline Trace read_ranks(const std::vector<KinetoText>& ranks) {
  const std::filesystem::path directory =
      std::filesystem::temp_directory_path() / ("stretto_ranks_" + std::to_string(::getpid()));
  std::filesystem::create_directories(directory);
  std::vector<std::filesystem::path> files;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    files.push_back(directory / ("rank" + std::to_string(rank) + ".json"));
    std::ofstream(files.back()) << ranks[rank].text();
  }
  Trace trace = read_traces(files);
  std::filesystem::remove_all(directory);
  return trace;
}

}  // namespace stretto::testing
