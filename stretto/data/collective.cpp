// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/collective.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

// Each table is in the order of its enumerators.
constexpr std::array<std::string_view, 11> kCollectives = {"none",
                                                           "all_reduce",
                                                           "reduce_scatter",
                                                           "all_gather",
                                                           "broadcast",
                                                           "barrier",
                                                           "send",
                                                           "recv",
                                                           "reduce",
                                                           "all_to_all",
                                                           "send_recv"};
constexpr std::array<std::string_view, 4> kReduceOps = {"sum", "mean", "min", "max"};
constexpr std::array kAlgorithms = {std::string_view("auto"),
                                    std::string_view("direct"),
                                    std::string_view("ring"),
                                    std::string_view("recursive_doubling"),
                                    std::string_view("halving_doubling"),
                                    std::string_view("binomial_tree"),
                                    std::string_view("pipelined_chain"),
                                    std::string_view("double_binary_tree"),
                                    std::string_view("in_switch"),
                                    std::string_view("hierarchical"),
                                    std::string_view("hierarchical_pipelined"),
                                    std::string_view("leader"),
                                    std::string_view("parameter_server"),
                                    std::string_view("pairwise"),
                                    std::string_view("bruck")};
static_assert(kAlgorithms.size() == static_cast<std::size_t>(kLastAlgorithm) + 1);
constexpr std::array<std::string_view, 2> kBases = {"measured", "assumed"};
constexpr std::array<std::string_view, 3> kSchedules = {"serial", "overlap", "priority"};

template <typename Enum>
std::string_view name_of(Enum value, std::span<const std::string_view> names) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < names.size() ? names[index] : "unknown";
}

template <typename Enum>
Enum enum_of(std::string_view name,
             std::span<const std::string_view> names,
             std::string_view what) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) {
      return static_cast<Enum>(i);
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such " + std::string(what), {}, quote(name), "one of " + join(names), {}});
}

}  // namespace

std::string_view to_string(Basis basis) noexcept {
  return name_of(basis, kBases);
}
std::string_view to_string(Collective collective) noexcept {
  return name_of(collective, kCollectives);
}
std::string_view to_string(ReduceOp op) noexcept {
  return name_of(op, kReduceOps);
}
std::string_view to_string(Algorithm algorithm) noexcept {
  return name_of(algorithm, kAlgorithms);
}
std::string_view to_string(Schedule schedule) noexcept {
  return name_of(schedule, kSchedules);
}

Basis basis_from_string(std::string_view name) {
  return enum_of<Basis>(name, kBases, "basis");
}
Collective collective_from_string(std::string_view name) {
  return enum_of<Collective>(name, kCollectives, "collective");
}
Algorithm algorithm_from_string(std::string_view name) {
  return enum_of<Algorithm>(name, kAlgorithms, "algorithm");
}
Schedule schedule_from_string(std::string_view name) {
  return enum_of<Schedule>(name, kSchedules, "schedule");
}

int pipeline_segments(Bytes size) noexcept {
  constexpr std::int64_t kSegment = std::int64_t{64} << 10;
  return static_cast<int>(std::clamp<std::int64_t>(size.count() / kSegment, 1, 64));
}

int level_chunks(Bytes size) noexcept {
  constexpr std::int64_t kChunk = std::int64_t{256} << 10;
  return static_cast<int>(std::clamp<std::int64_t>(size.count() / kChunk, 1, 8));
}

}  // namespace stretto
