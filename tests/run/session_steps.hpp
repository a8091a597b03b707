// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "stretto/plan/fixed_plans.hpp"
#include "stretto/run/session.hpp"

/// Steps of a Session over a small model of several types.
namespace stretto::testing {

inline std::vector<TensorSpec> model() {
  std::vector<TensorSpec> tensors;
  constexpr auto kSizes = std::to_array<std::int64_t>({10, 2000, 1, 0, 1500, 777, 64, 4096, 3});
  tensors.reserve(kSizes.size() + 2);
  int number = 0;
  for (const std::int64_t size : kSizes) {
    TensorSpec tensor{"t" + std::to_string(number++), DType::kF32, {size}};
    if (size == 2000) {
      tensor.shape = {40, 50};
    } else if (size == 4096) {
      tensor.shape = {64, 64};
    }
    tensors.push_back(std::move(tensor));
  }
  tensors.push_back({"half", DType::kBF16, {300}});
  tensors.push_back({"wide", DType::kF64, {500}});
  return tensors;
}

inline void fill(Session& session, int rank, std::uint32_t step, bool add = false) {
  for (std::size_t i = 0; i < session.tensors(); ++i) {
    const BufferView gradient = session.gradient(i);
    std::mt19937 generator(static_cast<unsigned>(i) * 1000 + static_cast<unsigned>(rank) * 10 +
                           step);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::size_t k = 0; k < gradient.count; ++k) {
      const float value = uniform(generator);
      if (gradient.dtype == DType::kF32) {
        float& at = as_span<float>(gradient)[k];
        at = add ? at + value : value;
      } else if (gradient.dtype == DType::kF64) {
        double& at = as_span<double>(gradient)[k];
        at = add ? at + static_cast<double>(value) : static_cast<double>(value);
      } else {
        const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
        std::memcpy(gradient.data + 2 * k, &bits, 2);
      }
    }
  }
}

inline std::vector<std::byte> bytes_of(const Session& session) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < session.tensors(); ++i) {
    const BufferView gradient = session.gradient(i);
    all.insert(all.end(), gradient.data, gradient.data + gradient.size_bytes());
  }
  return all;
}

inline void restore(const Session& session, const std::vector<std::byte>& all) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < session.tensors(); ++i) {
    const BufferView gradient = session.gradient(i);
    std::copy_n(
        all.begin() + static_cast<std::ptrdiff_t>(at), gradient.size_bytes(), gradient.data);
    at += gradient.size_bytes();
  }
}

inline void ready_in_order(Session& session) {
  for (std::size_t i = 0; i < session.tensors(); ++i) {
    session.ready(i);
  }
}

// What a step gives with one bucket per dtype after the whole backward pass.
inline std::vector<std::vector<std::byte>> serial_steps(Communicator& communicator,
                                                        std::uint32_t steps) {
  Session session(communicator, single_bucket_plan(model()), {.schedule = Schedule::kSerial});
  std::vector<std::vector<std::byte>> results;
  for (std::uint32_t step = 0; step < steps; ++step) {
    fill(session, communicator.rank(), step);
    ready_in_order(session);
    session.finish();
    results.push_back(bytes_of(session));
  }
  return results;
}

}  // namespace stretto::testing
