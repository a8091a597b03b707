// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/json_text.hpp"

namespace stretto::detail {
namespace {

void append_utf8(std::string& out, unsigned code) {
  const auto tail = [&](unsigned shift) {
    out += static_cast<char>(0x80U | ((code >> shift) & 0x3fU));
  };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0U | (code >> 6U));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0U | (code >> 12U));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xf0U | (code >> 18U));
    tail(12);
    tail(6);
    tail(0);
  }
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/// The number of a `\u1234` at `at`, -1 if there is none.
int unicode_escape(std::string_view text, std::size_t at) noexcept {
  if (at + 6 > text.size() || text[at] != '\\' || text[at + 1] != 'u') {
    return -1;
  }
  int code = 0;
  for (const char c : text.substr(at + 2, 4)) {
    const int digit = hex_digit(c);
    if (digit < 0) {
      return -1;
    }
    code = code * 16 + digit;
  }
  return code;
}

}  // namespace

Scan read_value(const char*& at, const char* end, ValueText& value) noexcept {
  pass_space(at, end);
  if (at >= end) {
    return Scan::kMore;
  }
  const char* const begin = at;
  if (*at == '"') {
    ++at;
    const char* close = nullptr;
    if (const Scan scan = read_string(at, end, close); scan != Scan::kOk) {
      return scan;
    }
    value = {{begin + 1, static_cast<std::size_t>(close - begin - 1)}, ValueKind::kString};
    return Scan::kOk;
  }
  if (*at == '{' || *at == '[') {
    ++at;
    if (const Scan scan = skip_container(at, end, *begin == '{'); scan != Scan::kOk) {
      return scan;
    }
    value = {{begin, static_cast<std::size_t>(at - begin)}, ValueKind::kContainer};
    return Scan::kOk;
  }
  while (at < end && !ends_plain(*at) && *at != '"' && *at != ':') {
    ++at;
  }
  if (at >= end) {
    return Scan::kMore;
  }
  if (at == begin) {
    return Scan::kFault;
  }
  value = {{begin, static_cast<std::size_t>(at - begin)}, ValueKind::kPlain};
  return Scan::kOk;
}

Scan read_member(const char*& at,
                 const char* end,
                 std::string_view& key,
                 ValueText& value,
                 bool& none) noexcept {
  if (const Scan scan = read_key(at, end, key, none); scan != Scan::kOk || none) {
    return scan;
  }
  if (const Scan scan = read_value(at, end, value); scan != Scan::kOk) {
    return scan;
  }
  return pass_comma(at, end, '}');
}

Scan read_element(const char*& at, const char* end, ValueText& value, bool& none) noexcept {
  pass_space(at, end);
  if (at < end && *at == ']') {
    ++at;
    none = true;
    return Scan::kOk;
  }
  if (const Scan scan = read_value(at, end, value); scan != Scan::kOk) {
    return scan;
  }
  return pass_comma(at, end, ']');
}

std::string unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[i + 1];
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
    if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
      out += kBytes[known];
      ++i;
      continue;
    }
    const int code = unicode_escape(text, i);
    if (code < 0) {
      out += '\\';  // a Windows path
      continue;
    }
    i += 5;
    // Two halves are one character; half of one stays: names are bytes here, and are made UTF-8
    // when they are written.
    const int low = code >= 0xd800 && code < 0xdc00 ? unicode_escape(text, i + 1) : -1;
    if (low >= 0xdc00 && low < 0xe000) {
      append_utf8(out, static_cast<unsigned>(0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)));
      i += 6;
    } else {
      append_utf8(out, static_cast<unsigned>(code));
    }
  }
  return out;
}

}  // namespace stretto::detail
