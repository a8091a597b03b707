// SPDX-License-Identifier: Apache-2.0
#include "fuzz/trace_reader.hpp"
#include "stretto/trace/nsys.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stretto::fuzz::read_trace_as(stretto::detail::read_nsys, data, size);
  return 0;
}
