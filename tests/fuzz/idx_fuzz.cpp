// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>

#include "stretto/base/error.hpp"
#include "stretto/workload/dataset.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::size_t dimensions = 1 + data[0] % 3;
  try {
    (void)stretto::read_idx(std::as_bytes(std::span(data + 1, size - 1)), dimensions, "input");
  } catch (const stretto::Error&) {
    // The only way out for bad input.
  }
  return 0;
}
