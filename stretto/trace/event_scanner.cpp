// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/event_scanner.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "stretto/base/text.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace stretto::detail {
namespace {

constexpr std::size_t kPadding = 16;
constexpr std::size_t kWindowBytes = std::size_t{1} << 20U;
// An event that is larger is no event: a quote is missing somewhere.
constexpr std::size_t kLargestMemberBytes = std::size_t{1} << 20U;
constexpr std::size_t kLargestValueBytes = std::size_t{64} << 20U;

bool is_space(char c) noexcept {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// First quote or backslash at or after `at`; may overrun `end` into the padding, which has none.
const char* find_quote(const char* at, const char* end) noexcept {
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
const char* find_structure(const char* at, const char* end) noexcept {
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
Scan read_string(const char*& at, const char* end, const char*& close) noexcept {
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

/// Behind the bracket that ends the container in which `at` is, `depth` deep.
Scan skip_container(const char*& at, const char* end, int depth) noexcept {
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
      continue;
    }
    const bool opens = (*p | 0x20) == '{';
    ++p;
    depth += opens ? 1 : -1;
    if (depth == 0) {
      at = p;
      return Scan::kOk;
    }
  }
}

void pass_space(const char*& at, const char* end) noexcept {
  while (at < end && is_space(*at)) {
    ++at;
  }
}

/// After a value: a comma or the closing bracket must follow. The comma is passed.
Scan pass_comma(const char*& at, const char* end, char close) noexcept {
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

Scan read_key(const char*& at, const char* end, std::string_view& key, bool& none) noexcept {
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

bool ends_plain(char c) noexcept {
  return c == ',' || c == '}' || c == ']' || is_space(c);
}

/// Phases that no reader of these events uses: flows, counters, instants, object life.
bool is_unused_phase(std::string_view ph) noexcept {
  return ph.size() == 1 && std::string_view("fstiCNDOPRn").find(ph[0]) != std::string_view::npos;
}

void append_utf8(std::string& out, unsigned code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0U | (code >> 6U));
    out += static_cast<char>(0x80U | (code & 0x3fU));
  } else {
    // Halves of surrogate pairs are kept apart: names are bytes here, and are made UTF-8 when
    // they are written.
    out += static_cast<char>(0xe0U | (code >> 12U));
    out += static_cast<char>(0x80U | ((code >> 6U) & 0x3fU));
    out += static_cast<char>(0x80U | (code & 0x3fU));
  }
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
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
    if (const Scan scan = skip_container(at, end, 1); scan != Scan::kOk) {
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
    unsigned code = 0;
    int digits = 0;
    if (c == 'u') {
      while (digits < 4 && i + 2 + static_cast<std::size_t>(digits) < text.size()) {
        const int digit = hex_digit(text[i + 2 + static_cast<std::size_t>(digits)]);
        if (digit < 0) {
          break;
        }
        code = code * 16 + static_cast<unsigned>(digit);
        ++digits;
      }
    }
    if (digits == 4) {
      append_utf8(out, code);
      i += 5;
    } else {
      out += '\\';  // a Windows path
    }
  }
  return out;
}

EventScanner::EventScanner(Input& input) : input_(input), window_(kWindowBytes + kPadding) {
  at_ = window_.data();
  end_ = at_;
}

std::uint64_t EventScanner::offset() const noexcept {
  return base_ + static_cast<std::uint64_t>(at_ - window_.data());
}

bool EventScanner::refill() {
  if (eof_) {
    return false;
  }
  const auto kept = static_cast<std::size_t>(end_ - at_);
  base_ += static_cast<std::uint64_t>(at_ - window_.data());
  std::memmove(window_.data(), at_, kept);
  if (kept + kPadding > window_.size() / 2) {
    window_.resize(2 * window_.size());
  }
  std::size_t size = kept;
  const std::size_t room = window_.size() - kPadding;
  while (size < room) {
    const std::size_t got = input_.read(std::span(window_).subspan(size, room - size));
    if (got == 0) {
      eof_ = true;
      break;
    }
    size += got;
  }
  at_ = window_.data();
  end_ = at_ + size;
  std::memset(window_.data() + size, 0, kPadding);
  return size > kept;
}

void EventScanner::skip_space() {
  do {
    pass_space(at_, end_);
  } while (at_ == end_ && refill());
}

void EventScanner::set_fault(const char* at, std::string what) {
  if (!fault_) {
    fault_ = Fault{base_ + static_cast<std::uint64_t>(at - window_.data()), std::move(what)};
  }
}

void EventScanner::end_of_text(const char* at, std::string_view inside) {
  const std::string packed = input_.fault();
  set_fault(at,
            packed.empty() ? "the text ends inside " + std::string(inside)
                           : packed + "; unpacked, it ends inside " + std::string(inside));
  place_ = Place::kEnd;
}

bool EventScanner::start() {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  (void)refill();
  if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(kByteOrderMark)) {
    at_ += kByteOrderMark.size();
  }
  skip_space();
  if (at_ == end_) {
    const std::string packed = input_.fault();
    set_fault(at_, packed.empty() ? "there is nothing in it" : packed);
  } else if (*at_ == '[') {
    ++at_;
    bare_array_ = true;
    had_array_ = true;
    place_ = Place::kEvents;
    return true;
  } else if (*at_ == '{') {
    ++at_;
    place_ = Place::kTop;
    return true;
  } else {
    set_fault(at_,
              "neither { nor [ but " +
                  quote({at_, std::min<std::size_t>(8, static_cast<std::size_t>(end_ - at_))}));
  }
  place_ = Place::kEnd;
  return false;
}

bool EventScanner::top_member(bool salvage) {
  for (;;) {
    const char* p = at_;
    std::string_view key;
    bool none = false;
    Scan scan = read_key(p, end_, key, none);
    if (scan == Scan::kOk && none) {
      at_ = p;
      place_ = Place::kEnd;
      if (!input_.fault().empty()) {
        set_fault(at_, input_.fault());
      }
      return true;
    }
    if (scan == Scan::kOk) {
      pass_space(p, end_);
      if (p < end_ && *p == '[' && key == "traceEvents") {
        at_ = p + 1;
        had_array_ = true;
        place_ = Place::kEvents;
        return true;
      }
      ValueText value;
      scan = read_value(p, end_, value);
      if (scan == Scan::kOk) {
        scan = pass_comma(p, end_, '}');
      }
      if (scan == Scan::kOk) {
        if (value.text.size() <= kLargestMemberBytes) {
          members_.push_back({std::string(key),
                              std::string(value.text) + std::string(kPadding, '\0'),
                              value.kind});
        }
        at_ = p;
        return true;
      }
    }
    if (scan == Scan::kMore) {
      if (static_cast<std::size_t>(end_ - at_) < kLargestValueBytes && refill()) {
        continue;
      }
      end_of_text(at_, had_array_ ? "what follows the events" : "what comes before the events");
      return false;
    }
    set_fault(p,
              "not JSON, near " +
                  quote({p, std::min<std::size_t>(24, static_cast<std::size_t>(end_ - p))}));
    if (!salvage || had_array_) {
      place_ = Place::kEnd;
      return false;
    }
    // Before the events a raw value is broken: look for them.
    constexpr std::string_view kEvents = "\"traceEvents\"";
    const std::string_view rest(p, static_cast<std::size_t>(end_ - p));
    const std::size_t found = rest.find(kEvents);
    if (found == std::string_view::npos) {
      at_ = end_ - std::min<std::size_t>(rest.size(), kEvents.size());
      if (!refill()) {
        place_ = Place::kEnd;
        return false;
      }
    } else {
      at_ = p + found;
    }
  }
}

Scan EventScanner::parse_event(const char*& at, EventText& event, bool& wanted) const noexcept {
  wanted = true;
  for (;;) {
    std::string_view key;
    ValueText value;
    bool none = false;
    if (const Scan scan = read_member(at, end_, key, value, none); scan != Scan::kOk || none) {
      return scan;
    }
    switch (key.size()) {
      case 2:
        if (key == "ph") {
          event.ph = value.text;
          wanted = !is_unused_phase(event.ph);
        } else if (key == "ts") {
          event.ts = value.text;
        } else if (key == "id") {
          event.id = value.text;
        }
        break;
      case 3:
        if (key == "cat") {
          event.cat = value.text;
          wanted = wanted && event.cat != "python_function";
        } else if (key == "dur") {
          event.dur = value.text;
        } else if (key == "pid") {
          event.pid = value.text;
        } else if (key == "tid") {
          event.tid = value.text;
        }
        break;
      case 4:
        if (key == "name") {
          event.name = value.text;
        } else if (key == "args" && value.kind == ValueKind::kContainer) {
          event.args = value.text;
        }
        break;
      default:
        break;
    }
    if (!wanted) {
      return skip_container(at, end_, 1);
    }
  }
}

bool EventScanner::resync() {
  // Behind the fault, the next `}`, comma, `{`: where an event ends and the next one begins. Inside
  // of an event that only happens in arrays of objects, whose elements are then passed over as they
  // have no phase.
  for (;;) {
    for (const char* p = at_;;) {
      p = static_cast<const char*>(std::memchr(p, '}', static_cast<std::size_t>(end_ - p)));
      if (p == nullptr) {
        at_ = end_;
        break;
      }
      const char* q = p + 1;
      pass_space(q, end_);
      if (q < end_ && *q == ',') {
        ++q;
        pass_space(q, end_);
      }
      if (q >= end_) {
        at_ = p;  // decided when there is more
        break;
      }
      if (*q == '{') {
        at_ = q;
        return true;
      }
      ++p;
    }
    if (!refill()) {
      return false;
    }
  }
}

bool EventScanner::event_in_array(EventText& event, bool salvage, bool& found) {
  found = false;
  skip_space();
  if (at_ == end_) {
    unclosed_ = !fault_ && input_.fault().empty();
    end_of_text(at_, "the array of events");
    return false;
  }
  if (*at_ == ',') {
    ++at_;
    return true;
  }
  if (*at_ == ']') {
    ++at_;
    place_ = bare_array_ ? Place::kEnd : Place::kTop;
    if (!bare_array_) {
      skip_space();
      if (at_ < end_ && *at_ == ',') {
        ++at_;
      }
    } else if (!input_.fault().empty()) {
      set_fault(at_, input_.fault());
    }
    return true;
  }
  Scan scan = Scan::kFault;
  const char* p = at_;
  if (*at_ == '{') {
    for (;;) {
      event = {};
      bool wanted = false;
      p = at_ + 1;
      scan = parse_event(p, event, wanted);
      if (scan == Scan::kOk) {
        found = wanted;
        break;
      }
      if (scan == Scan::kFault) {
        break;
      }
      if (static_cast<std::size_t>(end_ - at_) >= kLargestValueBytes) {
        p = at_;
        scan = Scan::kFault;
        break;
      }
      if (!refill()) {
        ++lost_;
        end_of_text(at_, "event " + std::to_string(events_ + 1));
        return false;
      }
    }
  }
  if (scan == Scan::kOk) {
    ++events_;
    at_ = p;
    return true;
  }
  set_fault(p,
            "not JSON in event " + std::to_string(events_ + 1) + ", near " +
                quote({p, std::min<std::size_t>(24, static_cast<std::size_t>(end_ - p))}));
  ++lost_;
  at_ = p;
  if (salvage && resync()) {
    return true;
  }
  place_ = Place::kEnd;
  return false;
}

bool EventScanner::next(EventText& event, bool salvage) {
  for (;;) {
    switch (place_) {
      case Place::kStart:
        if (!start()) {
          return false;
        }
        break;
      case Place::kTop:
        if (!top_member(salvage)) {
          return false;
        }
        break;
      case Place::kEvents: {
        bool found = false;
        if (!event_in_array(event, salvage, found)) {
          return false;
        }
        if (found) {
          return true;
        }
        break;
      }
      case Place::kEnd:
        return false;
    }
  }
}

}  // namespace stretto::detail
