// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stretto/base/instruction_set.hpp"

/// Matrices as the product of two thin ones (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727):
/// C (rows x cols) becomes P Q', with P = C Q orthonormalised and Q = C' P: one step of subspace
/// iteration from the last step's Q.
///
/// Stored: C row by row; P (rows x rank) row by row; Q as `rank` columns of `cols` elements, one
/// after the other. The bits depend on the values alone, not on the instruction set.
namespace stretto {

/// rows x cols elements of a bucket, from `begin` on, row by row.
struct MatrixPart {
  std::size_t begin = 0;
  std::size_t rows = 0;
  std::size_t cols = 0;
  friend bool operator==(const MatrixPart&, const MatrixPart&) = default;
};

/// Makes P's columns orthonormal. A column that lies in the span of those before it, but for 1e-6
/// of its length, becomes zero: there is nothing to divide by, and P P' stays a projection. P is
/// finite. Gram-Schmidt, modified and done twice, in fp64; not the Cholesky factor of P'P, which
/// squares the condition number and has none for a zero gradient.
void orthonormalise(std::span<float> p, std::size_t rank, std::vector<double>& scratch);

/// Makes each of Q's columns 1 long, for the next step: products of large and of small gradients
/// stay in range. A zero column would stay zero for ever: it is drawn from `key`.
void normalise_columns(std::span<float> q, std::size_t rank, std::uint64_t key);

namespace detail {

/// One compilation of the kernels. Rows may come piece by piece; `p` is that of the rows given.
struct LowRankKernels {
  /// C += residual, which may be null; P = C Q.
  void (*project)(float* c,
                  const float* residual,
                  std::size_t rows,
                  std::size_t cols,
                  const float* q,
                  std::size_t rank,
                  float* p) noexcept;
  /// Q += C' P.
  void (*project_back)(const float* c,
                       std::size_t rows,
                       std::size_t cols,
                       const float* p,
                       std::size_t rank,
                       float* q) noexcept;
  /// left = C - P own', unless that is null; then C = P all'.
  void (*reconstruct)(float* c,
                      std::size_t rows,
                      std::size_t cols,
                      const float* p,
                      std::size_t rank,
                      const float* own,
                      const float* all,
                      float* left) noexcept;
};

/// Those compiled for a set this processor has; narrower ones for tests.
[[nodiscard]] const LowRankKernels& low_rank_kernels(InstructionSet set) noexcept;
[[nodiscard]] const LowRankKernels& low_rank_kernels() noexcept;

extern const LowRankKernels kLowRankBaseline;
extern const LowRankKernels kLowRankV3;
extern const LowRankKernels kLowRankV4;

}  // namespace detail
}  // namespace stretto
