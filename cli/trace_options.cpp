// SPDX-License-Identifier: Apache-2.0
#include "trace_options.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "flags.hpp"
#include "output.hpp"
#include "stretto/analyze/collectives.hpp"
#include "stretto/analyze/devices.hpp"
#include "stretto/report/report.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostClassRows = 40;

void draw_progress(const std::string& path, double share) {
  constexpr int kCells = 30;
  const int filled = std::clamp(static_cast<int>(share * kCells), 0, kCells);
  std::fputs(fmt::format("\r\x1b[K[{}{}] {:3.0f} % {}",
                         std::string(static_cast<std::size_t>(filled), '#'),
                         std::string(static_cast<std::size_t>(kCells - filled), ' '),
                         100.0 * std::min(1.0, share),
                         path)
                 .c_str(),
             stderr);
}

ordered_json device_json(const DeviceTotals& d) {
  return {{"device", d.device == kNoId ? ordered_json() : ordered_json(d.device)},
          {"rank", d.rank},
          {"communication_ns", d.communication_ns},
          {"communication_sum_ns", d.communication_sum_ns},
          {"compute_ns", d.compute_ns},
          {"compute_sum_ns", d.compute_sum_ns},
          {"exposed_ns", d.exposed_ns},
          {"exposed_other_streams_ns", d.exposed_other_streams_ns},
          {"exposed_beside_copies_ns", d.exposed_beside_copies_ns},
          {"hidden_ns", d.hidden_ns},
          {"exposed_copies_ns", d.exposed_copies_ns},
          {"span_ns", d.span_ns},
          {"idle_ns", d.idle_ns},
          {"streams", d.streams},
          {"communication_streams", d.communication_streams},
          {"communication_count", d.communication_count},
          {"compute_count", d.compute_count},
          {"copy_count", d.copy_count}};
}

/// All kernels of one name, of all files.
struct NamedKernels {
  std::string name;
  KernelClass classified;
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;
};

/// Communication first, then the longest.
std::vector<NamedKernels> kernels_by_name(const Trace& trace) {
  std::map<std::uint32_t, NamedKernels> names;
  for (const TraceFile& file : trace.files) {
    for (const KernelName& kernel : file.kernels) {
      NamedKernels& sum = names[kernel.name];
      sum.name = trace.timeline.names[kernel.name];
      sum.classified = kernel.classified;
      sum.count += kernel.count;
      sum.total_ns += kernel.total_ns;
    }
  }
  std::vector<NamedKernels> sorted;
  sorted.reserve(names.size());
  for (auto& [name, sum] : names) {
    sorted.push_back(std::move(sum));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.classified.communication, a.total_ns) >
           std::pair(b.classified.communication, b.total_ns);
  });
  return sorted;
}

bool has_rank(const TraceFile& file, std::uint32_t rank) {
  return std::find(file.ranks.begin(), file.ranks.end(), rank) != file.ranks.end();
}

}  // namespace

void TraceOptions::add_to(CLI::App& app) {
  app.add_option("TRACE", paths, "Files, or directories of them: one file per rank")->required();
  add_reading_to(app);
}

void TraceOptions::add_reading_to(CLI::App& app) {
  app.add_option("--comm-regex",
                 comm_regex,
                 "Kernels whose name matches are communication (may be given again)")
      ->take_all()
      ->allow_extra_args(false)  // one each time: what follows is an argument
      ->type_name("REGEX");
  app.add_option("--comm-rules", comm_rules, "The same from a file, one expression per line")
      ->type_name("FILE");
  app.add_option("--step-regex", step_regex, "Ranges whose name matches are steps")
      ->type_name("REGEX");
  app.add_flag("--salvage", salvage, "Use what can be read of a broken file");
  app.add_flag("--no-align", no_align, "Leave the clocks of ranks as they are");
}

Trace TraceOptions::read(bool quiet) const {
  TraceReadOptions options;
  options.salvage = salvage;
  options.step_expression = step_regex;
  options.rows_without_collectives = rows_without_collectives;
  for (const std::string& expression : comm_regex) {
    from_flag("--comm-regex", [&] {
      options.rules.add_expression(expression);
      return 0;
    });
  }
  if (!step_regex.empty()) {
    from_flag("--step-regex", [&] {
      CommunicationRules().add_expression(step_regex);  // the same syntax
      return 0;
    });
  }
  if (!comm_rules.empty()) {
    options.rules.add_file(read_file(comm_rules, "--comm-rules"), comm_rules);
  }
  const bool progress = !quiet && show_progress();
  if (progress) {
    options.on_progress = draw_progress;
  }
  Trace trace = read_traces(find_traces(paths), options);
  if (progress) {
    std::fputs("\r\x1b[K", stderr);
  }
  if (!no_align) {
    for (std::string& note : align_clocks(trace.timeline)) {
      trace.notes.push_back(std::move(note) + "; --no-align keeps them");
    }
  }
  return trace;
}

std::vector<std::string> TraceOptions::arguments() const {
  std::vector<std::string> flags;
  const auto add = [&flags](std::string_view flag, const std::string& value) {
    if (!value.empty()) {
      flags.emplace_back(flag);
      flags.push_back(value);
    }
  };
  for (const std::string& expression : comm_regex) {
    add("--comm-regex", expression);
  }
  add("--comm-rules", comm_rules);
  add("--step-regex", step_regex);
  if (salvage) {
    flags.emplace_back("--salvage");
  }
  if (no_align) {
    flags.emplace_back("--no-align");
  }
  return flags;
}

std::string warnings_of(const Trace& trace) {
  std::string text;
  for (const std::string& note : trace.notes) {
    text += fmt::format("warning: {}\n", note);
  }
  for (const TraceFile& file : trace.files) {
    const auto warn = [&](const std::string& what) {
      text += fmt::format("warning: {}: {}\n", file.path, what);
    };
    if (file.fault) {
      warn(
          fmt::format("broken at {} {} ({}); {}{} whole events are used: rows that came after, "
                      "those of devices perhaps, are in no number",
                      file.format == "nsys" ? "row" : "byte",
                      file.fault->offset,
                      file.fault->what,
                      file.lost == 0 ? "" : fmt::format("at least {} were lost, ", file.lost),
                      file.events));
    }
    for (const std::string& note : file.notes) {
      warn(note);
    }
    if (file.unlinked > 0) {
      warn(
          fmt::format("{} device rows have no launch in the file (started before the recording, or "
                      "not traced); they count",
                      file.unlinked));
    }
  }
  return text;
}

std::string class_table(const Trace& trace) {
  const std::vector<NamedKernels> sorted = kernels_by_name(trace);
  if (sorted.empty()) {
    return fmt::format("no kernel of a device; communication is looked for in {}\n",
                       CommunicationRules::looked_for());
  }
  std::vector<std::vector<std::string>> rows = {{"kernel", "counts as", "by", "calls", "total"}};
  for (std::size_t i = 0; i < std::min(sorted.size(), kMostClassRows); ++i) {
    const NamedKernels& kernels = sorted[i];
    rows.push_back({kernels.name.substr(0, 60),
                    kernels.classified.communication ? "communication" : "compute",
                    kernels.classified.communication
                        ? fmt::format("{}: {}", kernels.classified.library, kernels.classified.rule)
                        : "no rule",
                    std::to_string(kernels.count),
                    format(Seconds(static_cast<double>(kernels.total_ns) / 1e9))});
  }
  std::string text = table(rows);
  if (sorted.size() > kMostClassRows) {
    text += fmt::format("and {} more names of kernels that ran shorter; --json lists all\n",
                        sorted.size() - kMostClassRows);
  }
  return text;
}

ordered_json classes_json(const Trace& trace) {
  ordered_json list = ordered_json::array();
  for (const NamedKernels& kernels : kernels_by_name(trace)) {
    const KernelClass& classified = kernels.classified;
    list.push_back({{"kernel", kernels.name},
                    {"counts_as", classified.communication ? "communication" : "compute"},
                    {"library", classified.library},
                    {"rule", classified.communication ? ordered_json(classified.rule) : nullptr},
                    {"count", kernels.count},
                    {"total_ns", kernels.total_ns}});
  }
  return list;
}

ordered_json files_json(const Trace& trace) {
  const std::vector<DeviceTotals> devices = device_totals(trace.timeline);
  const std::vector<HostTotals> hosts = host_totals(trace.timeline);
  ordered_json list = ordered_json::array();
  for (const TraceFile& file : trace.files) {
    ordered_json entry = {
        {"file", file.path},
        {"format", file.format},
        {"rank", file.rank},
        {"rank_from", file.rank_from},
        {"world_size", file.world_size == 0 ? ordered_json() : ordered_json(file.world_size)},
        {"backend", file.backend},
        {"bytes", file.bytes},
        {"events", file.events},
        {"kept_events", file.kept},
        {"lost_events", file.lost},
        {"unlinked_events", file.unlinked},
        {"steps_from", file.steps_from},
        {"fault", nullptr},
        {"notes", file.notes},
        {"devices", ordered_json::array()},
        {"host", nullptr}};
    if (file.fault) {
      entry["fault"] = {{"offset_bytes", file.fault->offset}, {"what", file.fault->what}};
    }
    for (const DeviceTotals& device : devices) {
      if (has_rank(file, device.rank)) {
        entry["devices"].push_back(device_json(device));
      }
    }
    for (const HostTotals& host : hosts) {
      if (has_rank(file, host.rank)) {
        entry["host"] = {{"communication_ns", host.communication_ns},
                         {"compute_ns", host.compute_ns},
                         {"exposed_ns", host.exposed_ns},
                         {"communication_count", host.communication_count}};
      }
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace stretto::cli
