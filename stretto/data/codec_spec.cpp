// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/codec_spec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 10> kNames = {
    "none", "fp16", "bf16", "int8", "int4", "onebit", "topk", "threshold", "randomk", "powersgd"};
constexpr std::string_view kNoFeedback = "nofeedback";
constexpr std::string_view kStochastic = "stochastic";
constexpr std::string_view kMomentum = "momentum=";
constexpr std::string_view kWarmup = "warmup=";

[[noreturn]] void refuse(std::string_view text,
                         std::string message,
                         std::string_view found,
                         std::string expected,
                         std::string help = {}) {
  throw Error(
      ErrorCode::kInvalidArgument,
      {std::move(message), quote(text), quote(found), std::move(expected), std::move(help)});
}

bool chooses(CodecKind kind) noexcept {
  return kind == CodecKind::kTopK || kind == CodecKind::kRandomK;
}
bool rounds(CodecKind kind) noexcept {
  return kind == CodecKind::kInt8 || kind == CodecKind::kInt4;
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t colon = text.find(':');
    parts.push_back(text.substr(0, colon));
    if (colon == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(colon + 1);
  }
}

template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// `0.01`, `1%` or `1000`.
void read_share(CodecSpec& codec, std::string_view text, std::string_view share) {
  const bool percent = share.ends_with('%');
  if (!percent && share.find_first_not_of("0123456789") == std::string_view::npos) {
    const auto count = number<std::int64_t>(share);
    if (!count || *count < 1) {
      refuse(text, "no such number of elements", share, "1 or more, or a part such as 0.01");
    }
    codec.count = *count;
    return;
  }
  const auto value = number<double>(percent ? share.substr(0, share.size() - 1) : share);
  const double fraction = value ? (percent ? *value / 100.0 : *value) : 0.0;
  if (!(fraction > 0.0 && fraction <= 1.0)) {
    refuse(text,
           "no such part of a bucket",
           share,
           "more than 0 and at most 1.0 (all), or a whole number of elements",
           "Examples: topk:0.01, topk:1%, topk:1000");
  }
  codec.fraction = fraction;
}

// Of a matrix of some thousand rows and columns more than this is no compression.
constexpr int kMostRank = 256;

void read_rank(CodecSpec& codec, std::string_view text, std::string_view rank) {
  const auto value = number<int>(rank);
  if (!value || *value < 1 || *value > kMostRank) {
    refuse(text,
           "no such rank",
           rank,
           "from 1 to " + std::to_string(kMostRank),
           "Example: powersgd:4");
  }
  codec.rank = *value;
}

// `0.001` or `3rms`.
void read_threshold(CodecSpec& codec, std::string_view text, std::string_view threshold) {
  constexpr std::string_view kRms = "rms";
  codec.relative = threshold.ends_with(kRms);
  const auto value = number<double>(
      codec.relative ? threshold.substr(0, threshold.size() - kRms.size()) : threshold);
  const auto most = static_cast<double>(std::numeric_limits<float>::max());
  if (!value || !(*value > 0.0 && *value <= most)) {
    refuse(text,
           "no such threshold",
           threshold,
           "a number above 0, in the gradient's units or in root mean squares",
           "Examples: threshold:0.001, threshold:3rms");
  }
  codec.threshold = *value;
}

bool has_momentum(CodecKind kind) noexcept {
  return chooses(kind) || kind == CodecKind::kThreshold;
}

void read_momentum(CodecSpec& codec, std::string_view text, std::string_view momentum) {
  const auto value = number<double>(momentum);
  // As a float, which is what is computed with.
  if (!value || !(*value > 0.0 && static_cast<float>(*value) < 1.0F)) {
    refuse(text, "no such momentum", momentum, "above 0 and below 1", "Example: momentum=0.9");
  }
  codec.momentum = *value;
}

void read_warmup(CodecSpec& codec, std::string_view text, std::string_view steps) {
  const auto value = number<std::int64_t>(steps);
  if (!value || *value < 1 || *value > std::numeric_limits<std::uint32_t>::max()) {
    refuse(text, "no such warm-up", steps, "a number of steps, 1 or more", "Example: warmup=1000");
  }
  codec.warmup = *value;
}

/// The settings that may follow a codec's name and number, for people.
std::string settings_of(CodecKind kind) {
  if (kind == CodecKind::kNone) {
    return "no setting";
  }
  if (rounds(kind)) {
    return "stochastic or nofeedback, one of them";
  }
  if (!has_momentum(kind)) {
    return "nofeedback, once";
  }
  return chooses(kind) ? "nofeedback or momentum=0.9, one of them; warmup=1000, of a part"
                       : "nofeedback or momentum=0.9, one of them";
}

std::size_t part_of_elements(double fraction, std::size_t elements) noexcept {
  const double wanted = std::ceil(fraction * static_cast<double>(elements));
  return std::clamp<std::size_t>(static_cast<std::size_t>(wanted), 1, elements);
}

std::string plain(double value) {
  std::array<char, 32> text{};
  const auto [end, failed] = std::to_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc() ? std::string(text.data(), end) : std::string("?");
}

}  // namespace

std::size_t CodecSpec::chosen_of(std::size_t elements) const noexcept {
  if (elements == 0) {
    return 0;
  }
  if (count > 0) {
    return std::min(static_cast<std::size_t>(count), elements);
  }
  return part_of_elements(fraction, elements);
}

std::size_t CodecSpec::chosen_of(std::size_t elements, std::int64_t step) const noexcept {
  return elements == 0 || count > 0 ? chosen_of(elements)
                                    : part_of_elements(fraction_at(step), elements);
}

double CodecSpec::fraction_at(std::int64_t step) const noexcept {
  if (step >= warmup || fraction >= kWarmupFraction) {
    return fraction;
  }
  const double done = static_cast<double>(step) / static_cast<double>(warmup);
  return kWarmupFraction * std::pow(fraction / kWarmupFraction, done);
}

CodecExchange exchange_of(const CodecSpec& codec) noexcept {
  switch (codec.kind) {
    case CodecKind::kTopK:
    case CodecKind::kThreshold:
      return CodecExchange::kGather;
    case CodecKind::kRandomK:
      return CodecExchange::kAdditive;
    case CodecKind::kPowerSgd:
      return CodecExchange::kLowRank;
    default:
      return CodecExchange::kTwoShot;
  }
}

std::string to_string(const CodecSpec& codec) {
  const auto index = static_cast<std::size_t>(codec.kind);
  std::string text(index < kNames.size() ? kNames.at(index) : "unknown");
  if (chooses(codec.kind)) {
    text += ":";
    if (codec.count > 0) {
      text += std::to_string(codec.count);
    } else {
      const std::string part = plain(codec.fraction);
      text += part == "1" ? "1.0" : part;
    }
  } else if (codec.kind == CodecKind::kPowerSgd) {
    text += ":" + std::to_string(codec.rank);
  } else if (codec.kind == CodecKind::kThreshold) {
    text += ":" + plain(codec.threshold) + (codec.relative ? "rms" : "");
  }
  if (codec.momentum > 0.0) {
    text += ":" + std::string(kMomentum) + plain(codec.momentum);
  }
  if (codec.warmup > 0) {
    text += ":" + std::string(kWarmup) + std::to_string(codec.warmup);
  }
  if (codec.stochastic) {
    text += ":" + std::string(kStochastic);
  } else if (codec.lossy() && !codec.error_feedback) {
    text += ":" + std::string(kNoFeedback);
  }
  return text;
}

CodecSpec parse_codec(std::string_view text) {
  std::vector<std::string_view> parts = parts_of(text);
  const auto* const name = std::find(kNames.begin(), kNames.end(), parts.front());
  if (name == kNames.end()) {
    refuse(text, "no such codec", parts.front(), join(kNames), suggest(parts.front(), kNames));
  }
  CodecSpec codec;
  codec.kind = static_cast<CodecKind>(name - kNames.begin());
  std::size_t next = 1;
  const bool ranked = codec.kind == CodecKind::kPowerSgd;
  if (chooses(codec.kind) || codec.kind == CodecKind::kThreshold || ranked) {
    if (parts.size() < 2) {
      refuse(text,
             "this codec needs a number",
             text,
             std::string(*name) + (ranked                                ? ":4"
                                   : codec.kind == CodecKind::kThreshold ? ":0.001"
                                                                         : ":0.01"));
    }
    if (ranked) {
      read_rank(codec, text, parts[1]);
    } else if (codec.kind == CodecKind::kThreshold) {
      read_threshold(codec, text, parts[1]);
    } else {
      read_share(codec, text, parts[1]);
    }
    next = 2;
  }
  for (; next < parts.size(); ++next) {
    const std::string_view part = parts[next];
    if (part.starts_with(kMomentum) && has_momentum(codec.kind) && codec.error_feedback &&
        codec.momentum == 0.0) {
      read_momentum(codec, text, part.substr(kMomentum.size()));
    } else if (part.starts_with(kWarmup) && codec.fraction > 0.0 && codec.warmup == 0) {
      read_warmup(codec, text, part.substr(kWarmup.size()));
    } else if (part == kNoFeedback && codec.lossy() && codec.error_feedback &&
               codec.momentum == 0.0) {
      codec.error_feedback = false;
    } else if (part == kStochastic && rounds(codec.kind) && codec.error_feedback) {
      codec.stochastic = true;
      codec.error_feedback = false;
    } else {
      refuse(text, "this codec has no such setting", part, settings_of(codec.kind));
    }
  }
  return codec;
}

}  // namespace stretto
