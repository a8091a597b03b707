// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of DenseKernels. Compiled once per processor level, by dense_kernels_*.cpp, each
// of which defines STRETTO_KERNELS, the namespace its code goes to, before it includes this.
//
// Two objects with code for different processors must not share one inline function: the linker
// keeps a single copy of each, of either object, and a baseline machine would die on an AVX
// instruction. So all of Eigen is renamed per object by the macro below (its headers only ever say
// `namespace Eigen`, and an #include <...> is not macro-expanded). An anonymous namespace around
// the #include does not work, since Eigen includes standard headers; hidden visibility does not
// stop the merging inside one library. What is left are inline functions of the standard library:
// the files are compiled with -O3 in every build type, which inlines them, and the test
// `dense_kernels_symbols` fails if the object of a higher level defines any symbol that is not its
// own.
#ifndef STRETTO_KERNELS
#error "include this from dense_kernels_<level>.cpp"
#endif

#define STRETTO_JOIN_(a, b) a##b
#define STRETTO_JOIN(a, b) STRETTO_JOIN_(a, b)
#define Eigen STRETTO_JOIN(eigen_, STRETTO_KERNELS)
// Packed tiles go to the stack, up to this size each (see kTile), and the heap is out of bounds:
// in builds with assertions an allocation by Eigen ends the program.
#define EIGEN_STACK_ALLOCATION_LIMIT (256 * 1024)
#define EIGEN_NO_MALLOC
#define EIGEN_DONT_PARALLELIZE

#include <cstddef>

#include <Eigen/Core>

#include "stretto/workload/dense_kernels.hpp"

namespace stretto::STRETTO_KERNELS {
namespace {

using Index = Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ConstMap = Eigen::Map<const Matrix>;
using Map = Eigen::Map<Matrix>;

ConstMap matrix(const float* data, std::size_t rows, std::size_t columns) {
  return {data, static_cast<Index>(rows), static_cast<Index>(columns)};
}
Map matrix(float* data, std::size_t rows, std::size_t columns) {
  return {data, static_cast<Index>(rows), static_cast<Index>(columns)};
}

/// Eigen packs a tile of each factor before it multiplies. Cut by hand so that a packed tile fits
/// EIGEN_STACK_ALLOCATION_LIMIT: left to itself Eigen packs up to the whole matrix, on the heap,
/// every time. Three tiles of this size also fit a 1 MiB second-level cache.
constexpr Index kTile = 256;
static_assert(kTile * kTile * sizeof(float) <= EIGEN_STACK_ALLOCATION_LIMIT);

struct Cut {
  Index parts;
  Index step;
};
Cut cut(Index length) {
  const Index parts = (length + kTile - 1) / kTile;
  // Equal parts, so that 784 is not 3 x 256 and a runt of 16.
  const Index step = parts == 0 ? 0 : ((length + parts - 1) / parts + 7) / 8 * 8;
  return {step == 0 ? 0 : (length + step - 1) / step, step};
}
Index extent(Index length, Cut c, Index part) {
  const Index rest = length - part * c.step;
  return rest < c.step ? rest : c.step;
}

/// result = a b
template <typename A, typename B>
void multiply(const A& a, const B& b, Map result) {
  result.setZero();
  const Cut rows = cut(a.rows());
  const Cut columns = cut(b.cols());
  const Cut depth = cut(a.cols());
  for (Index i = 0; i < rows.parts; ++i) {
    const Index height = extent(a.rows(), rows, i);
    for (Index j = 0; j < columns.parts; ++j) {
      const Index width = extent(b.cols(), columns, j);
      for (Index k = 0; k < depth.parts; ++k) {
        const Index deep = extent(a.cols(), depth, k);
        result.block(i * rows.step, j * columns.step, height, width).noalias() +=
            a.block(i * rows.step, k * depth.step, height, deep) *
            b.block(k * depth.step, j * columns.step, deep, width);
      }
    }
  }
}

void forward(const float* x,
             const float* w,
             const float* b,
             float* y,
             std::size_t batch,
             std::size_t in,
             std::size_t out,
             bool relu) {
  multiply(matrix(x, batch, in), matrix(w, out, in).transpose(), matrix(y, batch, out));
  for (std::size_t row = 0; row < batch; ++row) {
    float* to = y + row * out;
    for (std::size_t i = 0; i < out; ++i) {
      const float value = to[i] + b[i];
      to[i] = relu && value < 0.0F ? 0.0F : value;
    }
  }
}

void weight_gradient(const float* x,
                     const float* dy,
                     float* dw,
                     std::size_t batch,
                     std::size_t in,
                     std::size_t out) {
  multiply(matrix(dy, batch, out).transpose(), matrix(x, batch, in), matrix(dw, out, in));
}

void bias_gradient(const float* dy, float* db, std::size_t batch, std::size_t out) {
  // Not a column sum of Eigen's, whose order of additions depends on the alignment of dy.
  for (std::size_t i = 0; i < out; ++i) {
    db[i] = 0.0F;
  }
  for (std::size_t row = 0; row < batch; ++row) {
    for (std::size_t i = 0; i < out; ++i) {
      db[i] += dy[row * out + i];
    }
  }
}

void input_gradient(const float* dy,
                    const float* w,
                    const float* x,
                    float* dx,
                    std::size_t batch,
                    std::size_t in,
                    std::size_t out) {
  multiply(matrix(dy, batch, out), matrix(w, out, in), matrix(dx, batch, in));
  for (std::size_t i = 0; i < batch * in; ++i) {
    dx[i] = x[i] > 0.0F ? dx[i] : 0.0F;
  }
}

}  // namespace

DenseKernels table(std::string_view name);
DenseKernels table(std::string_view name) {
  return {name, forward, weight_gradient, bias_gradient, input_gradient};
}

}  // namespace stretto::STRETTO_KERNELS
