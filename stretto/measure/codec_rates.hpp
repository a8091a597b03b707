// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "stretto/base/units.hpp"
#include "stretto/data/codec_spec.hpp"
#include "stretto/data/machine.hpp"

namespace stretto {

struct CodecRateOptions {
  /// Of the bucket: 8 MiB, which do not stay in the second cache, as gradients do not.
  std::size_t elements = std::size_t{2} << 20;
  int least_runs = 3;
  Seconds budget{0.03};  ///< Of encoding, and of decoding; the runs above take as long as they do.
};

/// What `codec` does on this core, now: the best of the runs, of normal gradients with root mean
/// square 1, its residual filled. `ratio` and `error` depend on nothing but the codec and the
/// number of elements; those of a threshold, on what the gradients are like. Of powersgd they are
/// one square matrix: random numbers have no low rank, and its error is the worst there is.
/// @throws Error kInvalidArgument: no codec, or no elements.
[[nodiscard]] CodecRate measure_codec(const CodecSpec& codec, const CodecRateOptions& options = {});

/// One of each kind, with the settings of the examples in docs/compression.md.
[[nodiscard]] std::vector<CodecSpec> usual_codecs();

}  // namespace stretto
