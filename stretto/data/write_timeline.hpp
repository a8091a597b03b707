// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "stretto/data/timeline.hpp"

namespace stretto {

/// Takes a text in pieces, in order. What it throws goes through.
using TextSink = std::function<void(std::string_view piece)>;

/// The text of to_json(timeline), in pieces of about 1 MiB: of all records at once it makes none.
void write_json(const Timeline& timeline, const TextSink& sink);

}  // namespace stretto
