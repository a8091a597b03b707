// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/data/write_timeline.hpp"

namespace stretto {

/// The text of csv_records(timeline), in pieces.
void write_csv_records(const Timeline& timeline, const TextSink& sink);

/// The text of chrome_trace(timeline), in pieces. It takes 16 bytes for each record, to sort them.
void write_chrome_trace(const Timeline& timeline, const TextSink& sink);

}  // namespace stretto
