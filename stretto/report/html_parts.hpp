// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "stretto/report/html.hpp"

/// What html_report() is made of. Private to report/: not installed.
namespace stretto::detail {

/// The page without its numbers, as built from viewer/; empty in a build without esbuild.
[[nodiscard]] std::string_view viewer_page() noexcept;

/// Text as it may stand between tags or in an attribute in quotes.
[[nodiscard]] std::string html_escaped(std::string_view text);

/// `text` cut after so many bytes, at a character's border, with an ellipsis.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t most_bytes);

/// The JSON member `timeline` of a run: intervals that do not overlap within a row, as base64 of
/// variable-length numbers (viewer/src/columns.ts reads them), at most about `most_intervals`.
[[nodiscard]] std::string timeline_columns(const Timeline& timeline, std::size_t most_intervals);

/// What is seen where no script runs: the answer in a sentence, a picture of one step, tables.
[[nodiscard]] std::string static_page(const Report& report, Language language);

/// One typical step as SVG: two bands a rank, exposed communication hatched.
[[nodiscard]] std::string svg_timeline(const Timeline& timeline, Language language);

}  // namespace stretto::detail
