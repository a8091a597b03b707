// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace stretto::detail {

/// What is served, and to whom.
struct Served {
  std::string token;  ///< The page is at /TOKEN/, and nothing is anywhere else.
  int port = 0;       ///< For the Host header, which must name this machine's own loopback.
  std::function<std::string()> page;
};

/// The whole response to the head of a request, as HTTP/1.1 with `Connection: close`. A Host that
/// is not 127.0.0.1 or localhost with the right port is refused before anything else is looked at:
/// it is a page of another site whose name was made to lead here (DNS rebinding). Never throws what
/// `page` throws: that becomes a 500 with its text.
[[nodiscard]] std::string http_response(std::string_view request, const Served& served);

}  // namespace stretto::detail
