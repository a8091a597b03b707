// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/sampled_gradients.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/half.hpp"

namespace stretto {
namespace {

constexpr std::size_t kDistance = std::size_t{1} << 16;

template <typename T>
void put(const BufferView& view, std::size_t element, T value) {
  std::memcpy(view.data + element * sizeof(T), &value, sizeof(T));
}
template <typename T>
T get(const BufferView& view, std::size_t element) {
  T value{};
  std::memcpy(&value, view.data + element * sizeof(T), sizeof(T));
  return value;
}

void write(const BufferView& view, std::size_t element, float value) {
  switch (view.dtype) {
    case DType::kF32:
      return put(view, element, value);
    case DType::kF64:
      return put(view, element, static_cast<double>(value));
    case DType::kF16:
      return put(view, element, f32_to_f16(value));
    case DType::kBF16:
      return put(view, element, f32_to_bf16(value));
    case DType::kI32:
    case DType::kI64:
      return;
  }
}

float read(const BufferView& view, std::size_t element) {
  switch (view.dtype) {
    case DType::kF32:
      return get<float>(view, element);
    case DType::kF64:
      return static_cast<float>(get<double>(view, element));
    case DType::kF16:
      return f16_to_f32(get<std::uint16_t>(view, element));
    case DType::kBF16:
      return bf16_to_f32(get<std::uint16_t>(view, element));
    case DType::kI32:
    case DType::kI64:
      return 0.0F;
  }
  return 0.0F;
}

/// One rounding of a mean, with room for an algorithm that rounds at every hop.
float tolerance(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-5F;
    case DType::kF16:
      return 0x1p-8F;
    default:
      return 0x1p-20F;
  }
}

float filling(std::size_t element) {
  return static_cast<float>(element % 8 + 1);
}

float sample(int rank, std::uint32_t step, std::size_t tensor, std::size_t element) {
  const std::size_t mixed =
      static_cast<std::size_t>(rank) * 5 + std::size_t{step} * 3 + tensor * 7 + element / kDistance;
  return static_cast<float>(mixed % 13);
}

}  // namespace

SampledGradients::SampledGradients(const Session& session, int rank, int ranks)
    : session_(session), rank_(rank), ranks_(ranks), samples_(session.tensors()) {
  for (std::size_t tensor = 0; tensor < samples_.size(); ++tensor) {
    const BufferView view = session.gradient(tensor);
    if (!is_floating(view.dtype)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"gradients of this type cannot be averaged",
                   fmt::format("tensor '{}'", session.plan().tensors[tensor].name),
                   std::string(to_string(view.dtype)),
                   "f32, f64, f16 or bf16",
                   ""});
    }
    for (std::size_t element = 0; element < view.count; ++element) {
      write(view, element, filling(element));
    }
    for (std::size_t element = 0; element < view.count; element += kDistance) {
      samples_[tensor].push_back(element);
    }
    if (view.count > 1 && samples_[tensor].back() != view.count - 1) {
      samples_[tensor].push_back(view.count - 1);
    }
  }
}

void SampledGradients::stamp(std::size_t tensor, std::uint32_t step) {
  const BufferView view = session_.gradient(tensor);
  for (const std::size_t element : samples_[tensor]) {
    write(view, element, sample(rank_, step, tensor, element));
  }
}

void SampledGradients::verify(std::uint32_t step) {
  for (std::size_t tensor = 0; tensor < samples_.size(); ++tensor) {
    const std::vector<std::size_t>& elements = samples_[tensor];
    for (std::size_t i = 0; i < elements.size(); ++i) {
      float sum = 0.0F;
      for (int rank = 0; rank < ranks_; ++rank) {
        sum += sample(rank, step, tensor, elements[i]);
      }
      expect(tensor, elements[i], sum / static_cast<float>(ranks_), step);
      if (i + 1 < elements.size() && elements[i] + 1 < elements[i + 1]) {
        expect(tensor, elements[i] + 1, filling(elements[i] + 1), step);
      }
    }
  }
}

void SampledGradients::expect(std::size_t tensor,
                              std::size_t element,
                              float value,
                              std::uint32_t step) {
  const BufferView view = session_.gradient(tensor);
  const float found = read(view, element);
  ++values_checked_;
  // Written so that NaN is wrong.
  if (std::abs(found - value) <= tolerance(view.dtype) * std::max(value, 1.0F)) {
    return;
  }
  throw Error(ErrorCode::kMismatch,
              {"a gradient was reduced wrongly",
               fmt::format("rank {}, step {}, tensor '{}', element {}",
                           rank_,
                           step,
                           session_.plan().tensors[tensor].name,
                           element),
               fmt::format("{}", found),
               fmt::format("{}, the mean over {} ranks", value, ranks_),
               "This is a bug in Stretto or broken hardware: please report it"});
}

}  // namespace stretto
