// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/ascend.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace stretto::detail {
namespace {

/// Tasks that synchronise, and do nothing else.
bool is_waiting(std::string_view task) {
  return task.starts_with("EVENT_") || task.starts_with("NOTIFY_") || task.starts_with("Notify_") ||
         task == "CAPTURE_WAIT" || task == "CAPTURE_RECORD" || task == "MODEL_MAINTAINCE" ||
         task == "PROFILER_TRACE_EX" || task == "WRITE_VALUE";
}

/// Tasks of the device's communication streams, shown again under HCCL as one row per collective.
bool is_transfer(std::string_view task) {
  return task.starts_with("MEMCPY_ASYNC") || task.starts_with("REDUCE_ASYNC") ||
         task.starts_with("SDMA") || task.starts_with("MEMSET");
}

}  // namespace

std::uint32_t AscendRows::key_of(std::string_view text) {
  if (const auto known = keys.find(text); known != keys.end()) {
    return known->second;
  }
  const auto key = static_cast<std::uint32_t>(keys.size());
  keys.emplace(text, key);
  return key;
}

void AscendRows::name_row(std::string_view pid,
                          std::string_view tid,
                          bool is_process,
                          std::string name) {
  if (is_process) {
    processes[key_of(pid)] = std::move(name);
  } else {
    threads[{key_of(pid), key_of(tid)}] = std::move(name);
  }
}

bool add_ascend_rows(TraceBuilder& builder, AscendRows& rows) {
  const auto is_ascend = [](const auto& entry) {
    return entry.second == "Ascend Hardware" || entry.second == "HCCL" ||
           entry.second == "Overlap Analysis" || entry.second == "Communication";
  };
  if (std::none_of(rows.processes.begin(), rows.processes.end(), is_ascend)) {
    return false;
  }
  std::map<std::uint32_t, std::string_view> texts;
  for (const auto& [text, key] : rows.keys) {
    texts[key] = text;
  }
  std::map<std::string, std::vector<Interval>> verdicts;
  std::set<std::string> processes;
  for (const AscendRow& row : rows.rows) {
    const std::string& process = rows.processes[row.process];
    const auto found = rows.threads.find({row.process, row.thread});
    const std::string_view thread =
        found == rows.threads.end() ? std::string_view() : found->second;
    const std::string_view task = texts[row.task_type];
    processes.insert(process);
    Record record;
    record.begin_ns = row.begin_ns;
    record.end_ns = row.end_ns;
    record.name = row.name;
    record.device = 0;
    record.stream = builder.lane_id(texts[row.thread]);
    if (process == "Overlap Analysis") {
      verdicts[std::string(thread)].push_back({row.begin_ns, row.end_ns});
    } else if (process == "Ascend Hardware" && thread.starts_with("Stream")) {
      const std::string_view name = builder.timeline().names[row.name];
      if (is_waiting(task) || is_waiting(name)) {
        continue;
      }
      if (is_transfer(task) || is_transfer(name)) {
        builder.add_copy(record);
      } else {
        builder.add_kernel(record, {});
      }
    } else if ((process == "HCCL" || process == "Communication") &&
               (thread == "Communication Kernel" || thread.starts_with("Group"))) {
      // One row per collective; the planes below show its parts.
      const std::string name = builder.timeline().names[row.name];
      builder.add_kernel(record, name);
    }
  }
  for (auto& [name, pieces] : verdicts) {
    builder.file().verdicts.push_back({name, IntervalSet(std::move(pieces)).measure_ns()});
  }
  return true;
}

}  // namespace stretto::detail
