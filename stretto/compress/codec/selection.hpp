// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stretto/compress/codec/block_codec.hpp"

/// Codecs that send few elements, and these exactly.
namespace stretto {

/// Elements of a bucket and where they are; indices grow.
struct SparseValues {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

/// Chooses elements of c = gradient + residual by magnitude. What it does not choose is left in
/// next_residual, and zero where it does. Keeps its memory from call to call; one thread at a time.
/// Without error feedback it needs count floats of its own.
class Selector {
 public:
  static constexpr std::size_t kMostElements = 0xfffffffeU;  ///< Indices have 32 bits.

  /// Exactly the k = min(k, count) largest magnitudes; of equal ones the lowest indices.
  /// @return false where some |c| is 2^127 or more or not a number: nothing is chosen, and the
  ///         residual stays as it was. next_residual must not be residual itself.
  [[nodiscard]] bool top_k(const CodecInput& input, std::size_t k, SparseValues& chosen);
  /// All magnitudes of `threshold` or more: any number of elements, also none.
  [[nodiscard]] bool at_least(const CodecInput& input, float threshold, SparseValues& chosen);
  /// The same with `multiple` x the root mean square of c as the threshold, another one each time.
  [[nodiscard]] bool at_least_rms(const CodecInput& input, double multiple, SparseValues& chosen);
  /// Those at chosen.indices, which count has.
  [[nodiscard]] bool at(const CodecInput& input, SparseValues& chosen);

 private:
  bool sum_and_count(const CodecInput& input);
  void take(const CodecInput& input, std::uint32_t least_bits, SparseValues& chosen);

  std::vector<std::uint32_t> counts_;
  std::vector<std::uint64_t> keys_;
  std::vector<float> own_sums_;
  float* sums_ = nullptr;
};

/// k of count indices, drawn without replacement from `key` alone, so that all ranks draw the same;
/// in order. Index i is drawn from the i-th of k stretches: each element is as likely as any other
/// of its stretch, and stretches differ by one element at most.
void draw_indices(std::size_t count,
                  std::size_t k,
                  std::uint64_t key,
                  std::vector<std::uint32_t>& indices);

}  // namespace stretto
