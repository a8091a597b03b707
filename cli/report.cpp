// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/signalfd.h>

#include "commands.hpp"
#include "job.hpp"
#include "output.hpp"
#include "report_input.hpp"
#include "result.hpp"
#include "stretto/base/error.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/html.hpp"
#include "stretto/report/prometheus.hpp"
#include "stretto/serve/page_server.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

struct ReportFlags {
  ReportInput input;
  std::string machine;
  std::string output;
  std::string prometheus;
  std::string tensorboard;
  std::string language = "en";
  bool serve = false;
  int port = 0;
};

Report read(const ReportFlags& flags, const Context& context) {
  std::string warnings;
  Report report = read_report(flags.input, warnings);
  std::fputs(warnings.c_str(), stderr);
  report.version = kVersion;
  if (!flags.input.redact) {
    report.command = command_line(context.arguments);
  }
  return report;
}

/// Changes when a file does, or when a directory has other files.
std::string state_of(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::string state;
  const auto add = [&state](const fs::path& path) {
    std::error_code ignored;
    state += fmt::format("{} {} {};",
                         path.string(),
                         fs::file_size(path, ignored),
                         fs::last_write_time(path, ignored).time_since_epoch().count());
  };
  for (const std::string& path : paths) {
    add(path);
    std::error_code no_directory;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, no_directory)) {
      add(entry.path());
    }
  }
  return state;
}

int serve(const ReportFlags& flags, const Context& context, const HtmlOptions& options) {
  sigset_t ends{};
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  std::string state = state_of(flags.input.paths);
  // What cannot be read ends the program, before anybody is told where to look.
  std::string page = html_report(read(flags, context), options);
  // From here on they are read from `stop`.
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const int stop = signalfd(-1, &ends, SFD_CLOEXEC);
  PageServer server(flags.port);
  write_stdout(fmt::format("{}\n", server.url()));
  std::fputs(
      fmt::format("served to this machine until Ctrl-C; reload the page to read files that "
                  "have changed\nfrom elsewhere: ssh -L {0}:127.0.0.1:{0} this-host, then the "
                  "same address\n",
                  server.port())
          .c_str(),
      stderr);
  server.run(
      [&] {
        if (std::string now = state_of(flags.input.paths); now != state) {
          page = html_report(read(flags, context), options);
          state = std::move(now);
        }
        return page;
      },
      stop);
  signalfd_siginfo ended{};
  const ssize_t got = ::read(stop, &ended, sizeof ended);
  return exit_code_of_signal(got == sizeof ended ? static_cast<int>(ended.ssi_signo) : SIGINT);
}

/// Of several runs each has a directory, as TensorBoard wants them. @return name and path of each.
std::vector<std::pair<std::string, std::string>> tensorboard_files(const std::string& directory,
                                                                   const Report& report) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const ReportedRun& run : report.runs) {
    const bool alone = report.runs.size() == 1;
    const std::string into = alone ? directory : fmt::format("{}/run{}", directory, files.size());
    files.emplace_back(run.name, write_tensorboard(into, run.timeline));
  }
  if (files.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no run to plot",
                 "--tb " + directory,
                 "summaries and plans only",
                 "a trace or a timeline",
                 ""});
  }
  return files;
}

int run_report(ReportFlags flags, const Context& context) {
  if (flags.output == "-" && flags.prometheus == "-") {
    throw Error(ErrorCode::kInvalidArgument,
                {"stdout takes one of the two",
                 "report",
                 "-o - and --prometheus -",
                 "a file for one of them",
                 ""});
  }
  const bool numbers = !flags.prometheus.empty() || !flags.tensorboard.empty();
  const bool page = flags.serve || !numbers || !flags.output.empty();
  if (page && !has_viewer()) {
    (void)html_report(Report{});  // throws, and says what to do
  }
  if (!flags.machine.empty()) {
    flags.input.machine = load_machine("--machine", flags.machine);
  }
  HtmlOptions options;
  options.language = flags.language == "zh" ? Language::kChinese : Language::kEnglish;
  if (flags.serve) {
    return serve(flags, context, options);
  }
  const Report report = read(flags, context);
  std::string written;
  if (!flags.prometheus.empty()) {
    const std::string text = prometheus_text(report);
    if (text.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"there are no numbers to write",
                   "--prometheus " + flags.prometheus,
                   "no run with steps and no summary",
                   "a trace, a timeline, a summary or a result with one",
                   ""});
    }
    if (flags.prometheus == "-") {
      write_stdout(text);
    } else {
      write_file(flags.prometheus, text);
      written += fmt::format("wrote {}\n", flags.prometheus);
    }
  }
  if (!flags.tensorboard.empty()) {
    for (const auto& [name, path] : tensorboard_files(flags.tensorboard, report)) {
      written += fmt::format("wrote {}: {}\n", path, name);
    }
  }
  if (!page) {
    write_stdout(written);
    return 0;
  }
  if (flags.output.empty()) {
    flags.output = "report.html";
  }
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
      "  stretto report traces/ --redact --lang zh -o report.html\n"
      "  stretto report traces/ --serve\n"
      "  stretto report run.timeline.json --prometheus /var/lib/node_exporter/stretto.prom");
  const auto flags = std::make_shared<ReportFlags>();
  app.add_option("FILE", flags->input.paths, "Files, or directories of traces")->required();
  auto* output = app.add_option("-o,--output", flags->output, "What to write (- for stdout)")
                     ->default_str("report.html")
                     ->type_name("FILE");
  auto* prometheus = app.add_option("--prometheus",
                                    flags->prometheus,
                                    "Write the numbers as Prometheus' text there, at once whole "
                                    "(- for stdout); without -o no page")
                         ->type_name("FILE");
  auto* tensorboard = app.add_option("--tb",
                                     flags->tensorboard,
                                     "Add the steps of every run to this TensorBoard log "
                                     "directory; without -o no page")
                          ->type_name("DIR");
  auto* serve = app.add_flag(
      "--serve", flags->serve, "Serve the page on 127.0.0.1 until Ctrl-C, and print its address");
  serve->excludes(output)->excludes(prometheus)->excludes(tensorboard);
  app.add_option("--port", flags->port, "With --serve: this port (default: a free one)")
      ->needs(serve)
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
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
