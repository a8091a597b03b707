// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace stretto {

/// The arithmetic of one fully connected layer, y = x w^T + b, on fp32 matrices in rows:
/// x [batch, in], w [out, in], b [out], y [batch, out].
///
/// A table of functions, because the same source is compiled for several processors. Equal
/// arguments give equal bits, whatever the alignment. None allocates; each uses up to 512 KiB
/// of stack.
struct DenseKernels {
  std::string_view name;  ///< `x86-64-v3`, or `baseline` for any processor.

  void (*forward)(const float* x,
                  const float* w,
                  const float* b,
                  float* y,
                  std::size_t batch,
                  std::size_t in,
                  std::size_t out,
                  bool relu);
  /// dw = dy^T x
  void (*weight_gradient)(const float* x,
                          const float* dy,
                          float* dw,
                          std::size_t batch,
                          std::size_t in,
                          std::size_t out);
  /// db = sum of dy over the batch
  void (*bias_gradient)(const float* dy, float* db, std::size_t batch, std::size_t out);
  /// dx = dy w where x > 0, else 0: x is the output of the ReLU before this layer.
  void (*input_gradient)(const float* dy,
                         const float* w,
                         const float* x,
                         float* dx,
                         std::size_t batch,
                         std::size_t in,
                         std::size_t out);
};

/// Those this processor can run, best first. Never empty.
[[nodiscard]] std::vector<const DenseKernels*> available_dense_kernels();

}  // namespace stretto
