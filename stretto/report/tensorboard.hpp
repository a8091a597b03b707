// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/data/timeline.hpp"

namespace stretto {

/// The steps of a recording as the content of a TensorBoard event file: of each step the mean over
/// ranks of `stretto/step_ms`, `compute_ms`, `communication_ms`, `exposed_ms`, and `hidden_ratio`
/// where it communicated, at the moment it began. Steps count that every rank recorded whole.
///
/// Records as TFRecord frames them (length, payload, each with a masked CRC-32C), payloads of the
/// protocol buffer `tensorflow.Event`, version 2, values as `simple_value`. TensorBoard reads files
/// whose name has `tfevents` in it.
/// @throws Error kInvalidArgument: no such step.
[[nodiscard]] std::string tensorboard_events(const Timeline& timeline);

/// `events.out.tfevents.SECONDS.HOST.PID.stretto`, which no other writer uses.
[[nodiscard]] std::string tensorboard_file_name();

}  // namespace stretto
