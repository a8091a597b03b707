// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/plan/codec_choice.hpp"
#include "stretto/run/codec_watch.hpp"

namespace stretto::cli {

/// Codecs named with commas between, or `all` for the usual ones.
/// @throws Error kInvalidArgument, which names the flag.
[[nodiscard]] std::vector<CodecSpec> codecs_from_flag(std::string_view flag,
                                                      const std::string& text);

/// The codecs of a plan's buckets, each once.
[[nodiscard]] std::vector<CodecSpec> codecs_of(const Plan& plan);

/// Rates of `codecs`: those that `machine` has, and the others as measured here and now.
struct PricedCodecs {
  std::vector<CodecRate> rates;
  std::string basis;  ///< For people: "codecs measured on this computer now"; empty without codecs.
};
[[nodiscard]] PricedCodecs price_codecs(const Machine* machine,
                                        const std::vector<CodecSpec>& codecs);

/// Rates, ratio and error, one row each.
[[nodiscard]] std::string codec_table(const std::vector<CodecRate>& rates);

/// --compress, and what goes with it.
struct CompressFlags {
  std::string codec;        ///< Empty: as a plan says, else none.
  std::uint32_t start = 0;  ///< Of runs only.
  std::vector<std::string> exact;
  std::string least_bytes = "64K";
  double least_ratio = CodecPolicy{}.least_ratio;
  double least_gain_percent = 100.0 * CodecPolicy{}.least_gain;

  void add_to(CLI::App& app, const std::string& help);
  /// `auto` or `auto:CODEC,...`: bucket by bucket, where it pays.
  [[nodiscard]] bool automatic() const noexcept;
  /// The one codec for all buckets; none with automatic() too.
  /// @throws Error kInvalidArgument, which names the flag; as refuse_idle().
  [[nodiscard]] CodecSpec uniform() const;
  /// @throws Error kInvalidArgument when a flag is given that only automatic() looks at.
  void refuse_idle() const;
  /// Of the codecs named, if they have one.
  [[nodiscard]] std::optional<double> momentum() const;
  /// For automatic(). Without names: fp16 and int8.
  /// @throws Error kInvalidArgument, which names the flag.
  [[nodiscard]] CodecPolicy policy() const;
  /// Gives the one codec to all buckets of f32 that hold no tensor named in --compress-except.
  /// @throws Error kInvalidArgument: no such codec, or no such bucket.
  void set(Plan& plan) const;
};

/// What codecs would be chosen, and what the first steps said to that.
struct AutoCodecs {
  CodecChoice choice;
  std::optional<Seconds> exact_step;  ///< Measured, if both were tried.
  std::optional<Seconds> step;
  bool reverted = false;              ///< The choice was not quicker: without codecs then.
  std::vector<CodecSwitch> switches;  ///< While it ran.
};
/// Of rank 0's choice the plan to run, on every rank: the codecs stay only if a few steps with them
/// are shorter, by half of what was asked for, than a few without. `step_of` runs them; it is
/// collective, and its result counts on rank 0. Where nothing was chosen nothing is tried.
[[nodiscard]] Plan try_codecs(Communicator& communicator,
                              AutoCodecs& codecs,
                              double least_gain,
                              const std::function<Seconds(const Plan&)>& step_of);
/// How to watch `plan`, which try_codecs() gave, while it runs; the same on all ranks, but for what
/// rank 0 has measured. Nothing if no codec is left.
[[nodiscard]] std::optional<CodecWatchOptions> watch_agreed(const Plan& plan,
                                                            const AutoCodecs& codecs,
                                                            double least_gain);
/// Per bucket what and why, and what was measured.
[[nodiscard]] std::string auto_codecs_text(const AutoCodecs& codecs);
[[nodiscard]] nlohmann::ordered_json auto_codecs_json(const AutoCodecs& codecs);

/// Puts rates into the machine, over those it has of the same codecs.
void set_codecs(Machine& machine, const std::vector<CodecRate>& rates);

}  // namespace stretto::cli
