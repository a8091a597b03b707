// SPDX-License-Identifier: Apache-2.0
#include "result.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "codecs.hpp"
#include "output.hpp"
#include "stretto/report/report.hpp"
#include "stretto/report/tensorboard.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

template <typename T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json run_json(const Run& run) {
  return {{"name", run.name},
          {"schedule", run.schedule},
          {"summary", ordered_json::parse(to_json(run.summary))},
          {"loss", or_null(run.loss)},
          {"accuracy", or_null(run.accuracy)},
          {"weights_hash",
           run.weights_hash ? ordered_json(hash_text(*run.weights_hash)) : ordered_json(nullptr)},
          {"plan_hash", hash_text(run.plan_hash)}};
}

}  // namespace

ordered_json result_document(const Provenance& provenance,
                             const std::vector<Run>& runs,
                             const std::vector<std::string>& files) {
  ordered_json rows = ordered_json::array();
  for (const Run& run : runs) {
    rows.push_back(run_json(run));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"schema", fmt::format("stretto.{}/1", provenance.command)},
          {"version", kVersion},
          {"arguments", provenance.arguments},
          {"time_unix_s", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"host",
           {{"name", host_name()},
            {"processor", processor()},
            {"cores", std::thread::hardware_concurrency()}}},
          {"seed", provenance.seed},
          {"ranks", provenance.ranks},
          {"backend", provenance.backend},
          {"emulated",
           provenance.emulated.empty() ? ordered_json(nullptr) : ordered_json(provenance.emulated)},
          {"assumptions",
           provenance.assumptions.empty() ? ordered_json(nullptr)
                                          : ordered_json(provenance.assumptions)},
          {"runs", std::move(rows)},
          {"files", files}};
}

std::string write_tensorboard(const std::string& directory, const Timeline& recorded) {
  const std::string events = tensorboard_events(recorded);
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);  // what fails here, write_file() says
  std::string path = (std::filesystem::path(directory) / tensorboard_file_name()).string();
  write_file(path, events);
  return path;
}

void ArtifactOptions::add_to(CLI::App& app) {
  app.add_option("--timeline",
                 timeline,
                 "Write what happened; a name ending in .trace.json gives a Chrome trace for "
                 "Perfetto")
      ->type_name("FILE");
  app.add_option("--save-plan", save_plan, "Write the buckets that were used")->type_name("FILE");
  app.add_option("--tb", tensorboard, "Add the steps to this TensorBoard log directory")
      ->type_name("DIR");
  app.add_option("--baseline",
                 baseline,
                 "--json result of a 1-rank run: scaling efficiency is then against it")
      ->type_name("FILE");
}

std::vector<std::string> ArtifactOptions::write(const Timeline& recorded, const Plan& plan) const {
  std::vector<std::string> files;
  if (!timeline.empty()) {
    write_file(timeline,
               timeline.ends_with(".trace.json") ? chrome_trace(recorded) : to_json(recorded));
    files.push_back(timeline);
  }
  if (!save_plan.empty()) {
    write_file(save_plan, to_json(plan));
    files.push_back(save_plan);
  }
  if (!tensorboard.empty()) {
    files.push_back(write_tensorboard(tensorboard, recorded));
  }
  return files;
}

std::optional<Seconds> ArtifactOptions::one_rank_step(std::string_view model) const {
  if (baseline.empty()) {
    return std::nullopt;
  }
  const auto document = ordered_json::parse(read_file(baseline, "--baseline"), nullptr, false);
  try {
    if (document.at("ranks").get<int>() == 1) {
      const auto of = document.value("model", std::string("a model that it does not name"));
      if (of != model) {
        throw Error(ErrorCode::kMismatch,
                    {"the baseline is of another model",
                     baseline,
                     of,
                     std::string(model),
                     "Run the same thing with one rank: -n 1 --json -o baseline.json"});
      }
      return Seconds(document.at("runs").at(0).at("summary").at("step_s").get<double>());
    }
  } catch (const nlohmann::json::exception&) {
    // Told below.
  }
  throw Error(ErrorCode::kParse,
              {"the baseline is not the result of a 1-rank run",
               baseline,
               document.is_object() && document.contains("ranks")
                   ? fmt::format("ranks: {}", document["ranks"].dump())
                   : "another document",
               "a --json result with \"ranks\": 1",
               "Make one: stretto train -n 1 --json -o baseline.json"});
}

std::string verdict(const Run& run, const Provenance& provenance) {
  return fmt::format("exposed communication: {} of a {} step ({} {}{})\n",
                     format(run.summary.exposed),
                     format(run.summary.step),
                     provenance.ranks,
                     provenance.ranks == 1 ? "rank" : "ranks",
                     provenance.emulated.empty() ? ", " + provenance.backend
                                                 : ", network emulated: " + provenance.emulated);
}

std::string learned(const Run& run) {
  if (!run.accuracy || !run.loss || !run.weights_hash) {
    return "";
  }
  return fmt::format("test accuracy {:.4f}, last loss {:.4f}{}, weights {}\n",
                     *run.accuracy,
                     *run.loss,
                     std::isfinite(*run.loss) ? "" : " (diverged: use a smaller --lr)",
                     hash_text(*run.weights_hash));
}

std::string file_list(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) {
    text += fmt::format("wrote {}\n", file);
  }
  return text;
}

namespace {

std::vector<std::string> codec_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const CodecSpec& codec : codecs_of(plan)) {
    names.push_back(to_string(codec));
  }
  return names;
}

/// How many steps the counters are of.
double steps_of(const Plan& plan, const Session::Compression& done) {
  const auto buckets = std::count_if(plan.buckets.begin(),
                                     plan.buckets.end(),
                                     [](const Bucket& bucket) { return bucket.codec.lossy(); });
  return std::max(1.0,
                  static_cast<double>(done.counters.exchanges) /
                      static_cast<double>(std::max<std::ptrdiff_t>(buckets, 1)));
}

Bytes per_step(std::int64_t bytes, double steps) {
  return Bytes(std::llround(static_cast<double>(bytes) / steps));
}

}  // namespace

bool compresses(const Plan& plan) {
  return !codecs_of(plan).empty();
}

std::string compression_text(const Plan& plan, const Session::Compression& done) {
  const std::vector<std::string> codecs = codec_names(plan);
  const CodecCounters& counters = done.counters;
  if (codecs.empty()) {
    return "";
  }
  if (counters.exchanges == 0) {
    return "compression: no step with a codec (one rank, or --compress-start is later)\n";
  }
  const double steps = steps_of(plan, done);
  std::string text = fmt::format(
      "compression {}: {} of gradients per step, {} sent by rank 0; encode {}, decode {} of "
      "processor time\n",
      fmt::join(codecs, ", "),
      format(per_step(counters.dense_bytes, steps)),
      format(per_step(counters.sent_bytes, steps)),
      format(Seconds(counters.encode) / steps),
      format(Seconds(counters.decode) / steps));
  text += fmt::format("not sent yet (residual): norm {:.4g}\n", done.residual_norm);
  if (counters.not_finite > 0) {
    text += fmt::format("gradients that were not finite in {} of {} exchanges\n",
                        counters.not_finite,
                        counters.exchanges);
  }
  return text;
}

void add_compression(ordered_json& document, const Plan& plan, const Session::Compression& done) {
  const std::vector<std::string> codecs = codec_names(plan);
  if (codecs.empty()) {
    return;
  }
  const double steps = steps_of(plan, done);
  const CodecCounters& counters = done.counters;
  document["compression"] = {{"codecs", codecs},
                             {"gradient_bytes", per_step(counters.dense_bytes, steps).count()},
                             {"sent_bytes", per_step(counters.sent_bytes, steps).count()},
                             {"encode_s", (Seconds(counters.encode) / steps).count()},
                             {"decode_s", (Seconds(counters.decode) / steps).count()},
                             {"exchanges", counters.exchanges},
                             {"not_finite", counters.not_finite},
                             {"residual_norm", done.residual_norm}};
}

std::string other_schedule(const std::vector<std::string>& arguments, const Run& run) {
  return fmt::format("next: {} --schedule {}   (for comparison)\n",
                     command_line(arguments),
                     run.schedule == "overlap" ? "serial" : "overlap");
}

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

OnProgress progress_line(const Communicator& communicator, std::string name, bool quiet) {
  if (communicator.rank() != 0 || quiet || !show_progress()) {
    return {};
  }
  using Clock = std::chrono::steady_clock;
  // Shared, because std::function copies what it holds.
  const auto last = std::make_shared<Clock::time_point>();
  return [name = std::move(name), last](const StepProgress& progress) {
    const bool done = progress.step == progress.steps;
    const auto now = Clock::now();
    if (!done && now - *last < std::chrono::milliseconds(100)) {
      return;
    }
    *last = now;
    const std::string line =
        done ? "\r\033[K"
             : fmt::format("\r\033[K{}: step {}/{}", name, progress.step, progress.steps);
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  };
}

}  // namespace stretto::cli
