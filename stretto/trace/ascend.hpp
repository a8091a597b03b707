// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/trace/builder.hpp"

/// Ascend's traces (msprof, torch_npu): Chrome JSON whose device rows have no category; what a row
/// is, the names of its process and thread and its task type say. Those names may come late, so
/// rows are kept until the end. Private to trace/: not installed.
namespace stretto::detail {

struct AscendRow {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint32_t name = 0;
  std::uint32_t process = 0;  ///< Keys of AscendRows.
  std::uint32_t thread = 0;
  std::uint32_t task_type = 0;
};

struct AscendRows {
  std::vector<AscendRow> rows;
  std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> keys;
  std::map<std::uint32_t, std::string> processes;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> threads;

  std::uint32_t key_of(std::string_view text);
  void name_row(std::string_view pid, std::string_view tid, bool is_process, std::string name);
};

/// Adds what these rows are to the records, if they are Ascend's. Its own Overlap Analysis goes to
/// TraceFile::verdicts.
[[nodiscard]] bool add_ascend_rows(TraceBuilder& builder, AscendRows& rows);

}  // namespace stretto::detail
