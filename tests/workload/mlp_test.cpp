// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/error.hpp"
#include "stretto/workload/random.hpp"

namespace stretto {
namespace {

struct Gradients {
  explicit Gradients(const Mlp& mlp) {
    for (const TensorSpec& tensor : mlp.tensors()) {
      values.emplace_back(static_cast<std::size_t>(tensor.elements()));
    }
  }
  std::vector<std::vector<float>> values;
  std::vector<std::size_t> order;
};

void fill_batch(Mlp& mlp, std::size_t classes, std::uint64_t seed) {
  SplitMix64 random(seed);
  for (float& pixel : mlp.input()) {
    pixel = random.next_unit() - 0.5F;
  }
  for (std::uint8_t& label : mlp.labels()) {
    label = static_cast<std::uint8_t>(random.next() % classes);
  }
}

double forward(Mlp& mlp) {
  for (std::size_t layer = 0; layer < mlp.layers(); ++layer) {
    mlp.forward_layer(layer);
  }
  return mlp.loss();
}

Gradients backward(Mlp& mlp) {
  Gradients gradients(mlp);
  for (std::size_t layer = mlp.layers(); layer > 0; --layer) {
    mlp.backward_layer(
        layer - 1,
        [&](std::size_t i) { return view(std::span(gradients.values[i])); },
        [&](std::size_t i) { gradients.order.push_back(i); });
  }
  return gradients;
}

class MlpKernels : public testing::TestWithParam<const DenseKernels*> {};

TEST_P(MlpKernels, GradientsMatchFiniteDifferences) {
  constexpr std::size_t kClasses = 5;
  Mlp mlp({11, 16, 9, kClasses}, 6, 3, *GetParam());
  fill_batch(mlp, kClasses, 4);
  const double loss = forward(mlp);
  EXPECT_NEAR(loss, std::log(kClasses), 1.0);
  const Gradients gradients = backward(mlp);

  std::size_t first = 0;
  for (std::size_t tensor = 0; tensor < gradients.values.size(); ++tensor) {
    const std::vector<float>& gradient = gradients.values[tensor];
    EXPECT_TRUE(std::any_of(gradient.begin(), gradient.end(), [](float g) { return g != 0.0F; }));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      // fp32 keeps 7 digits of a loss near 2, so the quotient is good to about 1e-7 / 1e-3.
      constexpr float kStep = 1e-3F;
      float& weight = mlp.weights()[first + i];
      const float before = weight;
      weight = before + kStep;
      const double above = forward(mlp);
      weight = before - kStep;
      const double below = forward(mlp);
      weight = before;
      const double expected = (above - below) / (2.0 * static_cast<double>(kStep));
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected, 1e-3)
          << mlp.tensors()[tensor].name << "[" << i << "]";
    }
    first += gradient.size();
  }
}

TEST_P(MlpKernels, WritesGradientsInTheOrderOfItsTensors) {
  Mlp mlp({8, 7, 6, 5}, 3, 1, *GetParam());
  fill_batch(mlp, 5, 1);
  forward(mlp);
  const Gradients gradients = backward(mlp);
  std::vector<std::size_t> expected(mlp.tensors().size());
  std::iota(expected.begin(), expected.end(), 0U);
  EXPECT_EQ(gradients.order, expected);
  EXPECT_EQ(mlp.tensors().front().name, "fc3.bias");
  EXPECT_EQ(mlp.tensors().back().name, "fc1.weight");
  EXPECT_EQ(mlp.tensors().back().shape, (std::vector<std::int64_t>{7, 8}));
}

/// Widths beyond a tile in each direction, and none a multiple of a vector.
const std::vector<std::size_t> kOddWidths = {785, 517, 6, 10};

TEST_P(MlpKernels, SameInputsGiveSameBitsWhateverTheAlignment) {
  std::vector<std::vector<float>> results;
  for (std::size_t offset = 0; offset < 5; ++offset) {
    Mlp mlp(kOddWidths, 37, 9, *GetParam());
    fill_batch(mlp, 10, 5);
    forward(mlp);
    std::vector<float> all(mlp.weights().size() + offset);
    std::vector<std::size_t> at = {offset};
    for (const TensorSpec& tensor : mlp.tensors()) {
      at.push_back(at.back() + static_cast<std::size_t>(tensor.elements()));
    }
    for (std::size_t layer = mlp.layers(); layer > 0; --layer) {
      mlp.backward_layer(
          layer - 1,
          [&](std::size_t i) { return view(std::span(all).subspan(at[i], at[i + 1] - at[i])); },
          [](std::size_t) {});
    }
    results.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(offset), all.end());
  }
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels,
                         MlpKernels,
                         testing::ValuesIn(available_dense_kernels()),
                         [](const auto& test) {
                           return test.param->name == "baseline" ? "baseline" : "x86_64_v3";
                         });

TEST(Mlp, AllKernelsAgreeWithinRounding) {
  const auto all = available_dense_kernels();
  if (all.size() < 2) {
    GTEST_SKIP() << "this processor runs the baseline kernels only";
  }
  std::vector<double> losses;
  std::vector<Gradients> gradients;
  for (const DenseKernels* kernels : all) {
    Mlp mlp(kOddWidths, 33, 2, *kernels);
    fill_batch(mlp, 10, 6);
    losses.push_back(forward(mlp));
    gradients.push_back(backward(mlp));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  for (std::size_t tensor = 0; tensor < gradients[0].values.size(); ++tensor) {
    for (std::size_t i = 0; i < gradients[0].values[tensor].size(); ++i) {
      ASSERT_NEAR(gradients[0].values[tensor][i], gradients[1].values[tensor][i], 2e-5F);
    }
  }
}

TEST(Mlp, SeedAloneDecidesTheWeights) {
  const auto weights = [](std::size_t batch, std::uint64_t seed) {
    Mlp mlp({20, 30, 10}, batch, seed);
    return std::vector<float>(mlp.weights().begin(), mlp.weights().end());
  };
  EXPECT_EQ(weights(1, 5), weights(64, 5));
  EXPECT_NE(weights(1, 5), weights(1, 6));
}

TEST(Mlp, InitialVarianceIsTwoOverInputs) {
  Mlp mlp({400, 300, 2}, 1, 11);
  const auto weights = mlp.weights().last(std::size_t{400} * 300);
  const double square = std::inner_product(weights.begin(), weights.end(), weights.begin(), 0.0);
  EXPECT_NEAR(square / static_cast<double>(weights.size()), 2.0 / 400.0, 1e-4);
}

TEST(Mlp, ASmallerBatchIsItsOwnMean) {
  Mlp mlp({4, 3}, 8, 1);
  mlp.set_batch(1);
  fill_batch(mlp, 3, 1);
  const std::vector<float> image(mlp.input().begin(), mlp.input().end());
  const std::uint8_t label = mlp.labels()[0];
  const double alone = forward(mlp);
  mlp.set_batch(5);
  for (std::size_t row = 0; row < 5; ++row) {
    std::copy(
        image.begin(), image.end(), mlp.input().begin() + static_cast<std::ptrdiff_t>(row * 4));
    mlp.labels()[row] = label;
  }
  EXPECT_NEAR(forward(mlp), alone, 1e-6);
  EXPECT_EQ(mlp.correct() % 5, 0U);
}

TEST(Mlp, RejectsImpossibleShapesAndBuffers) {
  const std::vector<std::vector<std::size_t>> shapes = {{}, {784}, {784, 0, 10}};
  for (const auto& widths : shapes) {
    EXPECT_THROW(Mlp(widths, 1, 0), Error);
  }
  EXPECT_THROW(Mlp({2, 2}, 0, 0), Error);
  Mlp mlp({2, 2}, 1, 0);
  EXPECT_THROW(mlp.set_batch(2), Error);
  fill_batch(mlp, 2, 0);
  forward(mlp);
  std::vector<float> one(1);
  EXPECT_THROW(mlp.backward_layer(
                   0, [&](std::size_t) { return view(std::span(one)); }, [](std::size_t) {}),
               Error);
}

}  // namespace
}  // namespace stretto
