// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/collective.hpp"

namespace stretto {

/// One level of the machine, seen from below: `group_size` members (ranks, or groups of the level
/// inside) exchange messages over links of this kind.
struct Level {
  std::string name;
  int group_size = 1;
  Seconds latency{};           ///< Per message, however small.
  BytesPerSecond bandwidth{};  ///< Per direction: of each rank on the innermost level; of each
                               ///< group, shared by its ranks, on outer ones.
  /// Its switches add (NVLink SHARP, InfiniBand SHARP), at this fraction of the bandwidth, up to 1;
  /// 0: they do not.
  double in_switch_efficiency = 0.0;
};

/// One measured point of a curve.
struct CurvePoint {
  Bytes size{};  ///< Of the whole tensor, as nccl-tests count it.
  Seconds time{};
};

/// What one collective was measured to take on the first `ranks` ranks of the machine.
struct CollectiveCurve {
  Collective collective = Collective::kAllReduce;
  Algorithm algorithm = Algorithm::kAuto;  ///< kAuto: whatever the library chose.
  int ranks = 0;
  std::vector<CurvePoint> points;  ///< Sizes increase; times need not (libraries switch protocol).
};

/// What one codec was measured to do on one core. Rates are of the gradients, 4 bytes an element.
struct CodecRate {
  CodecSpec codec;
  BytesPerSecond encode{};  ///< Error feedback included, if the codec has it.
  BytesPerSecond decode{};  ///< Of one rank's encoding, added to a sum.
  double ratio = 1.0;       ///< Bytes of gradients for one byte encoded.
  double error = 0.0;       ///< |c - D(Q(c))| / |c| once, of normal gradients.
};

/// How a machine communicates. Ranks are numbered innermost first: with levels of 4 and 2, ranks
/// 0-3 share a node.
struct Machine {
  std::string name;           ///< Preset, file or the spec it was read from.
  std::vector<Level> levels;  ///< Innermost first. Never empty.
  Basis basis = Basis::kAssumed;
  std::string source;                   ///< For people: where the figures come from.
  std::vector<CollectiveCurve> curves;  ///< Count for more than what latency and bandwidth say.
  /// How much longer compute takes while communication runs beside it: 1.1 is a tenth longer.
  double compute_slowdown = 1.0;
  BytesPerSecond reduction{};     ///< At which one rank adds; 0: adding takes no time of its own.
  std::vector<CodecRate> codecs;  ///< Those that were measured, each once.

  /// Product of the group sizes.
  [[nodiscard]] int ranks() const noexcept;
  /// Index of the level a message between two ranks crosses: the outermost on which they differ.
  /// -1 when a == b.
  [[nodiscard]] int level_between(int rank_a, int rank_b) const noexcept;
  /// groups()[l][r]: the number of rank r's group on level l, without the outermost level, which is
  /// one group of all.
  [[nodiscard]] std::vector<std::vector<int>> groups() const;
};

/// The text form used everywhere: `4@5Gbit/s,50us`, or several levels, counts outermost first and
/// levels innermost first: `2x4@intra=20GB/s,2us@inter=1Gbit/s,50us` is 2 nodes of 4.
/// @throws Error kInvalidArgument saying which part is wrong and what would be right.
[[nodiscard]] Machine machine_from_spec(std::string_view spec);

/// What machine_from_preset() knows.
[[nodiscard]] std::vector<std::string> preset_names();
/// `dgx-h100x4`: 4 nodes; `dgx-h100`: one. `10gbex16`: a flat network of 16 ranks; `10gbe`: of 8.
/// Published specifications; Machine::source says where each figure is from. Nothing is measured on
/// the machine in question, so the basis is kAssumed.
/// @throws Error kInvalidArgument with the nearest name and the list.
[[nodiscard]] Machine machine_from_preset(std::string_view name);
/// A spec if there is an `@` in it (or nothing but numbers), else a preset.
/// @throws Error kInvalidArgument as these.
[[nodiscard]] Machine machine_from_text(std::string_view text);

/// Schema `stretto.machine/1`.
[[nodiscard]] std::string to_json(const Machine& machine);
/// @throws Error kParse; unknown keys are errors, since people write this file.
[[nodiscard]] Machine machine_from_json(std::string_view text, std::string_view where);

}  // namespace stretto
