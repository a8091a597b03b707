// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "stretto/report/csv.hpp"
#include "stretto/report/names.hpp"
#include "stretto/report/report.hpp"
#include "stretto/report/write_records.hpp"

namespace stretto {
namespace {

std::string id(std::uint32_t value) {
  return value == kNoId ? std::string() : std::to_string(value);
}

}  // namespace

void write_csv_records(const Timeline& timeline, const TextSink& sink) {
  constexpr std::size_t kPiece = std::size_t{1} << 20U;
  std::string text =
      "rank,device,stream,lane,kind,name,step,begin_ns,end_ns,bytes,collective,bucket,sequence,"
      "link\r\n";
  for (const Record& r : timeline.records) {
    fmt::format_to(std::back_inserter(text),
                   "{},{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n",
                   r.rank,
                   id(r.device),
                   id(r.stream),
                   to_string(r.lane),
                   to_string(r.kind),
                   detail::csv_field(detail::label_of(timeline, r)),
                   id(r.step),
                   r.begin_ns,
                   r.end_ns,
                   r.bytes,
                   to_string(r.collective),
                   id(r.bucket),
                   id(r.sequence),
                   id(r.link));
    if (text.size() >= kPiece) {
      sink(text);
      text.clear();
    }
  }
  sink(text);
}

std::string csv_records(const Timeline& timeline) {
  std::string text;
  write_csv_records(timeline, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace stretto
