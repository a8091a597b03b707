// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "examples.hpp"
#include "job.hpp"
#include "output.hpp"
#include "result.hpp"
#include "schedule.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/collectives.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/plan/fixed_plans.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/html.hpp"
#include "stretto/report/report.hpp"
#include "stretto/trace/trace.hpp"
#include "stretto/workload/mlp.hpp"
#include "stretto/workload/train.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

/// Two ranks on a network on which the gradients take about half as long as the compute: slow
/// enough to see, quick enough to hide.
constexpr std::string_view kMachine = "2@2Gbit/s,50us";
/// Many layers, so that there is something to send while much is still to be computed; a narrow
/// first one, because its gradient comes last and nothing is left to hide it behind.
const std::vector<std::size_t> kWidths = {784, 128, 512, 512, 512, 512, 512, 512, 10};
constexpr std::size_t kBatch = 512;
/// What this deep network bears; learns most in the few steps there are.
constexpr float kLearningRate = 0.01F;
constexpr Bytes kSmallBucket(256 << 10);
/// At a row, if other programs take the processors meanwhile.
constexpr int kAttempts = 3;
constexpr std::string_view kRecordedWith = "PyTorch 2.13, gloo";
/// Of what the recorded trace says.
constexpr std::size_t kMostDiagnoses = 3;

struct DemoFlags {
  JobOptions job;
  std::string data = std::string(kFashionMnistDirectory);
  std::string directory = "stretto-demo";
  std::uint32_t steps = 35;
  std::uint32_t warmup = 5;

  /// Of the recorded trace. Apart from the demo's own files, so that it can be analyzed as a whole.
  [[nodiscard]] std::filesystem::path trace_directory() const {
    return std::filesystem::path(directory) / "recorded";
  }
};

/// What a training elsewhere recorded, and what Stretto says of it.
struct Recorded {
  std::vector<std::string> files;
  std::size_t ranks = 0;
  Explanation explanation;

  /// The heaviest.
  [[nodiscard]] std::span<const Diagnosis> diagnoses() const {
    return std::span(explanation.diagnoses)
        .first(std::min(kMostDiagnoses, explanation.diagnoses.size()));
  }
};

/// Writes the files that the program holds where the user finds them, and analyzes them as it would
/// any.
Recorded analyze_recorded(const DemoFlags& flags) {
  const std::filesystem::path directory = flags.trace_directory();
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);  // write_file says what is wrong with it
  Recorded recorded;
  std::vector<std::filesystem::path> paths;
  for (const ExampleFile& file : example_trace()) {
    paths.push_back(directory / file.name);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as chars
    write_file(paths.back(), {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
    recorded.files.push_back(paths.back().string());
  }
  Trace trace = read_traces(paths);
  align_clocks(trace.timeline);
  recorded.ranks = trace.files.size();
  recorded.explanation = explain(trace.timeline);
  return recorded;
}

std::string opening(const DemoFlags& flags, const Recorded& recorded) {
  std::string text = fmt::format("1. a recorded trace of {} ranks, {}:\n{}\n",
                                 recorded.ranks,
                                 kRecordedWith,
                                 verdict(recorded.explanation));
  for (const Diagnosis& diagnosis : recorded.diagnoses()) {
    text += fmt::format("- {}: {}\n", diagnosis.finding, diagnosis.evidence);
    if (!diagnosis.advice.empty()) {
      text += fmt::format("  do: {}\n", diagnosis.advice);
    }
  }
  return text + fmt::format("all of it: {}\n\n2. the same kind of training, here:\n",
                            command_line({"analyze", flags.trace_directory().string()}));
}

nlohmann::ordered_json to_json(const Recorded& recorded) {
  nlohmann::ordered_json diagnoses = nlohmann::ordered_json::array();
  for (const Diagnosis& diagnosis : recorded.diagnoses()) {
    diagnoses.push_back({{"id", diagnosis.id},
                         {"weight", to_string(diagnosis.weight)},
                         {"finding", diagnosis.finding},
                         {"evidence", diagnosis.evidence},
                         {"advice", diagnosis.advice}});
  }
  nlohmann::ordered_json document = {{"source", kRecordedWith},
                                     {"ranks", recorded.ranks},
                                     {"verdict", verdict(recorded.explanation)},
                                     {"step_s", nullptr},
                                     {"exposed_s", nullptr},
                                     {"diagnoses", std::move(diagnoses)},
                                     {"files", recorded.files}};
  if (const auto& summary = recorded.explanation.summary) {
    document["step_s"] = summary->step.count();
    document["exposed_s"] = summary->exposed.count();
  }
  return document;
}

struct Row {
  std::string name;
  std::string file;  ///< Stem of the files it leaves.
  Schedule schedule;
  Plan plan;  ///< Without buckets: to be planned, for the step as the first row measured it.
};

std::vector<Row> rows() {
  const std::vector<TensorSpec> tensors = mlp_tensors(kWidths);
  std::vector<Row> all = {
      {"serial", "serial", Schedule::kSerial, single_bucket_plan(tensors)},
      {"overlap, DDP bucket rules (Stretto's imitation)",
       "ddp-rules",
       Schedule::kOverlap,
       ddp_plan(tensors)},
      {"overlap, small buckets",
       "small-buckets",
       Schedule::kOverlap,
       uniform_plan(tensors, kSmallBucket)},
      {"overlap, planned buckets", "planned-buckets", Schedule::kOverlap, {}},
      {"priority, planned buckets", "priority", Schedule::kPriority, {}},
  };
  for (Row& row : all) {
    for (Bucket& bucket : row.plan.buckets) {
      // The one whose sums do not depend on the buckets: all rows must end with equal weights.
      bucket.algorithm = Algorithm::kDirect;
    }
  }
  return all;
}

struct Outcome {
  Run run;
  Timeline timeline;
};

TrainResult train_row(Communicator& communicator,
                      const Dataset& dataset,
                      const DemoFlags& flags,
                      const Row& row) {
  TrainOptions options;
  options.widths = kWidths;
  options.plan = row.plan;
  options.session.schedule = row.schedule;
  options.batch = kBatch;
  options.learning_rate = kLearningRate;
  options.steps = flags.steps;
  options.warmup = flags.warmup;
  options.on_progress = progress_line(communicator, row.name, flags.job.json);
  for (int attempt = 1;; ++attempt) {
    try {
      return train(communicator, dataset, options);
    } catch (const Error& error) {
      // EmulationCheck's verdict, which all ranks share: none is left alone in the next attempt.
      if (error.code() != ErrorCode::kBackend || attempt == kAttempts) {
        throw;
      }
      if (communicator.rank() == 0) {
        std::fputs(fmt::format("warning: {} ({}); measuring '{}' again\n",
                               error.detail().message,
                               error.detail().found,
                               row.name)
                       .c_str(),
                   stderr);
      }
    }
  }
}

/// @throws Error kMismatch unless all rows ended with the same weights.
void check_equal_weights(const std::vector<TrainResult>& results, const std::vector<Row>& all) {
  for (std::size_t i = 1; i < results.size(); ++i) {
    if (results[i].weights_hash != results[0].weights_hash) {
      throw Error(ErrorCode::kMismatch,
                  {"the same training gave other weights with another schedule",
                   fmt::format("row '{}'", all[i].name),
                   hash_text(results[i].weights_hash),
                   fmt::format("{}, as row '{}'", hash_text(results[0].weights_hash), all[0].name),
                   "This is a bug in Stretto: please report it"});
    }
  }
}

/// The same before and after as a page to look at, and the numbers of the rows between.
Report report_page(const Context& context, const std::vector<Outcome>& outcomes) {
  Report page;
  page.version = kVersion;
  page.command = command_line(context.arguments);
  AnalyzeOptions analysis;
  analysis.machine = machine_from_spec(kMachine);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    if (i == 0 || i + 1 == outcomes.size()) {
      page.runs.push_back(
          {outcome.run.name, outcome.timeline, explain(outcome.timeline, analysis), {}, {}});
    } else {
      page.summaries.push_back({outcome.run.name, outcome.run.summary});
    }
  }
  return page;
}

std::vector<std::string> write_files(const DemoFlags& flags,
                                     const Context& context,
                                     const std::vector<Row>& all,
                                     const std::vector<Outcome>& outcomes) {
  const std::filesystem::path directory = flags.directory;
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  std::vector<std::string> files;
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file(directory / name, content);
    files.push_back((directory / name).string());
  };
  // What happened before and after; the middle row has its numbers.
  for (const std::size_t i : {std::size_t{0}, all.size() - 1}) {
    write(all[i].file + ".timeline.json", to_json(outcomes[i].timeline));
    write(all[i].file + ".trace.json", chrome_trace(outcomes[i].timeline));
  }
  if (has_viewer()) {
    write("report.html", html_report(report_page(context, outcomes)));
  }
  return files;
}

std::string picture(const Outcome& outcome) {
  TextTimelineOptions options;
  options.color = use_color();
  options.step = typical_step(outcome.timeline);
  return fmt::format(
      "{}, a typical step:\n{}", outcome.run.name, text_timeline(outcome.timeline, options));
}

std::string page_path(const DemoFlags& flags) {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::path(flags.directory) / "report.html";
  const std::filesystem::path whole = std::filesystem::absolute(path, failed);
  return failed ? path.string() : whole.lexically_normal().string();
}

std::string headline(const Run& before, const Run& after) {
  return fmt::format(
      "exposed communication per step: {} -> {}, step {} -> {} (network emulated: {})\n",
      format(before.summary.exposed),
      format(after.summary.exposed),
      format(before.summary.step),
      format(after.summary.step),
      kMachine);
}

std::string report(const DemoFlags& flags,
                   const Context& context,
                   const Communicator& communicator,
                   const std::vector<Row>& all,
                   std::vector<TrainResult> results) {
  AnalyzeOptions analysis;
  analysis.samples_per_step = static_cast<std::int64_t>(kBatch) * communicator.size();
  analysis.machine = machine_from_spec(kMachine);
  std::vector<Outcome> outcomes;
  std::vector<Run> runs;
  std::vector<NamedSummary> table_rows;
  for (std::size_t i = 0; i < all.size(); ++i) {
    TrainResult& result = results[i];
    runs.push_back({all[i].name,
                    std::string(to_string(all[i].schedule)),
                    analyze(result.timeline, analysis),
                    result.loss,
                    result.accuracy,
                    result.weights_hash,
                    result.plan_hash});
    table_rows.push_back({all[i].name, runs.back().summary});
    outcomes.push_back({runs.back(), std::move(result.timeline)});
  }
  const Provenance provenance{"demo",
                              context.arguments,
                              communicator.size(),
                              std::string(communicator.backend()),
                              std::string(kMachine),
                              TrainOptions().seed,
                              ""};
  std::vector<std::string> files = write_files(flags, context, all, outcomes);
  const std::string result_file = (std::filesystem::path(flags.directory) / "result.json").string();
  files.push_back(result_file);
  nlohmann::ordered_json document = result_document(provenance, runs, files);
  if (flags.job.json) {
    document["trace"] = to_json(analyze_recorded(flags));
  }
  document["weights_equal"] = true;
  document["kernels"] = results[0].kernels;
  write_file(result_file, document.dump(2) + "\n");
  if (flags.job.json) {
    return document.dump(2) + "\n";
  }
  // On a terminal it was the first thing to be seen, long before this.
  const std::string before =
      flags.job.output.empty() ? std::string() : opening(flags, analyze_recorded(flags));
  return before + headline(runs.front(), runs.back()) + "\n" + comparison_table(table_rows) + "\n" +
         picture(outcomes.front()) + "\n" + picture(outcomes.back()) + "\n" +
         fmt::format(
             "weights after {} steps: the same bits in all {} rows ({}), test accuracy {:.3f}\n",
             results[0].steps,
             all.size(),
             hash_text(results[0].weights_hash),
             results[0].accuracy) +
         file_list(files) +
         (has_viewer()
              ? fmt::format("open in a browser: {}\n", page_path(flags))
              : std::string("no report.html: this build has no viewer (install esbuild)\n")) +
         "next: stretto replay resnet50 --emulate 4@5Gbit/s,50us   (a GPU's step, on this "
         "machine)\n";
}

int run_demo(DemoFlags flags, const Context& context) {
  flags.job.emulate = kMachine;
  const bool starts_ranks = detect_rank_environment(process_environment()).launcher == "none";
  if (starts_ranks && !flags.job.json && flags.job.output.empty()) {
    write_stdout(opening(flags, analyze_recorded(flags)));
  }
  const std::vector<Row> all = rows();
  return run_job(flags.job, context.arguments, {}, [&](Communicator& communicator) {
    const Dataset dataset = load_fashion_mnist(flags.data);
    std::vector<TrainResult> results;
    results.reserve(all.size());
    for (Row row : all) {
      if (row.plan.buckets.empty()) {
        ScheduleOptions planned_for;
        planned_for.schedule = to_string(row.schedule);
        row.plan = plan_measured(communicator,
                                 results.front().timeline,
                                 mlp_tensors(kWidths),
                                 machine_from_spec(kMachine),
                                 planned_for);
      }
      results.push_back(train_row(communicator, dataset, flags, row));
    }
    check_equal_weights(results, all);
    return communicator.rank() == 0 ? report(flags, context, communicator, all, std::move(results))
                                    : std::string();
  });
}

}  // namespace

Action add_demo(CLI::App& app) {
  app.description(
      "Says what slows a recorded training down, then trains the same network five ways on 2 "
      "ranks over an emulated network, and shows how much "
      "of the communication was hidden");
  app.footer(
      "Examples:\n"
      "  stretto demo\n"
      "  stretto demo --json > demo.json\n"
      "  stretto demo --directory before-after --steps 50");
  const auto flags = std::make_shared<DemoFlags>();
  app.add_option("--steps", flags->steps, "Measured steps of each row (default 35)")
      ->check(CLI::Range(1, 50))
      ->type_name("N");
  app.add_option("--directory", flags->directory, "Where files go (default ./stretto-demo)")
      ->type_name("DIR");
  app.add_option("--data", flags->data, "Directory of the Fashion-MNIST files")->type_name("DIR");
  app.add_option("-o,--output", flags->job.output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_flag("--json", flags->job.json, "One JSON document on stdout, also on failure");
  return [flags](const Context& context) { return run_demo(*flags, context); };
}

}  // namespace stretto::cli
