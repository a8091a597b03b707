// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/session.hpp"
#include "stretto/workload/train.hpp"

namespace stretto::cli {

/// One run, as train, replay and demo report it.
struct Run {
  std::string name;
  std::string schedule;
  Summary summary;
  std::optional<double> loss;
  std::optional<double> accuracy;
  std::optional<std::uint64_t> weights_hash;
  std::uint64_t plan_hash = 0;
};

/// Where and how the runs were made.
struct Provenance {
  std::string command;  ///< `train`, `replay` or `demo`: the noun of the schema too.
  std::vector<std::string> arguments;
  int ranks = 0;
  std::string backend;
  std::string emulated;  ///< The machine's name; empty for none.
  std::uint64_t seed = 0;
  std::string assumptions;  ///< Of the profile, for people; empty for none.
};

[[nodiscard]] nlohmann::ordered_json result_document(const Provenance& provenance,
                                                     const std::vector<Run>& runs,
                                                     const std::vector<std::string>& files);

/// Which files a run is to leave, and what it is compared with.
struct ArtifactOptions {
  std::string timeline;
  std::string save_plan;
  std::string tensorboard;  ///< A directory.
  std::string baseline;

  void add_to(CLI::App& app);
  /// @return the paths written. `.trace.json` gives a Chrome trace, any other name Stretto's own.
  [[nodiscard]] std::vector<std::string> write(const Timeline& recorded, const Plan& plan) const;
  /// Step time of the 1-rank result named by --baseline, which must be of `model`.
  /// @throws Error kParse if it is something else, kMismatch if it is of another model.
  [[nodiscard]] std::optional<Seconds> one_rank_step(std::string_view model) const;
};

/// Adds the recording's steps to a TensorBoard log directory, which is made if need be. @return the
/// file's path.
[[nodiscard]] std::string write_tensorboard(const std::string& directory, const Timeline& recorded);

/// `exposed communication: 3.21 ms of a 54.2 ms step (2 ranks, emulated ...)`
[[nodiscard]] std::string verdict(const Run& run, const Provenance& provenance);
/// `accuracy 0.8812, loss 0.3312, weights 0123...`; empty when nothing was learned.
[[nodiscard]] std::string learned(const Run& run);
[[nodiscard]] std::string file_list(const std::vector<std::string>& files);
/// Whether a bucket of the plan has a codec.
[[nodiscard]] bool compresses(const Plan& plan);
/// What the plan's codecs did on this rank, as a few lines of text or as key `compression`: bytes
/// and times per step. Nothing without codecs.
[[nodiscard]] std::string compression_text(const Plan& plan, const Session::Compression& done);
void add_compression(nlohmann::ordered_json& document,
                     const Plan& plan,
                     const Session::Compression& done);
/// `next: ` and the command that runs the same with the other schedule: of flags given twice the
/// last one holds.
[[nodiscard]] std::string other_schedule(const std::vector<std::string>& arguments, const Run& run);
/// `16 hexadecimal digits`
[[nodiscard]] std::string hash_text(std::uint64_t hash);

/// A line on stderr that says how far `name` is; does nothing when nobody sees it.
[[nodiscard]] OnProgress progress_line(const Communicator& communicator,
                                       std::string name,
                                       bool quiet);

}  // namespace stretto::cli
