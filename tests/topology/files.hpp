// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

/// The seeds of the fuzzers are the examples of the tests too.
inline std::string corpus_file(const std::string& name) {
  const std::ifstream in(std::filesystem::path(STRETTO_FUZZ_CORPUS_DIR) / name);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}
