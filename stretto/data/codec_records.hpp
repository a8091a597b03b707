// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stretto/data/codec_spec.hpp"

namespace stretto {

/// What a codec did within a bucket's exchange is in a Timeline as RecordKind::kAnnotation on
/// Lane::kCommunication, with the exchange's bucket, and named `encode CODEC` or `decode CODEC`.
inline constexpr std::string_view kEncodeRecord = "encode";
inline constexpr std::string_view kDecodeRecord = "decode";

[[nodiscard]] inline std::string codec_record_name(const CodecSpec& codec, std::string_view stage) {
  return std::string(stage) + " " + to_string(codec);
}
/// The codec of a record with that name; nothing if it is of another stage.
[[nodiscard]] inline std::optional<std::string_view> codec_of_record(std::string_view name,
                                                                     std::string_view stage) {
  if (name.size() <= stage.size() + 1 || !name.starts_with(stage) || name[stage.size()] != ' ') {
    return std::nullopt;
  }
  return name.substr(stage.size() + 1);
}

}  // namespace stretto
