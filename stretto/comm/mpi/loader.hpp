// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/base/error.hpp"
#include "stretto/comm/mpi/module/module.hpp"
#include "stretto/comm/rank_environment.hpp"

namespace stretto::detail {

/// Loads the module for the MPI of this process; it is never unloaded, for no MPI can be.
/// @throws Error kUnavailable, saying where it was looked for and what to install.
[[nodiscard]] const MpiModule& load_mpi_module(const EnvironmentReader& read);

/// What MPI says of an error code.
[[nodiscard]] std::string mpi_error_text(const MpiModule& mpi, int code);

/// @throws Error kBackend if `code` is one; `doing` is what was tried.
void check_mpi(const MpiModule& mpi, int code, const std::string& doing);

}  // namespace stretto::detail
