// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "stretto/trace/builder.hpp"
#include "stretto/trace/input.hpp"

/// Nsight Systems. Private to trace/: not installed.
namespace stretto::detail {

/// Reads an SQLite export where it lies.
void read_nsys_file(const std::filesystem::path& path, TraceBuilder& builder);
/// The same out of a stream (it was packed, or comes through a pipe): whole, into memory.
void read_nsys(Input& input, TraceBuilder& builder);

}  // namespace stretto::detail
