// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace stretto {

/// Recorded time. Always integer nanoseconds: absolute times do not fit a double exactly.
using Nanoseconds = std::chrono::nanoseconds;
/// Predicted or averaged time.
using Seconds = std::chrono::duration<double>;

/// A number of bytes. 64 bits and signed, so that differences are safe.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}
  [[nodiscard]] constexpr std::int64_t count() const noexcept { return count_; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return Bytes(a.count_ * n); }
  constexpr Bytes& operator+=(Bytes b) {
    count_ += b.count_;
    return *this;
  }

 private:
  std::int64_t count_ = 0;
};

/// A rate. 1 GB/s is 1e9 bytes per second, as in NCCL tests; 1 Gbit/s is an eighth of it.
class BytesPerSecond {
 public:
  constexpr BytesPerSecond() = default;
  constexpr explicit BytesPerSecond(double value) : value_(value) {}
  [[nodiscard]] constexpr double value() const noexcept { return value_; }

  friend constexpr auto operator<=>(BytesPerSecond, BytesPerSecond) = default;

 private:
  double value_ = 0.0;
};

[[nodiscard]] constexpr Seconds operator/(Bytes size, BytesPerSecond rate) {
  return Seconds(static_cast<double>(size.count()) / rate.value());
}

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes(static_cast<std::int64_t>(n) << 30);
}
}  // namespace literals

/// `4096`, `64K`, `25M`, `25MiB`, `1G`: powers of 1024, as in nccl-tests. `25MB` is decimal.
/// @throws Error kInvalidArgument naming the text, if it is not a size or does not fit.
[[nodiscard]] Bytes parse_bytes(std::string_view text);

/// `2Gbit/s`, `100Mbit/s`, `20GB/s`, `500MB/s`: powers of 1000. A unit is required.
/// @throws Error kInvalidArgument naming the text, if it is not a rate above zero.
[[nodiscard]] BytesPerSecond parse_bandwidth(std::string_view text);

/// `50us`, `1.5ms`, `2s`, `800ns`, `5m`, or `0`. A unit is required for all but 0.
/// @throws Error kInvalidArgument naming the text, if it is not a time of zero or more.
[[nodiscard]] Seconds parse_duration(std::string_view text);

/// For people: `25.0 MiB`, `4096 B`. Four significant digits at most.
[[nodiscard]] std::string format(Bytes size);
/// For people: `2.5 GB/s`.
[[nodiscard]] std::string format(BytesPerSecond rate);
/// For people, with four significant digits: `54.21 ms`, `813.0 us`.
[[nodiscard]] std::string format(Seconds time);

}  // namespace stretto
