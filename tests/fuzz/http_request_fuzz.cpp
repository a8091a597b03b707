// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "fuzz/fuzz.hpp"
#include "stretto/serve/http_response.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace stretto;
  static const detail::Served kServed = {"t0ken", 4711, [] { return std::string("page"); }};
  const std::string_view request = fuzz::text_of(data, size);
  const std::string response = detail::http_response(request, kServed);
  fuzz::require(response.starts_with("HTTP/1.1 "));
  // The page goes to who has its address, and asks as this machine does.
  if (response.starts_with("HTTP/1.1 200")) {
    fuzz::require(request.find("/t0ken/") != std::string_view::npos);
    fuzz::require(request.find(":4711") != std::string_view::npos);
  }
  return 0;
}
