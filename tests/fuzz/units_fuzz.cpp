// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fuzz/fuzz.hpp"
#include "stretto/base/units.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto bytes = fuzz::parsed([&] { return parse_bytes(text); })) {
    fuzz::require(bytes->count() >= 0);
    (void)format(*bytes);
  }
  if (const auto rate = fuzz::parsed([&] { return parse_bandwidth(text); })) {
    fuzz::require(rate->value() > 0.0 && std::isfinite(rate->value()));
    (void)format(*rate);
  }
  if (const auto time = fuzz::parsed([&] { return parse_duration(text); })) {
    fuzz::require(time->count() >= 0.0 && std::isfinite(time->count()));
    (void)format(*time);
  }
  return 0;
}
