// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "output.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/report/report.hpp"
#include "stretto/report/write_records.hpp"
#include "trace_options.hpp"

namespace stretto::cli {
namespace {

constexpr std::string_view kProfileSuffix = ".profile.json";

struct ConvertFlags {
  TraceOptions trace;
  std::string output;
  bool without_slowdown = false;
};

struct Target {
  std::string_view suffix;
  std::string_view what;
  void (*write)(const Timeline& timeline, const ConvertFlags& flags, const TextSink& sink);
};

std::string profile_of(const Timeline& timeline, const ConvertFlags& flags) {
  double slowdown = 1.0;
  if (flags.without_slowdown) {
    const std::optional<Slowdown> measured = explain(timeline).slowdown;
    slowdown = measured ? measured->believed() : 1.0;
    if (slowdown == 1.0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {"no slow-down of compute beside communication was found",
           "--without-slowdown",
           measured ? fmt::format("{:.2f} over {} kernels", measured->factor, measured->kernels)
                    : "no kernel that ran often enough beside communication and alone",
           "the slow-down that stretto analyze names",
           "Without the flag the times are as recorded"});
    }
  }
  return to_json(step_profile_of_trace(timeline, slowdown));
}

constexpr std::array kTargets = {
    Target{".trace.json",
           "Chrome trace, for Perfetto",
           [](const Timeline& t, const ConvertFlags&, const TextSink& sink) {
             write_chrome_trace(t, sink);
           }},
    Target{
        ".timeline.json",
        "Stretto timeline",
        [](const Timeline& t, const ConvertFlags&, const TextSink& sink) { write_json(t, sink); }},
    Target{kProfileSuffix,
           "step profile, input of a planner and of stretto replay",
           [](const Timeline& t, const ConvertFlags& flags, const TextSink& sink) {
             sink(profile_of(t, flags));
           }},
    Target{".csv",
           "one line per record",
           [](const Timeline& t, const ConvertFlags&, const TextSink& sink) {
             write_csv_records(t, sink);
           }},
};

std::string known_targets() {
  std::string text;
  for (const Target& target : kTargets) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", target.suffix, target.what);
  }
  return text;
}

int run_convert(const ConvertFlags& flags) {
  for (const Target& target : kTargets) {
    if (!flags.output.ends_with(target.suffix)) {
      continue;
    }
    if (flags.without_slowdown && target.suffix != kProfileSuffix) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"only a step profile is made without the slow-down of compute",
                   "--without-slowdown",
                   quote(flags.output),
                   fmt::format("a name that ends in {}", kProfileSuffix),
                   "Other forms hold what was recorded"});
    }
    const Trace trace = flags.trace.read(false);
    std::fputs(warnings_of(trace).c_str(), stderr);
    write_pieces(flags.output,
                 [&](const TextSink& sink) { target.write(trace.timeline, flags, sink); });
    write_stdout(fmt::format("wrote {}: {} records of {} files\n",
                             flags.output,
                             trace.timeline.records.size(),
                             trace.files.size()));
    return 0;
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"the name does not say what to write",
               "--output",
               quote(flags.output),
               "a name that ends in " + known_targets(),
               ""});
}

}  // namespace

Action add_convert(CLI::App& app) {
  app.description("Writes traces in another form");
  app.footer("Forms by the end of the name: " + known_targets() +
             ".\n\nExamples:\n"
             "  stretto convert export.sqlite -o export.trace.json\n"
             "  stretto convert traces/ -o job.timeline.json");
  const auto flags = std::make_shared<ConvertFlags>();
  flags->trace.add_to(app);
  app.add_option("-o,--output", flags->output, "What to write")->required()->type_name("FILE");
  app.add_flag("--without-slowdown",
               flags->without_slowdown,
               "Of a profile: take out what compute took longer beside communication");
  return [flags](const Context&) { return run_convert(*flags); };
}

}  // namespace stretto::cli
