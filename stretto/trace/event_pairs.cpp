// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/event_pairs.hpp"

#include <algorithm>
#include <utility>

namespace stretto::detail {
namespace {

constexpr std::size_t kPadding = 16;

/// As parse_microseconds() reads it.
std::string microseconds(std::int64_t ns) {
  const std::int64_t size = ns < 0 ? -ns : ns;
  std::string fraction = std::to_string(size % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return (ns < 0 ? "-" : "") + std::to_string(size / 1000) + "." + fraction;
}

}  // namespace

std::size_t EventPairs::Begun::bytes() const noexcept {
  return sizeof(*this) + name.size() + cat.size() + ts.size() + pid.size() + tid.size() +
         args.size();
}

void EventPairs::set_key(const EventText& event) {
  const bool thread = event.ph == "B" || event.ph == "E";
  key_ = thread ? "t" : "a";
  // No text of JSON has a raw line feed, so that none makes two keys one.
  for (const std::string_view part :
       {thread ? event.pid : event.cat, thread ? event.tid : event.id}) {
    key_ += part;
    key_ += '\n';
  }
}

void EventPairs::begin(const EventText& event) {
  // A file of begins only must not fill the memory.
  constexpr std::size_t kMostOpenBytes = std::size_t{8} << 20U;
  Begun begun{std::string(event.name),
              std::string(event.cat),
              std::string(event.ts),
              std::string(event.pid),
              std::string(event.tid),
              {}};
  if (!event.args.empty()) {
    begun.args = std::string(event.args) + std::string(kPadding, '\0');
  }
  if (open_bytes_ + begun.bytes() > kMostOpenBytes) {
    ++passed_;
    return;
  }
  open_bytes_ += begun.bytes();
  ++open_;
  stacks_[key_].push_back(std::move(begun));
}

bool EventPairs::take(const EventText& event, EventText& whole) {
  set_key(event);
  if (event.ph == "B" || event.ph == "b") {
    begin(event);
    return false;
  }
  const auto found = stacks_.find(key_);
  if (found == stacks_.end()) {
    ++unbegun_;
    return false;
  }
  // An end may leave out its name. One that is not the innermost's ends the one of its name, and
  // what is inside of that was never ended.
  std::vector<Begun>& stack = found->second;
  std::size_t depth = stack.size();
  while (!event.name.empty() && depth > 0 && stack[depth - 1].name != event.name) {
    --depth;
  }
  if (depth == 0) {
    ++unbegun_;
    return false;
  }
  ended_ = std::move(stack[depth - 1]);
  std::size_t bytes = ended_.bytes();
  for (std::size_t i = depth; i < stack.size(); ++i) {
    bytes += stack[i].bytes();
    ++passed_;
    --open_;
  }
  --open_;
  open_bytes_ -= bytes;
  stack.resize(depth - 1);
  if (stack.empty()) {
    stacks_.erase(found);  // ids are many, and used once
  }
  if (ended_.args.empty() && !event.args.empty()) {
    ended_.args = std::string(event.args) + std::string(kPadding, '\0');
  }
  whole = {};
  whole.ph = "X";
  whole.cat = ended_.cat;
  whole.name = ended_.name;
  whole.ts = ended_.ts;
  whole.pid = ended_.pid;
  whole.tid = ended_.tid;
  if (!ended_.args.empty()) {
    whole.args = std::string_view(ended_.args).substr(0, ended_.args.size() - kPadding);
  }
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  if (!parse_microseconds(event.ts, end_ns)) {
    end_ts_ = std::string(event.ts);
    whole.ts = end_ts_;  // for the reader to name
  } else if (parse_microseconds(ended_.ts, begin_ns)) {
    length_ = microseconds(end_ns - begin_ns);
    whole.dur = length_;
  }
  return true;
}

}  // namespace stretto::detail
