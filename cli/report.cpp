// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "commands.hpp"
#include "job.hpp"
#include "output.hpp"
#include "report_input.hpp"
#include "stretto/base/error.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/html.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

struct ReportFlags {
  ReportInput input;
  std::string machine;
  std::string output;
  std::string language = "en";
};

int run_report(ReportFlags flags, const Context& context) {
  if (!has_viewer()) {
    (void)html_report(Report{});  // throws, and says what to do
  }
  if (!flags.machine.empty()) {
    flags.input.machine = load_machine("--machine", flags.machine);
  }
  std::string warnings;
  Report report = read_report(flags.input, warnings);
  std::fputs(warnings.c_str(), stderr);
  report.version = kVersion;
  if (!flags.input.redact) {
    report.command = command_line(context.arguments);
  }
  HtmlOptions options;
  options.language = flags.language == "zh" ? Language::kChinese : Language::kEnglish;
  const std::string html = html_report(report, options);
  if (flags.output == "-") {
    write_stdout(html);
    return 0;
  }
  write_file(flags.output, html);
  std::string text;
  for (const ReportedRun& run : report.runs) {
    text += fmt::format("{}: {}\n", run.name, verdict(run.explanation));
  }
  constexpr double kMegabyte = 1e6;
  write_stdout(text + fmt::format("wrote {} ({:.2f} MB): open it in a browser, no network needed\n",
                                  flags.output,
                                  static_cast<double>(html.size()) / kMegabyte));
  return 0;
}

}  // namespace

Action add_report(CLI::App& app) {
  app.description(
      "Writes one HTML file that shows where a run's time goes: it opens from disk, can be mailed, "
      "and uses no network");
  app.footer(
      "Reads traces (" + trace_formats() +
      "), Stretto's timelines, plans and summaries, and what train, replay, demo and analyze "
      "write with --json. Timelines of whole jobs are runs to be compared; all other traces "
      "are the ranks of one job.\n\nExamples:\n"
      "  stretto report traces/ -o report.html\n"
      "  stretto report before.timeline.json after.timeline.json -o report.html\n"
      "  stretto report traces/ --redact --lang zh -o report.html");
  const auto flags = std::make_shared<ReportFlags>();
  app.add_option("FILE", flags->input.paths, "Files, or directories of traces")->required();
  app.add_option("-o,--output", flags->output, "What to write (- for stdout)")
      ->default_str("report.html")
      ->type_name("FILE");
  flags->output = "report.html";
  app.add_option("--lang", flags->language, "Language to begin with: en or zh")
      ->check(CLI::IsMember({"en", "zh"}))
      ->type_name("LANG");
  app.add_flag("--redact",
               flags->input.redact,
               "Replace the names of tensors, kernels, modules, groups, hosts and files");
  app.add_option("--machine",
                 flags->machine,
                 "Bound for this machine instead of the costs fitted to the trace (file, preset, "
                 "or 4@5Gbit/s,50us)")
      ->type_name("M");
  flags->input.reading.add_reading_to(app);
  app.add_flag("-q,--quiet", flags->input.quiet, "No progress");
  return [flags](const Context& context) { return run_report(*flags, context); };
}

}  // namespace stretto::cli
