// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/trace/nccl_tests.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const auto rows = fuzz::parsed([&] { return read_nccl_tests(fuzz::text_of(data, size), "f"); });
  if (rows) {
    for (const NcclTestRow& row : *rows) {
      fuzz::require(row.size_bytes >= 0 && row.time.count() >= 0 &&
                    row.bus_bandwidth_bytes_per_s >= 0 && row.wrong >= -1);
    }
  }
  return 0;
}
