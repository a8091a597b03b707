// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzz.hpp"
#include "stretto/data/codec_spec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  if (const auto codec = fuzz::parsed([&] { return parse_codec(fuzz::text_of(data, size)); })) {
    fuzz::require(parse_codec(to_string(*codec)) == *codec);
    for (const std::size_t elements : {std::size_t{1}, std::size_t{1000}}) {
      const std::size_t chosen = codec->chosen_of(elements);
      fuzz::require(chosen >= 1 && chosen <= elements);
      for (const std::int64_t step : {std::int64_t{0}, codec->warmup / 2, codec->warmup}) {
        const std::size_t warming = codec->chosen_of(elements, step);
        fuzz::require(warming >= chosen && warming <= elements);
      }
    }
  }
  return 0;
}
