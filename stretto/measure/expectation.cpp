// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/expectation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stretto/base/half.hpp"

namespace stretto::detail {
namespace {

/// A mixing of 64 bits (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
std::uint64_t mix(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

template <typename T>
T read_as(const BufferView& data, std::size_t index) noexcept {
  T value{};
  std::memcpy(&value, data.data + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void write_as(const BufferView& data, std::size_t index, T value) noexcept {
  std::memcpy(data.data + index * sizeof(T), &value, sizeof(T));
}

double read(const BufferView& data, std::size_t index) noexcept {
  switch (data.dtype) {
    case DType::kF32:
      return read_as<float>(data, index);
    case DType::kF64:
      return read_as<double>(data, index);
    case DType::kF16:
      return f16_to_f32(read_as<std::uint16_t>(data, index));
    case DType::kBF16:
      return bf16_to_f32(read_as<std::uint16_t>(data, index));
    case DType::kI32:
      return read_as<std::int32_t>(data, index);
    case DType::kI64:
      // Exact: what is expected is far below 2^53, and all else is wrong anyway.
      return static_cast<double>(read_as<std::int64_t>(data, index));
  }
  return 0.0;
}

void write(const BufferView& data, std::size_t index, double value) noexcept {
  switch (data.dtype) {
    case DType::kF32:
      write_as(data, index, static_cast<float>(value));
      return;
    case DType::kF64:
      write_as(data, index, value);
      return;
    case DType::kF16:
      write_as(data, index, f32_to_f16(static_cast<float>(value)));
      return;
    case DType::kBF16:
      write_as(data, index, f32_to_bf16(static_cast<float>(value)));
      return;
    case DType::kI32:
      write_as(data, index, static_cast<std::int32_t>(value));
      return;
    case DType::kI64:
      write_as(data, index, static_cast<std::int64_t>(value));
      return;
  }
}

/// Half the distance between 1 and the next number.
double rounding_unit(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kF64:
      return 0x1p-53;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kI32:
    case DType::kI64:
      return 0.0;
  }
  return 0.0;
}

}  // namespace

double input_value(DType dtype, int rank, std::size_t index) noexcept {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(index) * 0x9e3779b97f4a7c15U +
                                 static_cast<std::uint64_t>(rank));
  if (!is_floating(dtype)) {
    return static_cast<double>(bits % 201) - 100.0;
  }
  // 8 bits, which every type holds exactly: what is compared is the collective's rounding alone.
  return static_cast<double>(bits >> 56) / 128.0 - 1.0;
}

void fill_input(const BufferView& data, int rank, std::size_t first) noexcept {
  for (std::size_t i = 0; i < data.count; ++i) {
    write(data, i, input_value(data.dtype, rank, first + i));
  }
}

std::int64_t count_wrong_sums(const BufferView& data,
                              ReduceOp op,
                              int ranks,
                              std::size_t first) noexcept {
  const double unit = rounding_unit(data.dtype);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < data.count; ++i) {
    double sum = 0.0;
    double magnitude = 0.0;
    double least = std::numeric_limits<double>::infinity();
    double most = -std::numeric_limits<double>::infinity();
    for (int rank = 0; rank < ranks; ++rank) {
      const double value = input_value(data.dtype, rank, first + i);
      sum += value;
      magnitude += std::abs(value);
      least = std::min(least, value);
      most = std::max(most, value);
    }
    double expected = sum;
    double tolerance = (ranks + 1) * unit * magnitude;
    switch (op) {
      case ReduceOp::kSum:
        break;
      case ReduceOp::kMean:
        expected /= ranks;
        tolerance = tolerance / ranks + unit * std::abs(expected);
        break;
      case ReduceOp::kMin:
        expected = least;
        tolerance = 0.0;
        break;
      case ReduceOp::kMax:
        expected = most;
        tolerance = 0.0;
        break;
    }
    // Written so that NaN is wrong.
    wrong += std::abs(read(data, i) - expected) <= tolerance ? 0 : 1;
  }
  return wrong;
}

std::int64_t count_wrong_copies(const BufferView& data, int rank, std::size_t first) noexcept {
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < data.count; ++i) {
    wrong += read(data, i) == input_value(data.dtype, rank, first + i) ? 0 : 1;
  }
  return wrong;
}

}  // namespace stretto::detail
