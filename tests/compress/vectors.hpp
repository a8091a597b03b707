// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "stretto/base/instruction_set.hpp"

/// Vectors on which codecs go wrong.
namespace stretto::testing {

using Vector = std::vector<float>;

struct NamedVector {
  std::string name;
  Vector values;
};

inline Vector gaussian(std::size_t count, unsigned seed, float width = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, width);
  Vector values(count);
  for (float& value : values) {
    value = normal(generator);
  }
  return values;
}

inline std::vector<NamedVector> hard_vectors(std::size_t count) {
  std::mt19937 generator(11);
  std::exponential_distribution<float> exponential(1.0F);
  Vector laplace(count);
  for (float& value : laplace) {
    value = exponential(generator) * (generator() % 2 == 0 ? 1.0F : -1.0F);
  }
  Vector sparse = gaussian(count, 12);
  for (float& value : sparse) {
    value = generator() % 20 == 0 ? value : 0.0F;
  }
  Vector outlier = gaussian(count, 13);
  outlier[count / 2] = 1e6F;
  Vector denormal = gaussian(count, 14);
  for (float& value : denormal) {
    value *= 0x1p-140F;
  }
  return {{"gaussian", gaussian(count, 10)},
          {"laplace", laplace},
          {"95 % zeros", sparse},
          {"one outlier of 1e6", outlier},
          {"denormals", denormal},
          {"all equal", Vector(count, -0.3F)},
          {"zeros", Vector(count, 0.0F)},
          {"large", gaussian(count, 15, 1e33F)}};
}

inline double squares(const Vector& values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum;
}

/// The sets this processor can run, the narrowest first.
inline std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets = {InstructionSet::kBaseline};
  for (const InstructionSet set : {InstructionSet::kV3, InstructionSet::kV4}) {
    if (best_instruction_set() >= set) {
      sets.push_back(set);
    }
  }
  return sets;
}

}  // namespace stretto::testing
