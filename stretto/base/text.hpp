// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

/// Words for error messages.
namespace stretto {

/// `text` in single quotes, fit to be printed: control characters as `\x0a`, and cut with `...`
/// after 60 bytes, so that hostile input cannot flood or confuse a terminal.
[[nodiscard]] std::string quote(std::string_view text);

/// `a, b, c`.
[[nodiscard]] std::string join(std::span<const std::string_view> words);

/// The word of `known` that `word` was most likely meant to be: the nearest by edit distance, if at
/// most a third of it would have to change; empty if none is that near.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> known);

/// `Did you mean 'bucket'? Known: bucket, bytes`; without the question if nothing is near.
[[nodiscard]] std::string suggest(std::string_view word, std::span<const std::string_view> known);

}  // namespace stretto
