// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/run/launcher.hpp"

namespace stretto::cli {

/// Why a job failed.
struct Failure {
  Error error;
  std::string consequences;  ///< What happened to the other ranks because of it; may be empty.
  int code = 1;              ///< Exit code.
};

/// What one rank left behind when it failed.
struct RankError {
  int rank = 0;
  Error error;
};

/// The cause among the many failures of a job: a rank that was killed before one that failed by
/// itself, and that before one that only lost its peer.
[[nodiscard]] Failure root_cause(const LaunchResult& result, const std::vector<RankError>& errors);

}  // namespace stretto::cli
