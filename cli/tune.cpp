// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "numbers.hpp"
#include "output.hpp"
#include "result.hpp"
#include "schedule.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/base/hash.hpp"
#include "stretto/tune/tuner.hpp"
#include "tune_program.hpp"
#include "tune_report.hpp"
#include "tune_space.hpp"
#include "tune_trials.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Trials of each row of --explain.
constexpr std::size_t kExplainTrials = 2;

struct TuneFlags {
  std::string grid;
  std::vector<std::string> fix;
  std::vector<std::string> environment;
  std::string codecs;
  std::string machine;
  std::string budget;
  std::string trial_limit = "10m";
  std::string log;
  std::string output;
  std::uint32_t steps = 20;
  std::optional<std::uint32_t> warmup;
  std::size_t candidates = 8;
  std::uint64_t seed = 1;
  bool explain = false;
  bool json = false;
};

class Tuning {
 public:
  Tuning(const TuneFlags& flags, const Context& context)
      : flags_(flags),
        context_(context),
        program_(context.program, flags.steps, flags.warmup, from_flag("--trial-limit", [&] {
                   return parse_duration(flags.trial_limit);
                 })) {
    read_flags();
  }

  int run() {
    try {
      record();
      if (grid_.empty()) {
        search();
      } else {
        run_grid();
      }
      explain_winner();
      finish();
    } catch (const Interrupted&) {
      const std::string help = flags_.log.empty()
                                   ? "Give --log FILE: the same command then goes on where it was"
                                   : fmt::format("The same command goes on from {}", flags_.log);
      if (flags_.json) {
        write_stdout(interrupted_document(help).dump(2) + "\n");
      } else {
        std::fputs(fmt::format("interrupted. {}\n", help).c_str(), stderr);
      }
      return exit_code_of_signal(watch_.signal());
    }
    return 0;
  }

 private:
  void read_flags() {
    if (!flags_.grid.empty()) {
      grid_ = from_flag("--grid", [&] { return parse_grid(flags_.grid); });
    }
    for (const std::string& text : flags_.environment) {
      allowed_.environment.push_back(from_flag("--env", [&] { return parse_knob_values(text); }));
    }
    for (const std::string& text : flags_.fix) {
      from_flag("--fix", [&] {
        const KnobValues knob = parse_knob_values(text);
        if (knob.values.size() != 1) {
          throw Error(ErrorCode::kInvalidArgument,
                      {"a knob is fixed to one value", "", text, "KNOB=VALUE", ""});
        }
        allowed_.fixed.push_back({knob.name, knob.values[0]});
      });
    }
    allowed_.places = program_.flag("--emulate") && program_.flag("--rank-map");
    if (!flags_.codecs.empty()) {
      allowed_.codecs = from_flag("--codecs", [&] {
        std::vector<std::string> codecs = parse_knob_values("codec=" + flags_.codecs).values;
        for (const std::string& codec : codecs) {
          (void)parse_codec(codec);
        }
        return codecs;
      });
    }
    from_flag("--fix", [&] { TuneSpace::check(allowed_.fixed, allowed_); });
    from_flag("--grid", [&] {
      for (const KnobValues& knob : grid_) {
        for (const std::string& value : knob.values) {
          TuneSpace::check({{knob.name, value}}, allowed_);
        }
      }
      TuneSpace::check(combinations(grid_).front(), allowed_);
    });
    if (!flags_.output.empty()) {
      // Before the trials, not after them.
      std::filesystem::path folder = std::filesystem::path(flags_.output).parent_path();
      folder = folder.empty() ? "." : folder;
      if (access(folder.c_str(), W_OK | X_OK) != 0 ||
          std::filesystem::is_directory(flags_.output)) {
        throw Error(ErrorCode::kUnavailable,
                    {"the plan that wins could not be written",
                     flags_.output,
                     "no folder that can be written to, or a folder of that name",
                     "a file in a folder that you may write to",
                     ""});
      }
    }
    if (!flags_.budget.empty()) {
      budget_ = from_flag("--budget", [&] { return parse_duration(flags_.budget); });
    }
    if (!flags_.machine.empty()) {
      machine_ = load_machine("--machine", flags_.machine);
    } else if (const auto emulated = program_.flag("--emulate"); emulated && !program_.launches()) {
      machine_ = load_machine("--emulate", *emulated);
    }
  }

  [[nodiscard]] std::string fingerprint() const {
    Hasher hasher;
    hasher.add(std::uint64_t{program_.words().size()});
    for (const std::string& word : program_.words()) {
      hasher.add(word);
    }
    hasher.add(to_string(allowed_.fixed)).add(std::uint64_t{flags_.steps});
    hasher.add(flags_.warmup ? std::to_string(*flags_.warmup) : "");
    return hash_text(hasher.digest());
  }

  /// Two recordings: of the program as it is, and serially in buckets of many sizes.
  void record() {
    space_.emplace(RecordedProgram{}, allowed_);
    // The log before anything takes time: it may be the wrong one.
    trials_.emplace(
        program_, *space_, watch_, Trials::Options{flags_.log, fingerprint(), flags_.json});
    RecordedProgram recorded;
    const TrialReport as_it_is = trials_->record({});
    if (!as_it_is.plan) {
      throw Error(ErrorCode::kBackend,
                  {"the program fails as it is, without anything changed",
                   command_line(program_.words()),
                   as_it_is.error,
                   "steps to compare with",
                   "Run it by itself first"});
    }
    recorded.plan = *as_it_is.plan;
    recorded.schedule = as_it_is.schedule.empty() ? "overlap" : as_it_is.schedule;
    recorded.streams = program_.flag("--streams").value_or("1");
    recorded.machine = machine_;
    recorded.optimizer_per_bucket = !program_.launches();
    TrialRequest serial;
    serial.plan = probe_plan(recorded.plan);
    serial.schedule = "serial";
    const TrialReport probe = program_.run(serial, true, watch_);
    if (probe.interrupted) {
      throw Interrupted{};
    }
    if (probe.timeline) {
      recorded.profile = measured_profile(*probe.timeline, recorded.plan.tensors);
      if (!machine_) {
        const Explanation explanation = stretto::explain(*probe.timeline);
        if (explanation.fitted) {
          const int ranks =
              static_cast<int>(std::max<std::uint32_t>(1, probe.timeline->world_size));
          recorded.fitted = costs_of(*explanation.fitted, ranks);
          recorded.costs_basis = fmt::format("fitted to {} sizes ({} + {:.4g} s/GB, measured)",
                                             explanation.fitted->sizes,
                                             format(explanation.fitted->cost.latency),
                                             explanation.fitted->cost.seconds_per_byte * 1e9);
        }
      }
    } else {
      report_.notes.push_back("nothing could be predicted: " + probe.error);
    }
    if (machine_) {
      recorded.costs_basis = fmt::format("of {} ({})", machine_->name, to_string(machine_->basis));
    } else if (!recorded.fitted && probe.timeline) {
      report_.notes.emplace_back(
          "what communication costs could not be told from the recording; give --machine M");
    }
    allowed_.schedules = {"overlap", "serial"};
    if (grid_.empty() && !value_of(allowed_.fixed, "schedule")) {
      TrialRequest priority;
      priority.schedule = "priority";
      const TrialReport tried = program_.run(priority, false, watch_);
      if (tried.interrupted) {
        throw Interrupted{};
      }
      if (tried.error.empty()) {
        allowed_.schedules.emplace_back("priority");
      } else {
        report_.notes.push_back("schedule priority was left out: " + tried.error);
      }
    }
    *space_ = TuneSpace(std::move(recorded), allowed_);
    report_.costs_basis = space_->recorded().costs_basis;
    report_.predicted_default = space_->predict({});
  }

  [[nodiscard]] bool over_budget() const {
    return budget_ && Seconds(Clock::now() - begin_) >= *budget_;
  }

  void search() {
    const std::vector<Candidate> candidates = space_->candidates(flags_.candidates);
    report_.combinations = space_->combinations();
    TuneOptions options;
    options.seed = flags_.seed;
    options.stop = [this] { return over_budget(); };
    const bool all_predicted =
        !candidates.empty() && report_.predicted_default &&
        std::all_of(candidates.begin(), candidates.end(), [](const Candidate& one) {
          return one.predicted.has_value();
        });
    // The first is predicted to be the quickest.
    if (all_predicted &&
        *report_.predicted_default < *candidates.front().predicted * (1.0 + options.least_gain)) {
      report_.result.verdict = Verdict::kNoise;
      for (const Candidate& candidate : candidates) {
        report_.result.candidates.push_back({candidate, {}, {}, 0, 0, {}});
      }
      report_.result.best = 0;
      return;
    }
    report_.result = tune(
        candidates,
        [this](const Setting& setting, std::size_t repeat) {
          return trials_->run(setting, repeat);
        },
        options);
  }

  /// The plain experiment: the same steps with each, one after the other.
  void run_grid() {
    report_.grid = true;
    TuneResult& result = report_.result;
    const auto trial = [&](CandidateResult& of) {
      const TrialOutcome outcome = trials_->run(of.candidate.setting, 0);
      ++result.trials;
      if (outcome.step) {
        of.steps.push_back(*outcome.step);
      } else {
        of.error = outcome.error;
      }
    };
    trial(result.baseline);
    if (result.baseline.steps.empty()) {
      throw Error(ErrorCode::kBackend,
                  {"the program fails as it is", "the default", result.baseline.error, "", ""});
    }
    Seconds quickest = result.baseline.steps[0];
    for (const Setting& setting : combinations(grid_)) {
      if (over_budget()) {
        report_.notes.emplace_back("the budget was spent before the grid was done");
        break;
      }
      result.candidates.push_back({{setting, space_->predict(setting)}, {}, {}, 0, 1, {}});
      CandidateResult& one = result.candidates.back();
      trial(one);
      if (!one.steps.empty()) {
        one.log_ratios.push_back(std::log(result.baseline.steps[0] / one.steps[0]));
        if (one.steps[0] < quickest) {
          quickest = one.steps[0];
          result.best = result.candidates.size() - 1;
        }
      }
    }
  }

  /// Of each step, samples/s of all ranks together, else steps/s.
  static std::vector<double> rates(const TrialReport& trial) {
    std::vector<double> lengths;
    for (const StepNumbers& one : step_numbers(*trial.timeline)) {
      if (one.rank == 0) {
        lengths.push_back(one.length.count());
      }
    }
    const std::optional<double> samples = trial.summary->samples_per_s;
    const double each = samples ? *samples * trial.summary->step.count() : 1.0;
    for (double& length : lengths) {
      length = each / length;
    }
    return lengths;
  }

  void explain_winner() {
    if (!flags_.explain) {
      return;
    }
    const Setting winner = report_.winner();
    if (winner.empty()) {
      report_.notes.emplace_back("there is nothing to explain: the default is kept");
      return;
    }
    for (std::size_t knobs = 0; knobs <= winner.size(); ++knobs) {
      const Setting setting(winner.begin(), winner.begin() + static_cast<std::ptrdiff_t>(knobs));
      ExplainedKnob row{setting, {}, std::nullopt, {}};
      std::string error;
      for (std::size_t i = 0; i < kExplainTrials; ++i) {
        const TrialReport trial = trials_->record(setting);
        if (!trial.summary || !trial.timeline) {
          error = trial.error;
          continue;
        }
        if (row.step == Seconds(0) || trial.summary->step < row.step) {
          row = {setting, trial.summary->step, trial.summary->samples_per_s, rates(trial)};
        }
      }
      if (row.step > Seconds(0)) {
        report_.explained.push_back(std::move(row));
      } else {
        report_.notes.push_back(fmt::format("{} failed: {}", to_string(setting), error));
      }
    }
  }

  void finish() {
    const Setting winner = report_.winner();
    TrialRequest request = space_->request(winner);
    report_.log_file = flags_.log;
    report_.wall = Seconds(Clock::now() - begin_);
    if (!flags_.output.empty() && !request.plan) {
      request.plan = space_->recorded().plan;
    }
    report_.command =
        program_.command(request, flags_.output.empty() ? "plan.json" : flags_.output);
    if (!flags_.output.empty()) {
      report_.plan_file = flags_.output;
      auto document = nlohmann::ordered_json::parse(to_json(*request.plan));
      document["evidence"] = tune_evidence(report_, *trials_, request);
      write_file(flags_.output, document.dump(2) + "\n");
    } else if (request.plan) {
      report_.notes.emplace_back("-o plan.json writes the plan that the next command names");
    }
    if (!flags_.json) {
      write_stdout(tune_text(report_, *trials_));
      return;
    }
    nlohmann::ordered_json document = {{"schema", "stretto.tune/1"},
                                       {"version", kVersion},
                                       {"arguments", context_.arguments},
                                       {"program", program_.words()},
                                       {"steps", flags_.steps},
                                       {"seed", flags_.seed}};
    document.update(tune_document(report_, *trials_));
    write_stdout(document.dump(2) + "\n");
  }

  const TuneFlags& flags_;
  const Context& context_;
  const Clock::time_point begin_ = Clock::now();
  InterruptWatch watch_;
  TunedProgram program_;
  std::vector<KnobValues> grid_;
  TuneSpace::Allowed allowed_;
  std::optional<Seconds> budget_;
  std::optional<Machine> machine_;
  std::optional<TuneSpace> space_;
  std::optional<Trials> trials_;
  TuneReport report_;
};

}  // namespace

Action add_tune(CLI::App& app) {
  app.description(
      "stretto tune [OPTIONS] -- PROGRAM\n"
      "Finds buckets, schedule and algorithm for a program, and proves that they are quicker");
  app.footer(
      "PROGRAM is replay or train with its flags, or run -n RANKS -- PROGRAM ARGS of a script "
      "that\n"
      "trains with stretto.torch.DDP. A few steps are recorded, a model predicts all settings, "
      "and\n"
      "the best few are tried in pairs against the program as it is. See docs/tuning.md.\n\n"
      "Examples:\n"
      "  stretto tune -o plan.json -- replay resnet50 --emulate 4@5Gbit/s,50us --buckets ddp\n"
      "  stretto tune --grid buckets=1M,5M,25M,100M --steps 20 -- train -n 2\n"
      "  stretto tune --log tune.csv --budget 5m -- run -n 2 -- python3 train.py");
  const auto flags = std::make_shared<TuneFlags>();
  app.add_option(
         "--grid",
         flags->grid,
         "The plain experiment instead: every combination once. Knobs: buckets (planned, "
         "ddp, single, a size), schedule, algorithm, streams, codec, ratio (of topk), places")
      ->type_name("K=V,V,K=V");
  app.add_option("--steps", flags->steps, "Measured steps of each trial (default 20)")
      ->check(CLI::Range(2, 1000000))
      ->type_name("N");
  app.add_option("--warmup", flags->warmup, "Steps before those (default: the program's own)")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  app.add_option("--fix", flags->fix, "Leave a knob at this value in all trials (again for more)")
      ->take_all()
      ->allow_extra_args(false)  // one each time: what follows is an argument
      ->type_name("K=V");
  app.add_option("--env",
                 flags->environment,
                 "Try these values of an environment variable (again for more)")
      ->take_all()
      ->allow_extra_args(false)  // one each time: what follows is an argument
      ->type_name("NAME=V,V");
  app.add_option("--codecs",
                 flags->codecs,
                 "Try these codecs too; they lose something: see docs/compression.md")
      ->type_name("CODEC,...");
  app.add_option("--machine",
                 flags->machine,
                 "Predict for this machine (default: --emulate's, else "
                 "fitted to a recording)")
      ->type_name("M");
  app.add_option("--candidates", flags->candidates, "Predicted settings that are tried (default 8)")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  app.add_option("--budget", flags->budget, "Begin no trial after so long")->type_name("TIME");
  app.add_option("--trial-limit", flags->trial_limit, "End a trial that takes longer (default 10m)")
      ->type_name("TIME");
  app.add_option("--log",
                 flags->log,
                 "Write every trial there as it ends, and take those from "
                 "there that it has")
      ->type_name("FILE");
  app.add_option("--seed", flags->seed, "Of the order of trials (default 1)")
      ->check(whole_number_from(0, std::numeric_limits<std::int64_t>::max()))
      ->type_name("N");
  app.add_flag("--explain", flags->explain, "Then add one knob of the winner at a time");
  app.add_option("-o,--output", flags->output, "Write the plan that won, with its evidence")
      ->type_name("FILE");
  app.add_flag("--json", flags->json, "One JSON document on stdout, also on failure");
  return [flags](const Context& context) { return Tuning(*flags, context).run(); };
}

}  // namespace stretto::cli
