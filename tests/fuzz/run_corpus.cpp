// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over the files of the folders given, without libFuzzer: the seeds, and
// whatever a fuzzer once found, as an ordinary test.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
      // A copy of exactly this size, so that a sanitizer sees a read past its end.
      const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
      std::printf("%s\n", entry.path().filename().c_str());
      LLVMFuzzerTestOneInput(input.data(), input.size());
      ++files;
    }
  }
  std::printf("%d inputs\n", files);
  return files > 0 ? 0 : 1;
}
