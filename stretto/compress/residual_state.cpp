// SPDX-License-Identifier: Apache-2.0
#include "stretto/compress/residual_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/base/hash.hpp"

namespace stretto {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

constexpr std::string_view kMagic = "SRES";
constexpr std::uint32_t kVersion = 4;
constexpr std::size_t kChecksum = sizeof(std::uint64_t);

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return Hasher().add_raw(bytes).digest();
}

class Writer {
 public:
  void raw(const void* data, std::size_t size) {
    if (size != 0) {
      const auto* const from = static_cast<const std::byte*>(data);
      bytes_.insert(bytes_.end(), from, from + size);
    }
  }
  template <typename Number>
  void number(Number value) {
    raw(&value, sizeof(value));
  }
  void floats(const std::vector<float>& values) {
    raw(values.data(), values.size() * sizeof(float));
  }
  std::vector<std::byte> finish() {
    number(checksum_of(bytes_));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view where) : rest_(bytes), where_(where) {}

  [[noreturn]] void fail(std::string message, std::string found, std::string expected) const {
    throw Error(ErrorCode::kParse,
                {std::move(message),
                 std::string(where_),
                 std::move(found),
                 std::move(expected),
                 "A state is what the same rank saved, whole."});
  }
  std::span<const std::byte> raw(std::uint64_t size) {
    if (size > rest_.size()) {
      fail("the state is cut off",
           std::to_string(rest_.size()) + " bytes left",
           std::to_string(size) + " or more");
    }
    const std::span<const std::byte> taken = rest_.first(static_cast<std::size_t>(size));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  template <typename Number>
  Number number() {
    Number value{};
    std::memcpy(&value, raw(sizeof(value)).data(), sizeof(value));
    return value;
  }
  std::vector<float> floats(std::uint64_t count) {
    if (count > rest_.size() / sizeof(float)) {
      fail("the state is cut off",
           std::to_string(rest_.size()) + " bytes left",
           std::to_string(count) + " floats");
    }
    const std::span<const std::byte> from = raw(count * sizeof(float));
    std::vector<float> values(static_cast<std::size_t>(count));
    if (!values.empty()) {
      std::memcpy(values.data(), from.data(), from.size());
    }
    return values;
  }
  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  std::string_view where_;
};

[[noreturn]] void mismatch(std::string message, std::string found, std::string expected) {
  throw Error(ErrorCode::kMismatch,
              {std::move(message),
               "states of residuals",
               std::move(found),
               std::move(expected),
               "Give the states that all ranks of one job saved at one step."});
}

std::string whose(const ResidualState& state) {
  return "rank " + std::to_string(state.rank) + " of " + std::to_string(state.world) + ", step " +
         std::to_string(state.step);
}

void add(std::vector<float>& to, const std::vector<float>& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    to[i] += values[i];
  }
}

}  // namespace

std::vector<std::byte> to_bytes(const ResidualState& state) {
  Writer writer;
  writer.raw(kMagic.data(), kMagic.size());
  writer.number(kVersion);
  writer.number(state.world);
  writer.number(state.rank);
  writer.number(state.step);
  writer.number(state.plan_hash);
  writer.number(std::uint64_t{state.tensors.size()});
  for (const ResidualState::Tensor& tensor : state.tensors) {
    writer.number(std::uint64_t{tensor.name.size()});
    writer.raw(tensor.name.data(), tensor.name.size());
    writer.number(std::uint64_t{tensor.own.size()});
    writer.number(std::uint64_t{tensor.sums.size()});
    writer.floats(tensor.own);
    writer.floats(tensor.sums);
    writer.number(std::uint64_t{tensor.velocity.size()});
    writer.floats(tensor.velocity);
    writer.number(std::uint64_t{tensor.momenta.size()});
    for (const ResidualState::Momentum& part : tensor.momenta) {
      writer.number(part.begin);
      writer.number(part.end);
      writer.number(part.momentum);
    }
  }
  writer.number(std::uint64_t{state.directions.size()});
  for (const std::vector<float>& directions : state.directions) {
    writer.number(std::uint64_t{directions.size()});
    writer.floats(directions);
  }
  return writer.finish();
}

ResidualState residual_state_from_bytes(std::span<const std::byte> bytes, std::string_view where) {
  Reader reader(bytes, where);
  const std::span<const std::byte> magic = reader.raw(kMagic.size());
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0) {
    reader.fail("this is no state of residuals", "other first bytes", std::string(kMagic));
  }
  const auto version = reader.number<std::uint32_t>();
  if (version != kVersion) {
    reader.fail("the state is of another version",
                "version " + std::to_string(version),
                "version " + std::to_string(kVersion));
  }
  if (reader.left() < kChecksum) {
    reader.fail(
        "the state is cut off", std::to_string(reader.left()) + " bytes left", "a checksum");
  }
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, bytes.last(kChecksum).data(), kChecksum);
  if (checksum != checksum_of(bytes.first(bytes.size() - kChecksum))) {
    reader.fail("the state is damaged", "another checksum", "that of its bytes");
  }
  ResidualState state;
  state.world = reader.number<std::uint32_t>();
  state.rank = reader.number<std::uint32_t>();
  state.step = reader.number<std::uint32_t>();
  state.plan_hash = reader.number<std::uint64_t>();
  if (state.rank >= state.world) {
    reader.fail("there is no such rank", whose(state), "a rank below the number of ranks");
  }
  const auto tensors = reader.number<std::uint64_t>();
  for (std::uint64_t i = 0; i < tensors; ++i) {
    ResidualState::Tensor tensor;
    const std::span<const std::byte> name = reader.raw(reader.number<std::uint64_t>());
    tensor.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    const auto own = reader.number<std::uint64_t>();
    const auto sums = reader.number<std::uint64_t>();
    if (sums != 0 && sums != own) {
      reader.fail("a tensor has not as many sums as elements",
                  std::to_string(sums) + " of '" + tensor.name + "'",
                  std::to_string(own));
    }
    tensor.own = reader.floats(own);
    tensor.sums = reader.floats(sums);
    const auto velocity = reader.number<std::uint64_t>();
    if (velocity != 0 && velocity != own) {
      reader.fail("a tensor has not as many velocities as elements",
                  std::to_string(velocity) + " of '" + tensor.name + "'",
                  std::to_string(own));
    }
    tensor.velocity = reader.floats(velocity);
    const auto momenta = reader.number<std::uint64_t>();
    for (std::uint64_t m = 0; m < momenta; ++m) {
      ResidualState::Momentum part;
      part.begin = reader.number<std::uint64_t>();
      part.end = reader.number<std::uint64_t>();
      part.momentum = reader.number<double>();
      const bool in_order = tensor.momenta.empty() || tensor.momenta.back().end <= part.begin;
      if (!in_order || part.begin > part.end || part.end > own) {
        reader.fail("a momentum is of other elements than the tensor's, one after the other",
                    std::to_string(part.begin) + " to " + std::to_string(part.end) + " of '" +
                        tensor.name + "'",
                    "up to " + std::to_string(own));
      }
      if (!(part.momentum >= 0.0 && part.momentum < 1.0)) {
        reader.fail("a codec has no such momentum",
                    std::to_string(part.momentum) + " of '" + tensor.name + "'",
                    "from 0 to below 1");
      }
      tensor.momenta.push_back(part);
    }
    state.tensors.push_back(std::move(tensor));
  }
  const auto buckets = reader.number<std::uint64_t>();
  for (std::uint64_t b = 0; b < buckets; ++b) {
    state.directions.push_back(reader.floats(reader.number<std::uint64_t>()));
  }
  if (reader.left() != kChecksum) {
    reader.fail("the state goes on behind its end",
                std::to_string(reader.left()) + " bytes left",
                std::to_string(kChecksum));
  }
  return state;
}

ResidualState remapped(std::span<const ResidualState> states,
                       std::uint32_t rank,
                       std::uint32_t world,
                       bool mean) {
  if (states.empty() || world == 0 || rank >= world) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is nothing to take residuals from, or nobody to take them",
                 "states of residuals",
                 std::to_string(states.size()) + " states for rank " + std::to_string(rank) +
                     " of " + std::to_string(world),
                 "the states of the older job's ranks",
                 {}});
  }
  const ResidualState& first = states.front();
  for (const ResidualState& state : states) {
    bool alike = state.world == first.world && state.step == first.step &&
                 state.plan_hash == first.plan_hash && state.tensors.size() == first.tensors.size();
    for (std::size_t i = 0; alike && i < state.tensors.size(); ++i) {
      alike = state.tensors[i].name == first.tensors[i].name &&
              state.tensors[i].own.size() == first.tensors[i].own.size() &&
              state.tensors[i].momenta == first.tensors[i].momenta;
    }
    if (!alike) {
      mismatch("two states are not of the same job and step", whose(state), "as " + whose(first));
    }
  }
  const auto of_rank = [&](std::uint32_t wanted) -> const ResidualState& {
    const auto is_wanted = [&](const ResidualState& state) { return state.rank == wanted; };
    const auto found = std::find_if(states.begin(), states.end(), is_wanted);
    if (found == states.end()) {
      mismatch("a rank's state is missing",
               std::to_string(states.size()) + " states",
               "that of rank " + std::to_string(wanted));
    }
    if (std::find_if(found + 1, states.end(), is_wanted) != states.end()) {
      mismatch("a rank's state is there twice", whose(*found), "one of each rank");
    }
    return *found;
  };
  if (first.world == world) {
    return of_rank(rank);
  }
  ResidualState result;
  result.world = world;
  result.rank = rank;
  result.step = first.step;
  for (const ResidualState::Tensor& tensor : first.tensors) {
    result.tensors.push_back(
        {tensor.name, std::vector<float>(tensor.own.size()), {}, {}, tensor.momenta});
  }
  for (std::uint64_t older = rank; older < first.world; older += world) {
    const ResidualState& state = of_rank(static_cast<std::uint32_t>(older));
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      add(result.tensors[i].own, state.tensors[i].own);
      add(result.tensors[i].own, state.tensors[i].sums);
      if (!state.tensors[i].velocity.empty()) {
        result.tensors[i].velocity.resize(state.tensors[i].own.size());
        add(result.tensors[i].velocity, state.tensors[i].velocity);
      }
    }
  }
  if (mean) {
    const auto factor = static_cast<float>(static_cast<double>(world) / first.world);
    for (ResidualState::Tensor& tensor : result.tensors) {
      for (std::vector<float>* const values : {&tensor.own, &tensor.velocity}) {
        for (float& value : *values) {
          value *= factor;
        }
      }
    }
  }
  return result;
}

}  // namespace stretto
