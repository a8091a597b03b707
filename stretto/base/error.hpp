// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace stretto {

/// What kind of failure an Error reports. The names in JSON are the enumerators in snake case
/// without the `k`: `peer_lost`.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,  ///< The caller passed something that can never work.
  kParse,            ///< A file or text does not have the promised form.
  kUnavailable,      ///< This machine or build lacks what is needed.
  kTimeout,          ///< Something did not happen within its time.
  kBackend,          ///< The layer below (operating system, MPI) failed.
  kMismatch,         ///< Ranks disagree: plans, sizes, types.
  kPeerLost,         ///< Another rank died or left.
  kNeverReady,       ///< A step was finished before all its gradients were ready.
  kReadyTwice,       ///< A gradient was reported ready twice in one step.
};

[[nodiscard]] std::string_view to_string(ErrorCode code) noexcept;

/// The five parts of an error message. Only `message` is required; empty parts are not printed.
struct ErrorDetail {
  std::string message;      ///< What went wrong, one sentence, no trailing full stop.
  std::string where;        ///< File and position, flag, rank, step or bucket.
  std::string found;        ///< What was there,
  std::string expected;     ///< and what should have been.
  std::string help;         ///< What to do about it.
  bool secondhand = false;  ///< Another rank failed first, and its own Error says why.
};

/// The one exception type of the library. what() is the whole text on one line:
/// `message (where); found X, expected Y. help`.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, ErrorDetail detail);
  Error(ErrorCode code, std::string message)
      : Error(code, ErrorDetail{std::move(message), {}, {}, {}, {}}) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }
  [[nodiscard]] const ErrorDetail& detail() const noexcept { return detail_; }

 private:
  ErrorCode code_;
  ErrorDetail detail_;
};

}  // namespace stretto
