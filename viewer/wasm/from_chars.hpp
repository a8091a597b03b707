// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included before every file of the WebAssembly: libc++ 14 has std::from_chars for integers only.
// Numbers in the page are short and written by itself or by Stretto, so strtod on a copy will do.
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace std {

inline from_chars_result from_chars(const char* first,
                                    const char* last,
                                    double& value,
                                    chars_format /*format*/ = chars_format::general) {
  const char* end = first;
  while (end != last && *end != '\0' && strchr("0123456789.eE+-", *end) != nullptr) {
    ++end;
  }
  if (first == end || *first == '+') {
    return {first, errc::invalid_argument};
  }
  const string text(first, end);
  char* stop = nullptr;
  const double read = strtod(text.c_str(), &stop);
  if (stop == text.c_str()) {
    return {first, errc::invalid_argument};
  }
  value = read;
  return {first + (stop - text.c_str()), errc()};
}

}  // namespace std
