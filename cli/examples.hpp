// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stretto::cli {

/// A file that is part of the program.
struct ExampleFile {
  std::string_view name;
  std::span<const unsigned char> bytes;
};

/// The recording in examples/traces, one file per rank. PyTorch 2.13, gloo.
[[nodiscard]] std::span<const ExampleFile> example_trace() noexcept;

}  // namespace stretto::cli
