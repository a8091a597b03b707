// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/error.hpp"

#include <utility>

namespace stretto {
namespace {

std::string compose(const ErrorDetail& detail) {
  std::string text = detail.message;
  if (!detail.where.empty()) {
    text += " (" + detail.where + ")";
  }
  if (!detail.found.empty()) {
    text += "; found " + detail.found;
  }
  if (!detail.expected.empty()) {
    text += (detail.found.empty() ? "; expected " : ", expected ") + detail.expected;
  }
  if (!detail.help.empty()) {
    text += ". " + detail.help;
  }
  return text;
}

}  // namespace

std::string_view to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kParse:
      return "parse";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kBackend:
      return "backend";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kPeerLost:
      return "peer_lost";
    case ErrorCode::kNeverReady:
      return "never_ready";
    case ErrorCode::kReadyTwice:
      return "ready_twice";
  }
  return "unknown";
}

Error::Error(ErrorCode code, ErrorDetail detail)
    : std::runtime_error(compose(detail)), code_(code), detail_(std::move(detail)) {}

}  // namespace stretto
