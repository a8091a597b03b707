// SPDX-License-Identifier: Apache-2.0
#include "stretto/base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

/// What one of `unit` is worth.
template <typename Factor>
struct Unit {
  std::string_view name;
  Factor factor;
};

constexpr std::int64_t kKibi = 1024;
constexpr std::int64_t kKilo = 1000;
constexpr std::array kSizeUnits = {
    Unit<std::int64_t>{"", 1},
    Unit<std::int64_t>{"B", 1},
    Unit<std::int64_t>{"K", kKibi},
    Unit<std::int64_t>{"k", kKibi},
    Unit<std::int64_t>{"KiB", kKibi},
    Unit<std::int64_t>{"kB", kKilo},
    Unit<std::int64_t>{"KB", kKilo},
    Unit<std::int64_t>{"M", kKibi* kKibi},
    Unit<std::int64_t>{"m", kKibi* kKibi},
    Unit<std::int64_t>{"MiB", kKibi* kKibi},
    Unit<std::int64_t>{"MB", kKilo* kKilo},
    Unit<std::int64_t>{"G", kKibi* kKibi* kKibi},
    Unit<std::int64_t>{"g", kKibi* kKibi* kKibi},
    Unit<std::int64_t>{"GiB", kKibi* kKibi* kKibi},
    Unit<std::int64_t>{"GB", kKilo* kKilo* kKilo},
    Unit<std::int64_t>{"T", kKibi* kKibi* kKibi* kKibi},
    Unit<std::int64_t>{"TiB", kKibi* kKibi* kKibi* kKibi},
    Unit<std::int64_t>{"TB", kKilo* kKilo* kKilo* kKilo},
};
constexpr std::array kRateUnits = {
    Unit<double>{"bit/s", 0.125},
    Unit<double>{"kbit/s", 125.0},
    Unit<double>{"Mbit/s", 125e3},
    Unit<double>{"Gbit/s", 125e6},
    Unit<double>{"Tbit/s", 125e9},
    Unit<double>{"B/s", 1.0},
    Unit<double>{"kB/s", 1e3},
    Unit<double>{"KB/s", 1e3},
    Unit<double>{"MB/s", 1e6},
    Unit<double>{"GB/s", 1e9},
    Unit<double>{"TB/s", 1e12},
};
constexpr std::array kTimeUnits = {
    Unit<double>{"ns", 1e-9},
    Unit<double>{"us", 1e-6},
    Unit<double>{"µs", 1e-6},
    Unit<double>{"ms", 1e-3},
    Unit<double>{"s", 1.0},
    Unit<double>{"m", 60.0},
    Unit<double>{"h", 3600.0},
};

template <typename Factor>
std::optional<Factor> factor_of(std::string_view unit, std::span<const Unit<Factor>> units) {
  for (const Unit<Factor>& known : units) {
    if (known.name == unit) {
      return known.factor;
    }
  }
  return std::nullopt;
}

/// `12.5 GB/s` as "12.5" and "GB/s". The number has no sign and no exponent.
struct Quantity {
  std::string_view number;
  std::string_view unit;
};

Quantity split(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  Quantity quantity{text.substr(0, digits), text.substr(digits)};
  if (!quantity.number.empty() && quantity.unit.starts_with(' ')) {
    quantity.unit.remove_prefix(1);
  }
  return quantity;
}

std::optional<double> parse_number(std::string_view number) {
  double value = 0.0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, value, std::chars_format::fixed);
  if (number.empty() || error != std::errc() || stop != end) {
    return std::nullopt;
  }
  return value;
}

[[noreturn]] void reject(std::string_view what, std::string_view text, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {"not a " + std::string(what), {}, quote(text), std::move(expected), {}});
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  constexpr std::string_view kExpected =
      "a size such as 4096, 64K, 25M or 1.5G (powers of 1024, as 25MiB) or 25MB (decimal)";
  const auto [number, unit] = split(text);
  const auto factor = factor_of<std::int64_t>(unit, kSizeUnits);
  const auto value = parse_number(number);
  if (!factor || !value) {
    reject("size in bytes", text, std::string(kExpected));
  }
  if (number.find('.') == std::string_view::npos) {  // exact over all of int64
    std::int64_t count = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), count);
    if (result.ec != std::errc() || count > std::numeric_limits<std::int64_t>::max() / *factor) {
      reject("size that fits 64 bits", text, "less than 8 EiB");
    }
    return Bytes(count * *factor);
  }
  const double bytes = *value * static_cast<double>(*factor);
  if (bytes >= 0x1p53 || bytes != std::floor(bytes)) {
    reject("whole number of bytes", text, std::string(kExpected));
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

BytesPerSecond parse_bandwidth(std::string_view text) {
  const auto [number, unit] = split(text);
  const auto factor = factor_of<double>(unit, kRateUnits);
  const auto value = parse_number(number);
  const double rate = factor && value ? *factor * *value : 0.0;
  if (!(rate > 0.0) || !std::isfinite(rate)) {
    reject("bandwidth", text, "a rate above zero with its unit, such as 5Gbit/s or 20GB/s");
  }
  return BytesPerSecond(rate);
}

Seconds parse_duration(std::string_view text) {
  const auto [number, unit] = split(text);
  const auto value = parse_number(number);
  if (value == 0.0 && unit.empty()) {
    return Seconds(0.0);
  }
  const auto factor = factor_of<double>(unit, kTimeUnits);
  const double seconds = factor && value ? *factor * *value : -1.0;
  if (!(seconds >= 0.0) || !std::isfinite(seconds)) {
    reject("time", text, "a time with its unit (ns, us, ms, s, m, h), such as 50us or 1.5ms");
  }
  return Seconds(seconds);
}

std::string format(Bytes size) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(size.count());
  if (std::abs(value) < 10'000.0) {
    return fmt::format("{} B", size.count());
  }
  std::size_t unit = 0;
  while (std::abs(value) >= 1023.5) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, std::abs(value) < 999.95 ? 1 : 0, kUnits.at(unit));
}

std::string format(BytesPerSecond rate) {
  constexpr std::array kUnits = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = rate.value();
  std::size_t unit = 0;
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, kUnits.at(unit));
}

std::string format(Seconds time) {
  constexpr std::array kUnits = {"ns", "us", "ms", "s"};
  const double magnitude = std::abs(time.count());
  if (magnitude == 0.0) {
    return "0 s";
  }
  double value = time.count() * 1e9;
  std::size_t unit = 0;
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  // The limits are where rounding would add a fifth digit.
  const double shown = std::abs(value);
  const int decimals = shown < 9.9995 ? 3 : shown < 99.995 ? 2 : shown < 999.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits.at(unit));
}

}  // namespace stretto
