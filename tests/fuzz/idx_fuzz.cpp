// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <numeric>
#include <span>

#include "fuzz/fuzz.hpp"
#include "stretto/workload/dataset.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  if (size == 0) {
    return 0;
  }
  // The first byte says how many dimensions are asked for.
  const std::size_t dimensions = 1 + data[0] % 3;
  const auto file = std::as_bytes(std::span(data + 1, size - 1));
  if (const auto array = fuzz::parsed([&] { return read_idx(file, dimensions, "f"); })) {
    fuzz::require(array->shape.size() == dimensions);
    const std::size_t count = std::accumulate(
        array->shape.begin(), array->shape.end(), std::size_t{1}, std::multiplies<>());
    fuzz::require(array->values.size() == count);
  }
  return 0;
}
