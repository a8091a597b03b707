// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/event_scanner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kPadding = 16;
constexpr std::size_t kFirstWindowBytes = std::size_t{64} << 10U;
constexpr std::size_t kWindowBytes = std::size_t{1} << 20U;
// What stands beside the events and is larger is passed over.
constexpr std::size_t kLargestMemberBytes = std::size_t{1} << 20U;
// An event that is larger is no event: a bracket is missing somewhere.
constexpr std::size_t kLargestEventBytes = std::size_t{16} << 20U;

/// Phases that no reader of these events uses: flows, counters, instants, object life.
bool is_unused_phase(std::string_view ph) noexcept {
  return ph.size() == 1 && std::string_view("fstiCNDOPRn").find(ph[0]) != std::string_view::npos;
}

/// A whole Python frame. Of one that comes as a begin and an end only the begin must have a
/// category, so that both are needed to tell which end is whose.
bool is_python_frame(const EventText& event) noexcept {
  return event.cat == "python_function" && event.ph == "X";
}

/// Whether `at` opens an event: behind a comma or brace (not before `begin`) and before one of the
/// keys that writers begin events with.
bool begins_event(const char* at, const char* begin, const char* end) noexcept {
  const char* before = at;
  while (before > begin && is_space(before[-1])) {
    --before;
  }
  if (before == begin || (before[-1] != ',' && before[-1] != '}')) {
    return false;
  }
  ++at;
  pass_space(at, end);
  const std::string_view rest(at, static_cast<std::size_t>(end - at));
  constexpr std::array<std::string_view, 9> kKeys = {"\"ph\"",
                                                     "\"name\"",
                                                     "\"cat\"",
                                                     "\"pid\"",
                                                     "\"tid\"",
                                                     "\"ts\"",
                                                     "\"dur\"",
                                                     "\"args\"",
                                                     "\"id\""};
  return std::any_of(
      kKeys.begin(), kKeys.end(), [&](std::string_view key) { return rest.starts_with(key); });
}

}  // namespace

EventScanner::EventScanner(Input& input) : input_(input), window_(kFirstWindowBytes + kPadding) {
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
  if (base_ != 0 && window_.size() < kWindowBytes) {
    window_.resize(kWindowBytes + kPadding);  // small files do with the first
  }
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

std::string EventScanner::near(const char* at) const {
  return quote({at, std::min<std::size_t>(24, static_cast<std::size_t>(end_ - at))});
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
    set_fault(at_, "neither { nor [ but " + near(at_));
  }
  place_ = Place::kEnd;
  return false;
}

void EventScanner::end_of_document() {
  place_ = Place::kEnd;
  // To the end of the input: only there is known whether what was packed is whole.
  skip_space();
  if (at_ != end_) {
    set_fault(at_, "something comes after the end of the trace: " + near(at_));
  } else if (!input_.fault().empty()) {
    set_fault(at_, input_.fault());
  }
}

Scan EventScanner::parse_member(const char*& at) {
  std::string_view key;
  bool none = false;
  if (const Scan scan = read_key(at, end_, key, none); scan != Scan::kOk) {
    return scan;
  }
  if (none) {
    at_ = at;
    end_of_document();
    return Scan::kOk;
  }
  pass_space(at, end_);
  if (at < end_ && *at == '[' && key == "traceEvents") {
    at_ = at + 1;
    had_array_ = true;
    place_ = Place::kEvents;
    return Scan::kOk;
  }
  ValueText value;
  if (const Scan scan = read_value(at, end_, value); scan != Scan::kOk) {
    return scan;
  }
  if (const Scan scan = pass_comma(at, end_, '}'); scan != Scan::kOk) {
    return scan;
  }
  if (value.text.size() <= kLargestMemberBytes) {
    members_.push_back(
        {std::string(key), std::string(value.text) + std::string(kPadding, '\0'), value.kind});
  }
  at_ = at;
  return Scan::kOk;
}

Scan EventScanner::skip_string() {
  for (;;) {
    const char* const p = find_quote(at_, end_);
    if (p + 1 >= end_) {  // what follows it is needed, too
      at_ = std::min(p, end_);
      if (!refill()) {
        return Scan::kMore;
      }
      continue;
    }
    at_ = p + 1;
    if (*p == '"') {
      return follows_string(*at_) ? Scan::kOk : Scan::kFault;
    }
    ++at_;  // whatever is escaped
  }
}

Scan EventScanner::skip_member() {
  std::string_view key;
  bool none = false;
  if (const Scan scan = read_key(at_, end_, key, none); scan != Scan::kOk || none) {
    return Scan::kFault;  // a key as large as that is none
  }
  skip_space();
  for (int depth = 0;;) {
    const char* const p = find_structure(at_, end_);
    at_ = std::min(p, end_);
    if (at_ == end_) {
      if (!refill()) {
        return Scan::kMore;
      }
      continue;
    }
    ++at_;
    if (*p == '"') {
      if (const Scan scan = skip_string(); scan != Scan::kOk) {
        return scan;
      }
    } else {
      depth += (*p | 0x20) == '{' ? 1 : -1;
    }
    if (depth <= 0) {
      break;
    }
  }
  skip_space();
  return at_ == end_ ? Scan::kMore : pass_comma(at_, end_, '}');
}

bool EventScanner::find_events() {
  constexpr std::string_view kEvents = "\"traceEvents\"";
  for (;;) {
    const std::string_view rest(at_, static_cast<std::size_t>(end_ - at_));
    if (const std::size_t found = rest.find(kEvents); found != std::string_view::npos) {
      at_ += found;
      return true;
    }
    at_ = end_ - std::min(rest.size(), kEvents.size() - 1);
    if (!refill()) {
      return false;
    }
  }
}

bool EventScanner::top_member(bool salvage) {
  for (;;) {
    const char* p = at_;
    Scan scan = parse_member(p);
    if (scan == Scan::kMore) {
      if (static_cast<std::size_t>(end_ - at_) > kLargestMemberBytes) {
        scan = skip_member();
        p = at_;
      } else if (refill()) {
        continue;
      }
    }
    if (scan == Scan::kOk) {
      return true;
    }
    if (scan == Scan::kMore) {
      end_of_text(at_, had_array_ ? "what follows the events" : "what comes before the events");
    } else {
      set_fault(p, "not JSON, near " + near(p));
    }
    // Before the events a raw value is broken: look for them. Behind them, a bracket may have ended
    // them that is one too many.
    if (salvage && had_array_ && scan == Scan::kFault && resync()) {
      place_ = Place::kEvents;
      return true;
    }
    at_ += at_ == end_ ? 0 : 1;
    if (!salvage || had_array_ || !find_events()) {
      place_ = Place::kEnd;
      return false;
    }
    place_ = Place::kTop;
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
          wanted = !is_unused_phase(event.ph) && !is_python_frame(event);
        } else if (key == "ts") {
          event.ts = value.text;
        } else if (key == "id") {
          event.id = value.text;
        }
        break;
      case 3:
        if (key == "cat") {
          event.cat = value.text;
          wanted = wanted && !is_python_frame(event);
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
      return skip_container(at, end_, true);
    }
  }
}

bool EventScanner::resync() {
  // The next brace that opens an event: behind a comma or another brace, and before a key that
  // events begin with. An object in an array of some event's arguments may look like that; it then
  // has no phase, and is passed over.
  constexpr std::size_t kBefore = 256;  // of white space
  constexpr std::ptrdiff_t kBehind = 64;
  for (;;) {
    const char* p = at_;
    while (p + 1 < end_) {
      const void* const found = std::memchr(p + 1, '{', static_cast<std::size_t>(end_ - (p + 1)));
      if (found == nullptr) {
        break;
      }
      p = static_cast<const char*>(found);
      if (end_ - p < kBehind && !eof_) {
        break;  // decided when there is more
      }
      if (begins_event(p, at_, end_)) {
        at_ = p;
        recovering_ = true;
        return true;
      }
    }
    if (eof_) {
      at_ = end_;
      place_ = Place::kEnd;
      return false;
    }
    const char* const undecided = end_ - p < kBehind ? p : end_;
    at_ = undecided - std::min(kBefore, static_cast<std::size_t>(undecided - at_));
    (void)refill();  // if there is no more, all that was undecided is decided now
  }
}

bool EventScanner::end_of_array(bool salvage) {
  ++at_;
  if (bare_array_) {
    end_of_document();
    if (salvage && at_ != end_ && resync()) {
      place_ = Place::kEvents;
    }
    return true;
  }
  place_ = Place::kTop;
  return true;
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
    return end_of_array(salvage);
  }
  Scan scan = Scan::kFault;
  const char* p = at_;
  while (*at_ == '{') {
    bool wanted = false;
    event = {};
    p = at_ + 1;
    scan = parse_event(p, event, wanted);
    if (scan == Scan::kOk) {
      at_ = p;
      if (recovering_ && event.ph.empty() && event.cat.empty()) {
        return resync();
      }
      recovering_ = false;
      ++events_;
      found = wanted;
      return true;
    }
    if (scan == Scan::kFault) {
      break;
    }
    if (static_cast<std::size_t>(end_ - at_) >= kLargestEventBytes) {
      p = at_;
      scan = Scan::kFault;
      break;
    }
    if (!refill()) {
      break;
    }
  }
  ++lost_;
  const std::string number = std::to_string(events_ + 1);
  if (scan == Scan::kMore) {
    end_of_text(at_, "event " + number);
  } else {
    set_fault(p, "not JSON in event " + number + ", near " + near(p));
  }
  // At the end of the text, too: a bracket too many may have hidden events that are whole.
  if (salvage && resync()) {
    place_ = Place::kEvents;
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
