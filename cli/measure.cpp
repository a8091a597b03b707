// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/measure.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "codecs.hpp"
#include "commands.hpp"
#include "flags.hpp"
#include "job.hpp"
#include "measure_report.hpp"
#include "output.hpp"
#include "result.hpp"
#include "stretto/base/text.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/measure/codec_rates.hpp"
#include "stretto/measure/overlap.hpp"
#include "stretto/measure/probe.hpp"
#include "stretto/workload/emulation_check.hpp"

namespace stretto::cli {
namespace {

struct MeasureFlags {
  JobOptions job;
  std::string op;
  std::string least = "8";
  std::string most = "16M";
  std::string step_bytes;
  double step_factor = 0.0;
  int iterations = 20;
  int most_iterations = 1000;
  double precision = 0.02;
  std::string budget = "2s";
  int warmup = 5;
  int at_once = 1;
  int check = 1;
  int root = 0;
  std::optional<int> average;
  std::string dtype = "float";
  std::string reduction = "sum";
  std::vector<std::string> op_or_file;
  std::string machine_out;
  std::string algorithms = "auto";
  std::string buffers;
  std::string levels;
  bool overlap = false;
  double compute_ratio = 1.0;
  bool no_fit = false;
  std::string codec;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse(std::string message,
                         std::string where,
                         std::string found,
                         std::string expected,
                         std::string help = {}) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message),
               std::move(where),
               std::move(found),
               std::move(expected),
               std::move(help)});
}

/// Under the names of Stretto and of NCCL tests.
Collective collective_of(const std::string& name) {
  struct Name {
    std::string_view text;
    Collective collective;
  };
  constexpr std::array kNames = {Name{"all_reduce", Collective::kAllReduce},
                                 Name{"reduce_scatter", Collective::kReduceScatter},
                                 Name{"all_gather", Collective::kAllGather},
                                 Name{"broadcast", Collective::kBroadcast},
                                 Name{"reduce", Collective::kReduce},
                                 Name{"all_to_all", Collective::kAllToAll},
                                 Name{"alltoall", Collective::kAllToAll},
                                 Name{"sendrecv", Collective::kSendRecv},
                                 Name{"send_recv", Collective::kSendRecv}};
  std::string word = name.ends_with("_perf") ? name.substr(0, name.size() - 5) : name;
  std::vector<std::string_view> known;
  for (const Name& one : kNames) {
    if (one.text == word) {
      return one.collective;
    }
    known.push_back(one.text);
  }
  refuse("no such operation to measure",
         "OP",
         quote(name),
         "one of " + join(known),
         suggest(word, known));
}

std::vector<Bytes> sizes_of(const MeasureFlags& flags) {
  constexpr std::size_t kMostSizes = 10000;
  const Bytes least = from_flag("-b", [&] { return parse_bytes(flags.least); });
  const Bytes most = from_flag("-e", [&] { return parse_bytes(flags.most); });
  if (least < Bytes(1)) {
    refuse("the smallest size has no bytes", "-b", flags.least, "1 byte or more");
  }
  if (least > most) {
    refuse(fmt::format(
               "-b {} is larger than -e {}, so no size would be measured", flags.least, flags.most),
           "-b, -e",
           "",
           "",
           fmt::format("Swap them, or use one size: -b {0} -e {0}", flags.least));
  }
  std::vector<Bytes> sizes;
  if (!flags.step_bytes.empty()) {
    const Bytes step = from_flag("-i", [&] { return parse_bytes(flags.step_bytes); });
    if (step < Bytes(1)) {
      refuse("the step between sizes is no step", "-i", flags.step_bytes, "1 byte or more");
    }
    for (Bytes size = least; size <= most && sizes.size() <= kMostSizes; size += step) {
      sizes.push_back(size);
    }
  } else {
    const double factor = flags.step_factor != 0.0 ? flags.step_factor : 4.0;
    if (!(factor > 1.0)) {
      refuse("the factor between sizes does not lead to the next",
             "-f",
             fmt::format("{}", factor),
             "a number above 1");
    }
    auto next = static_cast<double>(least.count());
    while (next <= static_cast<double>(most.count()) && sizes.size() <= kMostSizes) {
      sizes.emplace_back(static_cast<std::int64_t>(next));
      next *= factor;
    }
  }
  if (sizes.size() > kMostSizes) {
    refuse("that is more sizes than anybody waits for",
           "-b, -e, -i, -f",
           fmt::format("more than {}", kMostSizes),
           fmt::format("at most {}", kMostSizes));
  }
  return sizes;
}

/// `2x4`, outermost first, as in a machine's spec; returned innermost first.
std::vector<int> parse_levels(const std::string& text) {
  std::vector<int> sizes;
  for (const std::string& part : split(text, 'x')) {
    int size = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, size);
    if (error != std::errc() || stop != end || size < 1) {
      refuse("the levels cannot be read",
             "--levels",
             quote(text),
             "counts with an x between, outermost first",
             "Example: --levels 2x4 for 2 nodes of 4 ranks");
    }
    sizes.insert(sizes.begin(), size);
  }
  return sizes;
}

/// Group sizes innermost first, and the levels' names.
struct Levels {
  std::vector<int> sizes;
  std::vector<std::string> names;
};

Levels levels_of(const MeasureFlags& flags, int ranks) {
  Levels levels;
  const std::optional<Machine> machine = flags.job.machine();
  if (!flags.levels.empty()) {
    levels.sizes = parse_levels(flags.levels);
  } else if (machine) {
    for (const Level& level : machine->levels) {
      levels.sizes.push_back(level.group_size);
      levels.names.push_back(level.name);
    }
  } else {
    const RankEnvironment environment = detect_rank_environment(process_environment());
    const int local = environment.local_world_size;
    if (local > 1 && local < ranks && ranks % local == 0) {
      levels.sizes = {local, ranks / local};
      levels.names = {"node", "network"};
    } else {
      levels.sizes = {ranks};
      levels.names = {local < ranks ? "network" : "node"};
    }
  }
  return levels;
}

/// `-o` is the reduction in NCCL tests and a file in all other commands of this program; what it is
/// given tells which.
void resolve_o(MeasureFlags& flags) {
  for (const std::string& value : flags.op_or_file) {
    if (value.find_first_of("./") != std::string::npos) {
      flags.machine_out = value;
    } else {
      flags.reduction = value;
    }
  }
}

MeasureOptions measure_options(const MeasureFlags& flags) {
  MeasureOptions options;
  options.collective = collective_of(flags.op);
  options.sizes = sizes_of(flags);
  options.algorithms.clear();
  for (const std::string& name : split(flags.algorithms, ',')) {
    if (name == "all") {
      const Collective what =
          options.collective == Collective::kSendRecv ? Collective::kSend : options.collective;
      const std::vector<Algorithm> all = runnable_algorithms(what);
      options.algorithms.insert(options.algorithms.end(), all.begin(), all.end());
      continue;
    }
    options.algorithms.push_back(
        from_flag("--algorithm", [&] { return algorithm_from_string(name); }));
  }
  options.op = from_flag("-o", [&] { return reduction_from_either(flags.reduction); });
  options.dtypes.clear();
  for (const std::string& name : split(flags.dtype, ',')) {
    if (name == "all") {
      // The mean of integers is not defined.
      std::copy_if(
          kAllDTypes.begin(),
          kAllDTypes.end(),
          std::back_inserter(options.dtypes),
          [&](DType dtype) { return options.op != ReduceOp::kMean || is_floating(dtype); });
    } else {
      options.dtypes.push_back(from_flag("-d", [&] { return dtype_from_either(name); }));
    }
  }
  if (flags.buffers == "private") {
    options.buffers = {Buffers::kPrivate};
  } else if (flags.buffers == "both") {
    options.buffers = {Buffers::kArena, Buffers::kPrivate};
  } else if (!flags.buffers.empty() && flags.buffers != "arena") {
    refuse("no such buffers", "--buffers", quote(flags.buffers), "arena, private or both");
  }
  options.root = flags.root;
  options.warmup = flags.warmup;
  options.stop.least = flags.iterations;
  options.stop.most = std::max(flags.iterations, flags.most_iterations);
  options.stop.precision = flags.precision;
  options.stop.budget = from_flag("--budget", [&] { return parse_duration(flags.budget); });
  options.at_once = flags.at_once;
  options.over_ranks = static_cast<OverRanks>(flags.average.value_or(1));
  options.check = flags.check != 0;
  if (!flags.job.emulate.empty()) {
    options.progress = Progress::kBackground;
    options.one_clock = !flags.average;
  }
  return options;
}

std::function<void(std::size_t, std::size_t)> progress_of(const Communicator& communicator,
                                                          const std::string& name,
                                                          bool quiet) {
  const OnProgress line = progress_line(communicator, name, quiet);
  if (!line) {
    return {};
  }
  return [line](std::size_t done, std::size_t all) {
    StepProgress progress;
    progress.step = static_cast<std::uint32_t>(done);
    progress.steps = static_cast<std::uint32_t>(all);
    line(progress);
  };
}

/// The same on every rank, like what it is about.
void refuse_wrong(const Measurement& measurement) {
  if (measurement.wrong() == 0) {
    return;
  }
  std::string rows;
  for (const MeasuredRow& row : measurement.rows) {
    if (row.wrong > 0) {
      rows += fmt::format("{}{} B {} {} {}: {}",
                          rows.empty() ? "" : "; ",
                          row.size.count(),
                          to_string(row.dtype),
                          to_string(row.algorithm),
                          to_string(row.buffers),
                          row.wrong);
    }
  }
  throw Error(ErrorCode::kMismatch,
              {"the collective gave wrong elements, so its times mean nothing",
               std::string(to_string(measurement.collective)),
               rows,
               "0 wrong elements in every row",
               "This is a defect of the backend or of Stretto; please report it with the command"});
}

/// Longest communication, clearest reading.
void set_slowdown(Machine& machine, const std::vector<OverlapRow>& rows) {
  Seconds longest{};
  for (const OverlapRow& row : rows) {
    if (row.compute_slowdown && row.pure_communication.median > longest) {
      longest = row.pure_communication.median;
      machine.compute_slowdown = std::max(1.0, *row.compute_slowdown);
    }
  }
}

std::string source_of(const MeasureFlags& flags,
                      const Context& context,
                      const Communicator& communicator) {
  return fmt::format("measured by `{}` with {} ranks on {}{}",
                     command_line(context.arguments),
                     communicator.size(),
                     communicator.backend(),
                     flags.job.emulate.empty() ? "" : ", a network that is itself emulated");
}

/// The text of the rows: on stdout as they come, for a sweep may take minutes and be interrupted;
/// or kept. To a terminal they are progress enough.
class RowPrinter {
 public:
  RowPrinter(const MeasureResult& result, bool live) : result_(&result), live_(live) {}

  template <typename Row>
  void add(const Row& row) {
    rest_ += std::exchange(first_, false) ? measure_head(*result_) : "";
    rest_ += measure_row(result_->measurement, row);
    if (live_) {
      write_stdout(std::exchange(rest_, {}));
    }
  }
  /// What was not printed.
  [[nodiscard]] const std::string& rest() const noexcept { return rest_; }

 private:
  const MeasureResult* result_;
  bool live_;
  bool first_ = true;
  std::string rest_;
};

std::string run_rank(const MeasureFlags& flags,
                     const MeasureOptions& given,
                     const Context& context,
                     Communicator& communicator) {
  MeasureOptions options = given;
  MeasureResult result;
  result.arguments = context.arguments;
  result.over_ranks = options.over_ranks;
  result.one_clock = options.one_clock;
  result.precision = flags.precision;
  if (const std::optional<Machine> machine = flags.job.machine()) {
    result.emulated = machine->name;
  }
  EmulationCheck emulation(communicator);
  result.under_compute = flags.overlap;
  result.measurement = describe(communicator, options);
  const bool fit = !flags.no_fit && communicator.size() > 1;
  Levels levels;
  if (fit) {  // what cannot be fitted is refused before a long sweep
    levels = levels_of(flags, communicator.size());
    check_group_sizes(levels.sizes, communicator.size());
  }
  const bool live = communicator.rank() == 0 && !flags.job.json && flags.job.output.empty();
  options.on_progress = progress_of(
      communicator, "measuring, row", flags.job.json || (live && isatty(STDOUT_FILENO) != 0));
  RowPrinter rows(result, live);
  if (flags.overlap) {
    result.overlap = measure_overlap(
        communicator,
        {options, flags.compute_ratio, [&](const OverlapRow& row) { rows.add(row); }});
    for (const OverlapRow& row : result.overlap) {
      result.measurement.rows.push_back(row.row);
    }
  } else {
    options.on_row = [&](const MeasuredRow& row) { rows.add(row); };
    result.measurement = measure(communicator, options);
  }
  refuse_wrong(result.measurement);
  if (fit) {
    ProbeOptions probe;
    probe.group_sizes = levels.sizes;
    probe.progress = options.progress;
    if (options.progress == Progress::kBackground) {
      probe.one_clock = true;
      // An emulated line is straight: larger messages only take longer.
      probe.most = Bytes(512 << 10);
    }
    probe.on_progress = progress_of(communicator, "measuring links, level", flags.job.json);
    result.probes = probe_levels(communicator, probe);
    result.fits = fit_collectives(result.measurement);
    const std::string name = flags.machine_out.empty()
                                 ? std::string("measured")
                                 : std::filesystem::path(flags.machine_out).stem().string();
    result.machine = measured_machine(name,
                                      source_of(flags, context, communicator),
                                      result.probes,
                                      levels.sizes,
                                      levels.names,
                                      curves_of(result.measurement));
    set_slowdown(*result.machine, result.overlap);
  }
  emulation.verify();
  if (communicator.rank() != 0) {
    return {};
  }
  if (!flags.codec.empty()) {
    for (const CodecSpec& codec : codecs_from_flag("--codec", flags.codec)) {
      result.codecs.push_back(measure_codec(codec));
    }
    if (result.machine) {
      set_codecs(*result.machine, result.codecs);
    }
  }
  if (!flags.machine_out.empty() && result.machine) {
    write_file(flags.machine_out, to_json(*result.machine));
    result.files.push_back(flags.machine_out);
  }
  return flags.job.json ? measure_json(result) : rows.rest() + measure_end(result);
}

/// Codecs alone: one core, no ranks.
int run_codecs(const MeasureFlags& flags, const Context& context) {
  MeasureResult result;
  result.arguments = context.arguments;
  const std::vector<CodecSpec> codecs = codecs_from_flag("--codec", flags.codec);
  if (!flags.machine_out.empty()) {
    if (!std::filesystem::exists(flags.machine_out)) {
      refuse("codecs are added to a machine that was measured, and there is no such file",
             "-o",
             flags.machine_out,
             "a machine's file",
             "Measure links and codecs at once: stretto measure all_reduce --codec " + flags.codec +
                 " -o " + flags.machine_out);
    }
    result.machine = load_machine("-o", flags.machine_out);
  }
  for (const CodecSpec& codec : codecs) {
    result.codecs.push_back(measure_codec(codec));
  }
  if (result.machine) {
    set_codecs(*result.machine, result.codecs);
    write_file(flags.machine_out, to_json(*result.machine));
    result.files.push_back(flags.machine_out);
  }
  const std::string text =
      flags.job.json ? codecs_json(result) : codec_table(result.codecs) + file_list(result.files);
  if (flags.job.output.empty()) {
    write_stdout(text);
  } else {
    write_file(flags.job.output, text);
  }
  return 0;
}

int run_measure(MeasureFlags flags, const Context& context) {
  resolve_o(flags);
  if (!flags.codec.empty()) {
    const std::vector<CodecSpec> readable = codecs_from_flag("--codec", flags.codec);
    if (flags.op.empty()) {
      return run_codecs(flags, context);
    }
  }
  if (flags.op.empty()) {
    refuse("no operation to measure",
           "OP",
           "",
           "all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all or sendrecv",
           "Example: stretto measure all_reduce -b 8 -e 128M -f 2");
  }
  const MeasureOptions options = measure_options(flags);
  if (flags.no_fit && !flags.machine_out.empty()) {
    refuse("there is no machine to write without a fit", "--no-fit, --machine-out", "both", "one");
  }
  return run_job(flags.job, context.arguments, {}, [&](Communicator& communicator) {
    if (communicator.size() == 1 && !flags.machine_out.empty()) {
      refuse("one rank has no link to measure", "--machine-out", "1 rank", "2 or more");
    }
    return run_rank(flags, options, context, communicator);
  });
}

void add_job(CLI::App& app, JobOptions& job) {
  // As JobOptions::add_to, but -n and -o are NCCL tests' here.
  app.add_option(
         "-g,--ranks", job.ranks, "Ranks to start on this host (default: as --emulate, or 2)")
      ->check(CLI::Range(1, 256))
      ->type_name("RANKS");
  app.add_option("--backend", job.backend, "How ranks communicate: shm")->type_name("NAME");
  app.add_option("--emulate", job.emulate, "Deliver messages as this machine would")
      ->type_name("M");
  app.add_option("--timeout", job.timeout, "Longest time for any one operation (default 30s)")
      ->type_name("TIME");
  app.add_option("--rank-map", job.rank_map, "File of rank numbers, one for each process started")
      ->type_name("FILE");
  app.add_option("--output", job.output, "Write the result there instead of to stdout")
      ->type_name("FILE");
  app.add_flag("--json", job.json, "One JSON document on stdout, also on failure");
}

void add_sweep(CLI::App& app, MeasureFlags& flags) {
  app.add_option("-b,--minbytes", flags.least, "Smallest size (default 8)")->type_name("SIZE");
  app.add_option("-e,--maxbytes", flags.most, "Largest size (default 16M)")->type_name("SIZE");
  auto* factor =
      app.add_option(
             "-f,--stepfactor", flags.step_factor, "Factor from one size to the next (default 4)")
          ->type_name("X");
  app.add_option("-i,--stepbytes", flags.step_bytes, "Bytes from one size to the next, instead")
      ->excludes(factor)
      ->type_name("SIZE");
  app.add_option(
         "-d,--datatype",
         flags.dtype,
         "float (default), double, half, bfloat16, int32, int64; several with commas, or all")
      ->type_name("TYPE");
  app.add_option("-o,--op",
                 flags.op_or_file,
                 "sum (default), avg, min or max; or a file name: as --machine-out")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->type_name("OP|FILE");
  app.add_option("-r,--root", flags.root, "Of broadcast and reduce (default 0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("RANK");
  app.add_option("--algorithm",
                 flags.algorithms,
                 "auto (default), direct, ring...; several with commas, or all that can do it")
      ->type_name("NAME");
  app.add_option("--buffers",
                 flags.buffers,
                 "arena (default: memory the backend reads in place), private or both")
      ->type_name("KIND");
}

void add_how(CLI::App& app, MeasureFlags& flags) {
  app.add_option("-n,--iters", flags.iterations, "Samples of each row, at least (default 20)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app.add_option("--max-iters", flags.most_iterations, "and at most (default 1000)")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  app.add_option("--precision",
                 flags.precision,
                 "Enough samples once the median's 95 % interval is within +- this ratio "
                 "(default 0.02)")
      ->check(number_from(0.0, 1.0))
      ->type_name("X");
  app.add_option("--budget", flags.budget, "or once a row took this long (default 2s)")
      ->type_name("TIME");
  app.add_option("-w,--warmup_iters", flags.warmup, "Calls before, not counted (default 5)")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  app.add_option(
         "-m,--agg_iters", flags.at_once, "Operations started before one is waited for (default 1)")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  app.add_option("-c,--check", flags.check, "Check results: 1 (default) or 0")
      ->check(CLI::Range(0, 1000000))
      ->type_name("N");
  app.add_option(
         "-a,--average",
         flags.average,
         "Times over ranks: 0 of rank 0, 1 mean (default), 2 least, 3 most; with --emulate the "
         "default is from the last start to the last end")
      ->check(CLI::Range(0, 3))
      ->type_name("N");
  app.add_flag("--overlap",
               flags.overlap,
               "Measure under compute: Overall, Compute, Pure-Comm, Overlap(%), slowdown");
  app.add_option("--compute-ratio",
                 flags.compute_ratio,
                 "With --overlap: compute takes so many times the communication (default 1)")
      ->check(number_from(0.01, 100.0))
      ->type_name("X");
  app.add_option("--levels",
                 flags.levels,
                 "Levels to fit, outermost first: 2x4 for 2 nodes of 4 (default: as --emulate, or "
                 "the launcher says)")
      ->type_name("AxB");
  app.add_option("--machine-out", flags.machine_out, "Write what was fitted, for plan --machine")
      ->type_name("FILE");
  app.add_option("--codec",
                 flags.codec,
                 "Codecs of gradients, with commas between, or all: rates of one core, ratio and "
                 "error; without OP these alone, put into the machine of -o FILE")
      ->type_name("CODEC");
  app.add_flag("--no-fit", flags.no_fit, "Do not measure the links");
}

}  // namespace

Action add_measure(CLI::App& app) {
  app.description("Measures a collective as NCCL tests do, and the machine's links behind it");
  app.footer(
      "OP: all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, sendrecv. Sizes "
      "are of the whole "
      "tensor, K = 1024.\nFlags and columns are those of NCCL tests; -n are iterations here, and "
      "--ranks (-g) starts ranks.\n\n"
      "Examples:\n"
      "  stretto measure all_reduce -b 8 -e 128M -f 2 -n 20 -w 5 -c 1\n"
      "  stretto measure all_reduce --emulate 4@1Gbit/s,50us -o machine.json\n"
      "  stretto measure all_gather -g 4 --algorithm direct,ring --buffers both\n"
      "  stretto measure all_reduce --overlap -b 1M -e 16M --json\n"
      "  stretto measure --codec all -o machine.json\n"
      "  mpirun -n 4 stretto measure reduce_scatter -b 1M -e 64M");
  const auto flags = std::make_shared<MeasureFlags>();
  app.add_option("OP", flags->op, "What to measure");
  add_sweep(app, *flags);
  add_how(app, *flags);
  add_job(app, flags->job);
  return [flags](const Context& context) { return run_measure(*flags, context); };
}

}  // namespace stretto::cli
