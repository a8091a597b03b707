// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stretto/trace/builder.hpp"
#include "stretto/trace/event_scanner.hpp"

/// Private to trace/: not installed.
namespace stretto::detail {

/// Makes whole events out of those that come as a begin and an end: ph B and E, nested by process
/// and thread, and ph b and e, nested by category and id. Within one thread or id they come in the
/// order of their times, as Chrome's format demands. What is open is kept in memory, up to a limit.
class EventPairs {
 public:
  /// True if the event ended one that had begun: `whole` is that one as ph X would have written it.
  /// Its views hold until the next call. Other phases than those four are not for it.
  [[nodiscard]] bool take(const EventText& event, EventText& whole);

  /// Begins without an end, of those that were taken so far.
  [[nodiscard]] std::uint64_t unended() const noexcept { return passed_ + open_; }
  /// Ends without a begin.
  [[nodiscard]] std::uint64_t unbegun() const noexcept { return unbegun_; }

 private:
  struct Begun {
    std::string name, cat, ts, pid, tid;
    std::string args;  // with 16 zero bytes behind
    [[nodiscard]] std::size_t bytes() const noexcept;
  };

  /// Which begins and ends belong together.
  void set_key(const EventText& event);
  void begin(const EventText& event);

  std::unordered_map<std::string, std::vector<Begun>, TextHash, std::equal_to<>> stacks_;
  std::string key_;
  Begun ended_;  // what `whole` looks into
  std::string end_ts_;
  std::string length_;
  std::size_t open_bytes_ = 0;
  std::uint64_t open_ = 0;
  std::uint64_t passed_ = 0;  // begins that can have no end any more
  std::uint64_t unbegun_ = 0;
};

}  // namespace stretto::detail
