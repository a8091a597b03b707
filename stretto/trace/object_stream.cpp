// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/object_stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kPadding = 16;
constexpr std::size_t kWindowBytes = std::size_t{1} << 18U;
// A line that is longer is none: a quote or a brace is missing somewhere.
constexpr std::size_t kLargestObjectBytes = std::size_t{1} << 22U;

}  // namespace

ObjectStream::ObjectStream(Input& input)
    : input_(input), window_(kWindowBytes + kPadding), at_(window_.data()), end_(at_) {}

std::uint64_t ObjectStream::offset() const noexcept {
  return base_ + static_cast<std::uint64_t>(at_ - window_.data());
}

bool ObjectStream::refill() {
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

bool ObjectStream::skip_space() {
  do {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) {
      ++at_;
    }
  } while (at_ == end_ && refill());
  return at_ < end_;
}

bool ObjectStream::pass_fault(const char* what, bool salvage) {
  ++lost_;
  if (!fault_) {
    const std::string packed = input_.fault();
    fault_ = Fault{
        offset(),
        packed.empty()
            ? std::string(what) + ", near " +
                  quote({at_, std::min<std::size_t>(24, static_cast<std::size_t>(end_ - at_))})
            : packed};
  }
  if (!salvage) {
    at_ = end_;
    eof_ = true;
    return false;
  }
  // The line may lie beyond the window: passed over in pieces.
  for (;;) {
    const auto left = static_cast<std::size_t>(end_ - at_);
    const auto* const newline = static_cast<const char*>(std::memchr(at_, '\n', left));
    if (newline == nullptr) {
      at_ = end_;
      if (!refill()) {
        return false;
      }
      continue;
    }
    at_ = newline + 1;
    if (!skip_space()) {
      return false;
    }
    if (*at_ == '{') {
      return true;
    }
  }
}

bool ObjectStream::next(std::string_view& object, bool salvage) {
  while (skip_space()) {
    if (*at_ != '{') {
      if (!pass_fault("not an object", salvage)) {
        return false;
      }
      continue;
    }
    const char* p = at_;
    ValueText value;
    Scan scan = read_value(p, end_, value);
    while (scan == Scan::kMore && static_cast<std::size_t>(end_ - at_) < kLargestObjectBytes &&
           refill()) {
      p = at_;
      scan = read_value(p, end_, value);
    }
    if (scan == Scan::kOk) {
      at_ = p;
      ++objects_;
      object = value.text;
      return true;
    }
    if (!pass_fault("an object that does not end", salvage)) {
      return false;
    }
  }
  if (!fault_ && !input_.fault().empty()) {
    fault_ = Fault{offset(), input_.fault()};
  }
  return false;
}

}  // namespace stretto::detail
