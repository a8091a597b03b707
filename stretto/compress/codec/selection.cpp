// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/codec/selection.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

namespace stretto {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fffffffU;
constexpr std::size_t kFirstTooLarge = 0x7f000000U >> detail::kMagnitudeShift;

std::uint32_t magnitude_bits(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) & kMagnitude;
}

// The larger the magnitude the larger, and of equal ones the lower the index.
std::uint64_t rank_of(float value, std::uint32_t index) noexcept {
  return static_cast<std::uint64_t>(magnitude_bits(value)) << 32 | (0xffffffffU - index);
}

std::uint64_t mix(std::uint64_t x) noexcept {  // the finalizer of SplitMix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

// c, where the residual will be, and how its magnitudes are spread.
bool Selector::sum_and_count(const CodecInput& input) {
  counts_.resize(detail::kMagnitudeBins);
  if (input.residual == nullptr) {
    own_sums_.resize(input.count);
  }
  sums_ = input.residual == nullptr ? own_sums_.data() : input.next_residual;
  detail::codec_kernels().add_and_count(input, sums_, counts_.data());
  const bool finite = std::all_of(counts_.begin() + kFirstTooLarge,
                                  counts_.end(),
                                  [](std::uint32_t count) { return count == 0; });
  if (!finite && input.residual != nullptr && input.count != 0) {
    std::memcpy(input.next_residual, input.residual, input.count * sizeof(float));
  }
  return finite;
}

// All magnitudes from `least_bits` on, out of the residual.
void Selector::take(const CodecInput& input, std::uint32_t least_bits, SparseValues& chosen) {
  // As many as the bins say, the one that `least_bits` lies in as a whole.
  std::size_t room = 0;
  for (std::size_t bin = least_bits >> detail::kMagnitudeShift; bin < counts_.size(); ++bin) {
    room += counts_[bin];
  }
  chosen.indices.resize(room);
  const std::size_t found = detail::codec_kernels().indices_from(
      sums_, input.count, least_bits, chosen.indices.data(), room);
  chosen.indices.resize(found);
}

namespace {

void move_out(std::span<float> sums, bool keeps_residual, SparseValues& chosen) {
  chosen.values.resize(chosen.indices.size());
  for (std::size_t i = 0; i < chosen.indices.size(); ++i) {
    float& sum = sums[chosen.indices[i]];
    chosen.values[i] = sum;
    if (keeps_residual) {
      sum = 0.0F;
    }
  }
}

}  // namespace

bool Selector::top_k(const CodecInput& input, std::size_t k, SparseValues& chosen) {
  chosen.indices.clear();
  chosen.values.clear();
  if (!sum_and_count(input)) {
    return false;
  }
  k = std::min(k, input.count);
  if (k == 0) {
    return true;
  }
  // The bin in which the k-th largest lies, and how many are in those above it.
  std::size_t bin = detail::kMagnitudeBins - 1;
  std::size_t above = 0;
  while (above + counts_[bin] < k) {
    above += counts_[bin--];
  }
  take(input, static_cast<std::uint32_t>(bin) << detail::kMagnitudeShift, chosen);
  if (chosen.indices.size() > k) {
    const std::uint32_t next_bin = static_cast<std::uint32_t>(bin + 1) << detail::kMagnitudeShift;
    keys_.clear();
    for (const std::uint32_t index : chosen.indices) {
      if (magnitude_bits(sums_[index]) < next_bin) {
        keys_.push_back(rank_of(sums_[index], index));
      }
    }
    const auto last = keys_.begin() + static_cast<std::ptrdiff_t>(k - above - 1);
    std::nth_element(keys_.begin(), last, keys_.end(), std::greater<>());
    const std::uint64_t least = *last;
    std::erase_if(chosen.indices,
                  [&](std::uint32_t index) { return rank_of(sums_[index], index) < least; });
  }
  move_out({sums_, input.count}, input.residual != nullptr, chosen);
  return true;
}

bool Selector::at_least(const CodecInput& input, float threshold, SparseValues& chosen) {
  chosen.indices.clear();
  chosen.values.clear();
  if (!sum_and_count(input)) {
    return false;
  }
  take(input, magnitude_bits(threshold), chosen);
  move_out({sums_, input.count}, input.residual != nullptr, chosen);
  return true;
}

bool Selector::at_least_rms(const CodecInput& input, double multiple, SparseValues& chosen) {
  chosen.indices.clear();
  chosen.values.clear();
  if (!sum_and_count(input)) {
    return false;
  }
  double squares = 0.0;
  for (std::size_t i = 0; i < input.count; ++i) {
    squares += static_cast<double>(sums_[i]) * static_cast<double>(sums_[i]);
  }
  const double rms = input.count == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(input.count));
  const auto threshold = static_cast<float>(multiple * rms);
  // Of zeros alone, and of less than fp32 can tell from it, nothing need be sent.
  take(input, std::max(magnitude_bits(threshold), 1U), chosen);
  move_out({sums_, input.count}, input.residual != nullptr, chosen);
  return true;
}

bool Selector::at(const CodecInput& input, SparseValues& chosen) {
  const bool finite = sum_and_count(input);
  move_out({sums_, input.count}, finite && input.residual != nullptr, chosen);
  return finite;
}

void draw_indices(std::size_t count,
                  std::size_t k,
                  std::uint64_t key,
                  std::vector<std::uint32_t>& indices) {
  k = std::min(k, count);
  indices.resize(k);
  for (std::size_t i = 0; i < k; ++i) {
    // i * count / k, without the overflow of the product.
    const auto edge = [&](std::size_t at) { return at * (count / k) + at * (count % k) / k; };
    const std::size_t begin = edge(i);
    const std::size_t length = edge(i + 1) - begin;
    indices[i] = static_cast<std::uint32_t>(begin + mix(key + i) % length);
  }
}

}  // namespace stretto
