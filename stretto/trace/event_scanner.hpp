// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/trace/input.hpp"
#include "stretto/trace/json_text.hpp"

/// Events out of trace JSON in a sliding window. Private to trace/: not installed.
///
/// Not a JSON parser from a library, for three reasons that the files in the wild give: most events
/// are skipped, which can be done without looking at their values; a fault must cost one event and
/// not the file; and times must not go through a double.
namespace stretto::detail {

/// The members of a trace event that a reader needs, raw; empty when absent.
struct EventText {
  std::string_view ph, cat, name, ts, dur, pid, tid, id;
  std::string_view args;  ///< With its braces.
};

struct Fault {
  std::uint64_t offset = 0;  ///< Byte in the unpacked text.
  std::string what;
};

class EventScanner {
 public:
  /// A top-level value beside the events.
  struct Member {
    std::string key;
    std::string padded;  ///< With 16 zero bytes behind, so that it can be read like the window.
    ValueKind kind = ValueKind::kPlain;
    [[nodiscard]] std::string_view text() const noexcept {
      return std::string_view(padded).substr(0, padded.size() - 16);
    }
  };

  explicit EventScanner(Input& input);

  /// The next event of the array `traceEvents`, or of a bare array. Events of which nothing is ever
  /// kept (flows, Python frames) are counted and passed over. Views hold until the next call.
  /// After a fault: goes on at the next event if `salvage`, else ends.
  [[nodiscard]] bool next(EventText& event, bool salvage);

  [[nodiscard]] std::uint64_t events() const noexcept { return events_; }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] const std::optional<Fault>& fault() const noexcept { return fault_; }
  [[nodiscard]] bool is_array() const noexcept { return bare_array_; }
  /// The text ended behind a whole event, but the array was never closed: how a writer that is
  /// still at work, or was never told to stop, leaves it. Is also the fault.
  [[nodiscard]] bool is_unclosed() const noexcept { return unclosed_; }
  /// An array of events was there, be it empty.
  [[nodiscard]] bool has_events() const noexcept { return had_array_; }
  [[nodiscard]] const std::vector<Member>& members() const noexcept { return members_; }
  /// Text read so far.
  [[nodiscard]] std::uint64_t offset() const noexcept;

 private:
  enum class Place : std::uint8_t { kStart, kTop, kEvents, kEnd };

  [[nodiscard]] bool start();
  [[nodiscard]] bool top_member(bool salvage);
  /// One member at `at`, or the begin of the events, or the end of the document.
  [[nodiscard]] Scan parse_member(const char*& at);
  /// Passes over a member at at_ that is too large to be kept.
  [[nodiscard]] Scan skip_member();
  [[nodiscard]] Scan skip_string();
  [[nodiscard]] bool find_events();
  void end_of_document();
  [[nodiscard]] bool end_of_array(bool salvage);
  [[nodiscard]] bool event_in_array(EventText& event, bool salvage, bool& found);
  [[nodiscard]] Scan parse_event(const char*& at, EventText& event, bool& wanted) const noexcept;
  /// To the next event behind the fault in the one at at_.
  [[nodiscard]] bool resync();
  /// More text behind what is there; false at the end of the input.
  [[nodiscard]] bool refill();
  void skip_space();
  void set_fault(const char* at, std::string what);
  [[nodiscard]] std::string near(const char* at) const;
  void end_of_text(const char* at, std::string_view inside);

  Input& input_;
  std::vector<char> window_;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  std::uint64_t base_ = 0;  // of window_[0] in the text
  bool eof_ = false;
  Place place_ = Place::kStart;
  bool bare_array_ = false;
  bool had_array_ = false;
  bool recovering_ = false;  // what comes next is taken for an event, and may be a part of one
  bool unclosed_ = false;
  std::uint64_t events_ = 0;
  std::uint64_t lost_ = 0;
  std::optional<Fault> fault_;
  std::vector<Member> members_;
};

}  // namespace stretto::detail
