// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/// JSON as text: where a value begins and ends, tolerantly. Private to trace/: not installed.
namespace stretto::detail {

enum class Scan : std::uint8_t {
  kOk,
  kMore,   ///< The text ends inside of what was asked for.
  kFault,  ///< Not JSON, even tolerantly.
};

enum class ValueKind : std::uint8_t { kString, kPlain, kContainer };

/// One value as it stands in the text: a string without its quotes and with its escapes, a number
/// or bare word, an object or array whole.
struct ValueText {
  std::string_view text;
  ValueKind kind = ValueKind::kPlain;
};

/// Reads the value at `at` and moves it behind. Control bytes in strings, bytes that are not UTF-8,
/// unknown escapes and bare words (N/A, nan) are let pass.
/// 16 bytes beyond `end` must be readable; what they are does not matter.
[[nodiscard]] Scan read_value(const char*& at, const char* end, ValueText& value) noexcept;

/// Reads one member of an object: `at` after the brace or after the last value. `none` is set at
/// the closing brace, which is passed. A comma too many is let pass.
[[nodiscard]] Scan read_member(
    const char*& at, const char* end, std::string_view& key, ValueText& value, bool& none) noexcept;

/// Reads one element of an array, in the same way.
[[nodiscard]] Scan read_element(const char*& at,
                                const char* end,
                                ValueText& value,
                                bool& none) noexcept;

/// Calls `member(key, value)` for each member of an object (whole, with its braces) until something
/// is wrong. 16 bytes beyond it must be readable.
template <typename Member>
void for_each_member(std::string_view object, Member member) {
  const char* at = object.data() + 1;
  const char* const end = object.data() + object.size();
  for (;;) {
    std::string_view key;
    ValueText value;
    bool none = false;
    if (read_member(at, end, key, value, none) != Scan::kOk || none) {
      return;
    }
    member(key, value);
  }
}

/// The string with its escapes resolved; unknown ones stay as they are.
[[nodiscard]] std::string unescape(std::string_view text);

// What every byte of a trace goes through: inlined.

inline bool is_space(char c) noexcept {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// First quote or backslash at or after `at`; may overrun `end` into the padding, which has none.
inline const char* find_quote(const char* at, const char* end) noexcept {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i slash = _mm_set1_epi8('\\');
  for (; at < end; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const int mask =
        _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, slash)));
    if (mask != 0) {
      return at + std::countr_zero(static_cast<unsigned>(mask));
    }
  }
#else
  for (; at < end && *at != '"' && *at != '\\'; ++at) {
  }
#endif
  return at;
}

/// First quote, brace or bracket at or after `at`.
inline const char* find_structure(const char* at, const char* end) noexcept {
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"');
  const __m128i bit = _mm_set1_epi8(0x20);  // [ and ] become { and }
  const __m128i open = _mm_set1_epi8('{');
  const __m128i close = _mm_set1_epi8('}');
  for (; at < end; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i folded = _mm_or_si128(bytes, bit);
    const int mask = _mm_movemask_epi8(
        _mm_or_si128(_mm_cmpeq_epi8(bytes, quote),
                     _mm_or_si128(_mm_cmpeq_epi8(folded, open), _mm_cmpeq_epi8(folded, close))));
    if (mask != 0) {
      return at + std::countr_zero(static_cast<unsigned>(mask));
    }
  }
#else
  for (; at < end && *at != '"' && (*at | 0x20) != '{' && (*at | 0x20) != '}'; ++at) {
  }
#endif
  return at;
}

/// `at` behind the opening quote; moved behind the closing one, which `close` points to.
inline Scan read_string(const char*& at, const char* end, const char*& close) noexcept {
  for (const char* p = at;;) {
    p = find_quote(p, end);
    if (p >= end) {
      return Scan::kMore;
    }
    if (*p == '"') {
      close = p;
      at = p + 1;
      return Scan::kOk;
    }
    p += 2;  // whatever is escaped
  }
}

/// What may follow the closing quote of a key or value.
inline bool follows_string(char c) noexcept {
  return c == ',' || c == ':' || c == '}' || c == ']' || is_space(c);
}

/// Whether the last thing before `at`, but not before `begin`, is a colon.
inline bool follows_colon(const char* at, const char* begin) noexcept {
  while (at > begin && is_space(at[-1])) {
    --at;
  }
  return at > begin && at[-1] == ':';
}

/// Behind the bracket that ends the container in which `at` is. Of what is in it only strings and
/// brackets are looked at, and these twice: a quote too many turns strings inside out and hides all
/// brackets up to the next such quote; a brace too few makes what follows, up to the end of the
/// text, a part of this. Either may be many events away. On a fault `at` is there.
inline Scan skip_container(const char*& at, const char* end, bool object) noexcept {
  int depth = 1;
  for (const char* p = at;;) {
    p = find_structure(p, end);
    if (p >= end) {
      return Scan::kMore;
    }
    if (*p == '"') {
      ++p;
      const char* close = nullptr;
      if (const Scan scan = read_string(p, end, close); scan != Scan::kOk) {
        return scan;
      }
      if (p >= end) {
        return Scan::kMore;
      }
      if (!follows_string(*p)) {
        at = p;
        return Scan::kFault;
      }
      continue;
    }
    const bool opens = (*p | 0x20) == '{';
    if (depth == 1 && object && (opens ? !follows_colon(p, at) : *p != '}')) {
      at = p;
      return Scan::kFault;
    }
    ++p;
    depth += opens ? 1 : -1;
    if (depth == 0) {
      at = p;
      return Scan::kOk;
    }
  }
}

inline void pass_space(const char*& at, const char* end) noexcept {
  while (at < end && is_space(*at)) {
    ++at;
  }
}

/// After a value: a comma or the closing bracket must follow. The comma is passed.
inline Scan pass_comma(const char*& at, const char* end, char close) noexcept {
  pass_space(at, end);
  if (at >= end) {
    return Scan::kMore;
  }
  if (*at == ',') {
    ++at;
    return Scan::kOk;
  }
  return *at == close ? Scan::kOk : Scan::kFault;
}

inline Scan read_key(const char*& at, const char* end, std::string_view& key, bool& none) noexcept {
  for (;;) {
    pass_space(at, end);
    if (at >= end) {
      return Scan::kMore;
    }
    if (*at == '"') {
      break;
    }
    if (*at == '}') {
      ++at;
      none = true;
      return Scan::kOk;
    }
    if (*at != ',') {
      return Scan::kFault;
    }
    ++at;
  }
  ++at;
  const char* const begin = at;
  const char* close = nullptr;
  if (const Scan scan = read_string(at, end, close); scan != Scan::kOk) {
    return scan;
  }
  key = {begin, static_cast<std::size_t>(close - begin)};
  pass_space(at, end);
  if (at >= end) {
    return Scan::kMore;
  }
  if (*at != ':') {
    return Scan::kFault;
  }
  ++at;
  return Scan::kOk;
}

inline bool ends_plain(char c) noexcept {
  return c == ',' || c == '}' || c == ']' || is_space(c);
}

}  // namespace stretto::detail
