// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "stretto/trace/trace.hpp"

/// What PyTorch writes beside an event, in its `args`. Private to trace/: not installed.
namespace stretto::detail {

/// A whole number that can be an id, else kNoId.
[[nodiscard]] std::uint32_t to_id(std::string_view text) noexcept;
/// A whole number from 0 on that can be multiplied by small ones, else -1.
[[nodiscard]] std::int64_t to_count(std::string_view text) noexcept;

/// What is read of an event's `args`.
struct Arguments {
  std::string_view device, stream, correlation, bytes, grid;
  std::string_view collective, dtype, group, members, peer;
  std::string_view input_dims, input_types;  // arrays, whole; only with record_shapes
  CollectiveCall call;
  std::string_view task_type;  // Ascend
};

/// Of `args` whole, with its braces; may be empty. 16 bytes beyond it must be readable.
[[nodiscard]] Arguments read_arguments(std::string_view args);
/// Whether what goes in is the payload of one rank, so that its shapes tell the size.
[[nodiscard]] bool is_sized_by_input(Collective collective) noexcept;
/// Gloo's and MPI's rows have no record_param_comms; what they have is the shapes of their tensors,
/// if the user asked for shapes. All tensors must be of one type. False if they do not tell.
[[nodiscard]] bool set_size_from_shapes(const Arguments& arguments, CollectiveCall& call);
/// FNV-1a of the text of the launch grid.
[[nodiscard]] std::uint32_t shape_of(std::string_view grid) noexcept;
/// The payload of one rank as the busbw of NCCL tests counts it: the larger of what goes in and
/// what comes out.
[[nodiscard]] std::int64_t payload_bytes(const CollectiveCall& call);

}  // namespace stretto::detail
