// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "bindings.hpp"
#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/plan/planner.hpp"
#include "stretto/plan/settings.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/plan_report.hpp"
#include "stretto/report/report.hpp"
#include "stretto/simulate/simulate.hpp"
#include "stretto/trace/trace.hpp"

namespace stretto::python {
namespace {

/// What analyze() gives: an Explanation with the timeline it is of.
struct Analysis {
  std::shared_ptr<const Timeline> timeline;
  Explanation explanation;
  std::vector<std::string> notes;
};

/// What plan() gives: with its inputs, so that settings can be made of it later.
struct Planned {
  StepProfile profile;
  ExchangeCosts costs;
  SimulateOptions options;
  PlanResult result;
};

struct Simulated {
  Simulation simulation;
  Summary summary;
};

AnalyzeOptions analyze_options(const std::optional<Machine>& machine,
                               std::int64_t samples_per_step) {
  AnalyzeOptions options;
  options.machine = machine;
  options.samples_per_step = samples_per_step;
  return options;
}

Analysis explained(Timeline timeline,
                   std::vector<std::string> notes,
                   const std::optional<Machine>& machine,
                   std::int64_t samples_per_step) {
  Analysis analysis;
  analysis.explanation = explain(timeline, analyze_options(machine, samples_per_step));
  analysis.notes = std::move(notes);
  analysis.notes.insert(
      analysis.notes.end(), analysis.explanation.notes.begin(), analysis.explanation.notes.end());
  analysis.timeline = std::make_shared<const Timeline>(std::move(timeline));
  return analysis;
}

Analysis analyze_files(const std::vector<std::string>& paths,
                       const std::optional<Machine>& machine,
                       std::int64_t samples_per_step,
                       const std::vector<std::string>& comm_regex,
                       const std::string& step_regex,
                       bool salvage,
                       bool align) {
  TraceReadOptions options;
  options.salvage = salvage;
  options.step_expression = step_regex;
  for (const std::string& expression : comm_regex) {
    options.rules.add_expression(expression);
  }
  Trace trace = read_traces(find_traces(paths), options);
  std::vector<std::string> notes = trace.notes;
  for (const TraceFile& file : trace.files) {
    if (file.fault) {
      notes.push_back(file.path + ": broken at byte " + std::to_string(file.fault->offset) + " (" +
                      file.fault->what + "); at least " + std::to_string(file.lost) +
                      " of its events were lost");
    }
    for (const std::string& note : file.notes) {
      notes.push_back(file.path + ": " + note);
    }
  }
  if (align) {
    for (std::string& note : align_clocks(trace.timeline)) {
      notes.push_back(std::move(note));
    }
  }
  return explained(std::move(trace.timeline), std::move(notes), machine, samples_per_step);
}

// What-ifs that plan() and simulate() share.
SimulateOptions simulate_options(
    std::string_view schedule, int streams, int accumulate, int zero, bool optimizer_per_bucket) {
  if (streams < 0 || accumulate < 1 || zero < 0 || zero > 3) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {"an option is not possible",
         "streams, accumulate, zero",
         std::to_string(streams) + ", " + std::to_string(accumulate) + ", " + std::to_string(zero),
         "streams of 0 or more, accumulate of 1 or more, zero from 0 to 3",
         ""});
  }
  SimulateOptions options;
  options.schedule = schedule_from_string(schedule);
  options.streams = streams;
  options.accumulate = accumulate;
  options.sharding = static_cast<Sharding>(zero);
  options.optimizer_per_bucket = optimizer_per_bucket;
  return options;
}

ExchangeCosts costs_on(const Machine& machine,
                       std::string_view algorithm,
                       const StepProfile& profile) {
  return exchange_costs(
      machine, algorithm_from_string(algorithm), std::max(Bytes(1), profile.bytes()));
}

Planned planned(StepProfile profile, ExchangeCosts costs, const SimulateOptions& options) {
  Planned made{std::move(profile), std::move(costs), options, {}};
  made.result = plan(made.profile, made.costs, made.options);
  return made;
}

// A trace, with the machine that is named or the costs of its own exchanges.
Planned plan_trace(const Analysis& analysis,
                   const std::optional<Machine>& machine,
                   std::string_view algorithm,
                   SimulateOptions options) {
  StepProfile profile = planning_profile_of_trace(*analysis.timeline);
  if (machine) {
    ExchangeCosts costs = costs_on(*machine, algorithm, profile);
    return planned(std::move(profile), std::move(costs), options);
  }
  if (!analysis.explanation.fitted) {
    throw Error(ErrorCode::kInvalidArgument,
                {"what communication costs is not known",
                 "machine",
                 "no machine, and no two sizes of all_reduce in the trace to fit one to",
                 "a preset, a file, or RANKS@BANDWIDTH,LATENCY",
                 "Example: machine='8@100Gbit/s,20us'"});
  }
  const int ranks = static_cast<int>(std::max<std::uint32_t>(1, analysis.timeline->world_size));
  return planned(std::move(profile), costs_of(*analysis.explanation.fitted, ranks), options);
}

Simulated simulated(const StepProfile& profile,
                    const Machine& machine,
                    const std::optional<Plan>& given,
                    std::string_view algorithm,
                    const SimulateOptions& options) {
  const ExchangeCosts costs = costs_on(machine, algorithm, profile);
  const PlanResult best = plan(profile, costs, options);
  Simulated made;
  made.simulation = simulate(profile, costs, given ? *given : best.plan, options);
  AnalyzeOptions analysis;
  analysis.samples_per_step = profile.batch * options.accumulate * std::int64_t{costs.ranks};
  made.summary = analyze(made.simulation.timeline, analysis);
  // Ranks that do the same are drawn as one.
  made.summary.ranks = made.simulation.timeline.world_size;
  // Of the model, not of what was simulated: no plan, this one neither, is quicker.
  made.summary.bound = std::min(made.summary.step, best.bound);
  return made;
}

void bind_analysis(nb::module_& module) {
  nb::class_<Diagnosis>(module, "Diagnosis", "One thing that the numbers say, in words.")
      .def_ro("id", &Diagnosis::id)
      .def_ro("finding", &Diagnosis::finding)
      .def_ro("evidence", &Diagnosis::evidence)
      .def_ro("threshold", &Diagnosis::threshold)
      .def_ro("advice", &Diagnosis::advice)
      .def_prop_ro("weight", [](const Diagnosis& self) { return to_string(self.weight); })
      .def("__repr__", [](const Diagnosis& self) {
        return "<Diagnosis " + self.id + ": " + self.finding + ">";
      });

  nb::class_<Analysis>(module, "Analysis", "What can be said of a Timeline of any origin.")
      .def_prop_ro(
          "summary",
          [](const Analysis& self) { return self.explanation.summary; },
          "None if nothing can be cut into steps.")
      .def_prop_ro(
          "verdict",
          [](const Analysis& self) { return verdict(self.explanation); },
          "The answer in one line.")
      .def_prop_ro(
          "diagnoses",
          [](const Analysis& self) { return self.explanation.diagnoses; },
          "Heaviest first.")
      .def_prop_ro(
          "settings",
          [](const Analysis& self) -> std::optional<std::string> {
            if (!self.explanation.certificate) {
              return std::nullopt;
            }
            return self.explanation.certificate->settings.text;
          },
          "The lines to change for PyTorch's DistributedDataParallel; None where it is not known "
          "what exchanges cost.")
      .def_ro("notes", &Analysis::notes, "What a reader of the numbers should know.")
      .def_prop_ro(
          "timeline",
          [](const Analysis& self) { return Timeline(*self.timeline); },
          "A copy of the timeline.")
      .def(
          "to_dict",
          [](const Analysis& self) { return parsed(to_json(self.explanation)); },
          "The keys of `stretto analyze --json`.")
      .def("__str__", [](const Analysis& self) { return text_explanation(self.explanation); })
      .def("__repr__",
           [](const Analysis& self) { return "<Analysis: " + verdict(self.explanation) + ">"; })
      .def("_repr_html_", [](const nb::object& self) { return html(self); });

  module.def("analyze_files",
             &analyze_files,
             "paths"_a,
             "machine"_a,
             "samples_per_step"_a,
             "comm_regex"_a,
             "step_regex"_a,
             "salvage"_a,
             "align"_a,
             nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "analyze_timeline",
      [](const Timeline& timeline,
         const std::optional<Machine>& machine,
         std::int64_t samples_per_step) {
        return explained(timeline, {}, machine, samples_per_step);
      },
      "timeline"_a,
      "machine"_a,
      "samples_per_step"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "summarize",
      [](const Timeline& timeline,
         const std::optional<Machine>& machine,
         std::int64_t samples_per_step) {
        return analyze(timeline, analyze_options(machine, samples_per_step));
      },
      "timeline"_a,
      "machine"_a = nb::none(),
      "samples_per_step"_a = 0,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "measured_step_profile_of_plan",
      [](const Timeline& timeline, const Plan& plan, std::string model) {
        StepProfile shape;
        shape.model = std::move(model);
        for (const TensorSpec& tensor : plan.tensors) {
          shape.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
        }
        return step_profile(timeline, shape);
      },
      "timeline"_a,
      "plan"_a,
      "model"_a,
      "What the recorded steps do without communication.",
      nb::call_guard<nb::gil_scoped_release>());
}

void bind_plan_result(nb::module_& module) {
  nb::class_<PlannedBucket>(module, "PlannedBucket")
      .def_ro("tensors", &PlannedBucket::tensors)
      .def_prop_ro("bytes", [](const PlannedBucket& self) { return self.bytes.count(); })
      .def_prop_ro("ready_s", [](const PlannedBucket& self) { return self.ready.count(); })
      .def_prop_ro("begin_s", [](const PlannedBucket& self) { return self.begin.count(); })
      .def_prop_ro("end_s", [](const PlannedBucket& self) { return self.end.count(); });

  nb::class_<Alternative>(module, "Alternative", "Another way to cut the same gradients.")
      .def_ro("name", &Alternative::name)
      .def_ro("plan", &Alternative::plan)
      .def_prop_ro("step_s", [](const Alternative& self) { return self.step.count(); });

  nb::class_<Planned>(
      module, "PlanResult", "The best plan that was found, and how little any schedule could take.")
      .def_prop_ro("plan", [](const Planned& self) { return self.result.plan; })
      .def_ro("profile", &Planned::profile)
      .def_prop_ro("ranks", [](const Planned& self) { return self.costs.ranks; })
      .def_prop_ro("predicted_step_s", [](const Planned& self) { return self.result.step.count(); })
      .def_prop_ro("compute_s", [](const Planned& self) { return self.result.compute.count(); })
      .def_prop_ro("exposed_s", [](const Planned& self) { return self.result.exposed().count(); })
      .def_prop_ro("optimum_s", [](const Planned& self) { return self.result.optimum.count(); })
      .def_prop_ro("optimum_is_exact",
                   [](const Planned& self) { return self.result.optimum_is_exact; })
      .def_prop_ro("bound_s", [](const Planned& self) { return self.result.bound.count(); })
      .def_prop_ro("bound_gap_ratio",
                   [](const Planned& self) { return self.result.bound_gap_ratio(); })
      .def_prop_ro("optimum_gap_ratio",
                   [](const Planned& self) { return self.result.optimum_gap_ratio(); })
      .def_prop_ro("buckets", [](const Planned& self) { return self.result.buckets; })
      .def_prop_ro("alternatives", [](const Planned& self) { return self.result.alternatives; })
      .def_prop_ro(
          "verdict",
          [](const Planned& self) { return verdict(self.result); },
          "The answer in one line.")
      .def(
          "settings",
          [](const Planned& self, std::string_view framework) {
            return settings_for(framework_from_string(framework),
                                self.profile,
                                self.costs,
                                self.result,
                                self.options)
                .text;
          },
          "framework"_a = "ddp",
          "Lines to paste for ddp, fsdp, deepspeed, megatron, horovod or nccl.")
      .def(
          "to_dict",
          [](const Planned& self) { return parsed(to_json(self.result)); },
          "The keys of `stretto plan --json`.")
      .def("__str__", [](const Planned& self) { return text_plan(self.result); })
      .def("__repr__",
           [](const Planned& self) { return "<PlanResult: " + verdict(self.result) + ">"; })
      .def("_repr_html_", [](const nb::object& self) { return html(self); });

  module.def(
      "plan_profile",
      [](const StepProfile& profile,
         const Machine& machine,
         std::string_view algorithm,
         std::string_view schedule,
         int streams,
         int accumulate,
         int zero,
         bool optimizer_per_bucket) {
        return planned(profile,
                       costs_on(machine, algorithm, profile),
                       simulate_options(schedule, streams, accumulate, zero, optimizer_per_bucket));
      },
      "profile"_a,
      "machine"_a,
      "algorithm"_a,
      "schedule"_a,
      "streams"_a,
      "accumulate"_a,
      "zero"_a,
      "optimizer_per_bucket"_a,
      nb::call_guard<nb::gil_scoped_release>());
  module.def(
      "plan_analysis",
      [](const Analysis& analysis,
         const std::optional<Machine>& machine,
         std::string_view algorithm,
         std::string_view schedule,
         int streams,
         int accumulate,
         int zero) {
        return plan_trace(analysis,
                          machine,
                          algorithm,
                          simulate_options(schedule, streams, accumulate, zero, false));
      },
      "analysis"_a,
      "machine"_a,
      "algorithm"_a,
      "schedule"_a,
      "streams"_a,
      "accumulate"_a,
      "zero"_a,
      nb::call_guard<nb::gil_scoped_release>());
}

void bind_simulation(nb::module_& module) {
  nb::class_<Simulated>(module, "Simulation", "A predicted step.")
      .def_prop_ro("step_s", [](const Simulated& self) { return self.simulation.step.count(); })
      .def_prop_ro("communication_end_s",
                   [](const Simulated& self) { return self.simulation.communication_end.count(); })
      .def_prop_ro(
          "steady",
          [](const Simulated& self) { return self.simulation.steady; },
          "False when steps did not come to repeat; step_s is then a mean.")
      .def_prop_ro("events", [](const Simulated& self) { return self.simulation.events; })
      .def_ro("summary", &Simulated::summary)
      .def_prop_ro("timeline", [](const Simulated& self) { return self.simulation.timeline; })
      .def("to_dict",
           [](const Simulated& self) {
             nb::dict dict;
             dict["step_s"] = self.simulation.step.count();
             dict["communication_end_s"] = self.simulation.communication_end.count();
             dict["events"] = self.simulation.events;
             dict["summary"] = parsed(to_json(self.summary));
             return dict;
           })
      .def("__str__",
           [](const Simulated& self) {
             TextTimelineOptions drawing;
             drawing.step = self.simulation.timeline.steps_total - 1;
             return text_timeline(self.simulation.timeline, drawing) + "\n" +
                    text_summary(self.summary);
           })
      .def("__repr__",
           [](const Simulated& self) {
             return "<Simulation: step " + format(self.simulation.step) + ", exposed " +
                    format(self.summary.exposed) + ">";
           })
      .def("_repr_html_", [](const nb::object& self) { return html(self); });

  module.def(
      "simulate_profile",
      [](const StepProfile& profile,
         const Machine& machine,
         const std::optional<Plan>& given,
         std::string_view algorithm,
         std::string_view schedule,
         int streams,
         int accumulate,
         int zero,
         bool optimizer_per_bucket) {
        return simulated(
            profile,
            machine,
            given,
            algorithm,
            simulate_options(schedule, streams, accumulate, zero, optimizer_per_bucket));
      },
      "profile"_a,
      "machine"_a,
      "plan"_a,
      "algorithm"_a,
      "schedule"_a,
      "streams"_a,
      "accumulate"_a,
      "zero"_a,
      "optimizer_per_bucket"_a,
      nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void bind_results(nb::module_& module) {
  bind_analysis(module);
  bind_plan_result(module);
  bind_simulation(module);
}

}  // namespace stretto::python
