// SPDX-License-Identifier: Apache-2.0
#include "stretto/serve/http_response.hpp"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace stretto::detail {
namespace {

constexpr std::string_view kText = "text/plain; charset=utf-8";

std::string response(std::string_view status,
                     std::string_view type,
                     std::string_view body,
                     bool with_body,
                     std::string_view more = "") {
  std::string text = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: "
      "nosniff\r\n"
      "X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n{}\r\n",
      status,
      type,
      body.size(),
      more);
  return with_body ? text.append(body) : text;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

/// Of the header that must be there exactly once; empty if it is not.
std::string_view host_of(std::string_view lines) {
  std::string_view found;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(std::min(lines.size(), line.size() + 2));
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && same_name(line.substr(0, colon), "host")) {
      if (!found.empty()) {
        return {};
      }
      found = trimmed(line.substr(colon + 1));
    }
  }
  return found;
}

/// Takes as long wherever they differ.
bool equal(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

}  // namespace

std::string http_response(std::string_view request, const Served& served) {
  const std::string_view first = request.substr(0, request.find("\r\n"));
  const std::string_view lines = request.substr(std::min(request.size(), first.size() + 2));
  const std::string_view method = first.substr(0, first.find(' '));
  const bool head = method == "HEAD";
  const std::string_view host = host_of(lines);
  if (host != fmt::format("127.0.0.1:{}", served.port) &&
      host != fmt::format("localhost:{}", served.port)) {
    return response("403 Forbidden", kText, "This is served to this machine only.\n", !head);
  }
  if (method != "GET" && !head) {
    return response("405 Method Not Allowed", kText, "GET only.\n", true, "Allow: GET, HEAD\r\n");
  }
  const std::string_view rest = first.substr(std::min(first.size(), method.size() + 1));
  const std::string_view target = rest.substr(0, rest.find(' '));
  const std::string_view version = rest.substr(std::min(rest.size(), target.size() + 1));
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return response("400 Bad Request", kText, "Not HTTP/1.1.\n", !head);
  }
  if (!equal(target, "/" + served.token + "/")) {
    return response(
        "404 Not Found", kText, "Open the address that stretto report --serve printed.\n", !head);
  }
  try {
    return response("200 OK", "text/html; charset=utf-8", served.page(), !head);
  } catch (const std::exception& error) {
    return response("500 Internal Server Error", kText, std::string(error.what()) + "\n", !head);
  }
}

}  // namespace stretto::detail
