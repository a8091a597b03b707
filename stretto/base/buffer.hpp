// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stretto/base/dtype.hpp"

namespace stretto {

/// Where memory lives. Every backend of this version reaches kCpu only and says so; the tag is
/// there so that a device pointer can never be mistaken for a host one.
enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  std::int16_t index = 0;
  friend constexpr bool operator==(Device, Device) = default;
};

/// `count` elements of `dtype` at `data`; owns nothing.
struct BufferView {
  std::byte* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kF32;
  Device device = {};

  [[nodiscard]] constexpr std::size_t size_bytes() const noexcept { return count * size_of(dtype); }
  /// Elements [begin, end) of this view.
  [[nodiscard]] constexpr BufferView slice(std::size_t begin, std::size_t end) const noexcept {
    return {data + begin * size_of(dtype), end - begin, dtype, device};
  }
};

namespace detail {
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType kValue = DType::kI64;
};
}  // namespace detail

/// A view of a span of float, double, int32_t or int64_t. 16-bit floats have no C++ type here:
/// fill in a BufferView by hand.
template <typename T>
[[nodiscard]] BufferView view(std::span<T> values) noexcept {
  return {
      reinterpret_cast<std::byte*>(values.data()), values.size(), detail::DTypeOf<T>::kValue, {}};
}
/// Spans of fixed size too.
template <typename T, std::size_t Extent>
[[nodiscard]] BufferView view(std::span<T, Extent> values) noexcept {
  return view(std::span<T>(values));
}

/// The bytes of a view as elements of T, which must be the type `dtype` names.
template <typename T>
[[nodiscard]] std::span<T> as_span(const BufferView& buffer) noexcept {
  return {reinterpret_cast<T*>(buffer.data), buffer.count};
}

}  // namespace stretto
