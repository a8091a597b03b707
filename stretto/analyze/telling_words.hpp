// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

/// By which words in the name of a kernel diagnoses judge it. A recording whose names are replaced
/// keeps them (report/redact.hpp): they say nothing of whose program it is.
namespace stretto::detail {

/// Somebody's own communication could be called that.
inline constexpr std::array<std::string_view, 9> kExchangeWords = {"exchange",
                                                                   "allreduce",
                                                                   "all_reduce",
                                                                   "allgather",
                                                                   "all_gather",
                                                                   "reduce_scatter",
                                                                   "reducescatter",
                                                                   "alltoall",
                                                                   "all_to_all"};

/// In names of PyTorch's, cuDNN's and Triton's kernels that do little but read and write.
inline constexpr std::array<std::string_view, 14> kMovingWords = {"elementwise",
                                                                  "reduce_kernel",
                                                                  "layer_norm",
                                                                  "layernorm",
                                                                  "rms_norm",
                                                                  "batch_norm",
                                                                  "bn_fw",
                                                                  "bn_bw",
                                                                  "softmax",
                                                                  "dropout",
                                                                  "multi_tensor_apply",
                                                                  "embedding",
                                                                  "triton_poi",
                                                                  "triton_red"};

/// The first of `words` that stands in the name, in any case of letters; empty if none does.
[[nodiscard]] inline std::string_view telling_word(std::string_view name,
                                                   std::span<const std::string_view> words) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  const auto found = std::find_if(words.begin(), words.end(), [&](std::string_view word) {
    return lower.find(word) != std::string::npos;
  });
  return found == words.end() ? std::string_view() : *found;
}

}  // namespace stretto::detail
