// SPDX-License-Identifier: Apache-2.0
// Exchanges of which only chosen elements travel.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/compress/codec/selection.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto::detail {
namespace {

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

std::size_t index_of(int n) {
  return static_cast<std::size_t>(n);
}

// What a rank says before it sends: elements, and whether its gradient was finite.
struct Announcement {
  std::uint32_t elements = 0;
  std::uint32_t finite = 0;
};
constexpr std::size_t kAnnouncement = 64;  // bytes at the head of the wire, one cache line
constexpr std::size_t kPair = sizeof(std::uint32_t) + sizeof(float);

/// In the step of a warm-up that chooses most.
std::size_t most_chosen(const CodecSpec& codec, std::size_t count) {
  return codec.chosen_of(count, 0);
}

/// Momentum correction: ranks choose from what they have not sent of their velocities.
class Sparse : public CompressedBucket {
 protected:
  using CompressedBucket::CompressedBucket;

  /// The gradient becomes the velocity u = m u + g.
  void begin_velocity() const noexcept {
    if (input_.velocity == nullptr) {
      return;
    }
    auto* const data = reinterpret_cast<float*>(input_.data.data);
    const auto momentum = static_cast<float>(codec().momentum);
    for (std::size_t i = 0; i < input_.data.count; ++i) {
      data[i] += momentum * input_.velocity[i];
      input_.next_velocity[i] = data[i];
    }
    if (input_.strays != nullptr) {
      for (std::size_t i = 0; i < input_.data.count; ++i) {
        data[i] += input_.strays[i];
      }
    }
  }
  /// What was sent must not be moved once more by a velocity that is as old as what was sent.
  void end_velocity(const std::vector<std::uint32_t>& sent) const noexcept {
    if (input_.velocity != nullptr) {
      for (const std::uint32_t index : sent) {
        input_.next_velocity[index] = 0.0F;
      }
    }
  }
};

/// Indices, then values, of each rank to each other.
class Gather final : public Sparse {
 public:
  Gather(Communicator& communicator, const CodecSpec& codec, std::size_t count)
      : Sparse(codec),
        count_(count),
        // A threshold may choose everything. Memory that is not touched costs nothing.
        outgoing_(communicator.allocate(Bytes(static_cast<std::int64_t>(
            kAnnouncement +
            kPair * (codec.kind == CodecKind::kThreshold ? count : most_chosen(codec, count)))))) {}

 private:
  [[nodiscard]] bool choose() {
    const CodecInput c{reinterpret_cast<const float*>(input_.data.data),
                       input_.own,
                       input_.next_own,
                       input_.data.count};
    if (codec().kind == CodecKind::kTopK) {
      // Of a share of the bucket its part of them.
      const std::size_t all = codec().chosen_of(count_, input_.step);
      const std::size_t whole = std::max<std::size_t>(count_, 1);
      return selector_.top_k(c, (all * c.count + whole - 1) / whole, chosen_);
    }
    return codec().relative ? selector_.at_least_rms(c, codec().threshold, chosen_)
                            : selector_.at_least(c, static_cast<float>(codec().threshold), chosen_);
  }

  Task run(Exchange& exchange, const Call& call) override {
    if (call.options.algorithm == Algorithm::kHierarchical) {
      co_await over_nodes(exchange);
    } else {
      co_await exchange_among(exchange);
    }
    counters_.not_finite += finite_ ? 0 : 1;
  }

  Task exchange_among(Exchange& exchange) override {
    const std::size_t peers = index_of(exchange.size) - 1;
    std::deque<Incoming> announced;  // by rank; this rank's own is not used
    for (int rank = 0; rank < exchange.size; ++rank) {
      announced.emplace_back(exchange);
      if (rank != exchange.rank) {
        Incoming& one = announced.back();
        exchange.receive(one.message, one.arrived, rank, 0, sizeof(Announcement), &one.readable);
      }
    }
    std::byte* const wire = outgoing_->bytes().data();
    Announcement mine;
    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      begin_velocity();
      mine.finite = choose() ? 1 : 0;
      end_velocity(chosen_.indices);
      mine.elements = static_cast<std::uint32_t>(chosen_.indices.size());
      std::memcpy(wire, &mine, sizeof(mine));
      std::byte* const indices = wire + kAnnouncement;
      const std::size_t bytes = chosen_.indices.size() * sizeof(std::uint32_t);
      if (bytes != 0) {
        std::memcpy(indices, chosen_.indices.data(), bytes);
        std::memcpy(indices + bytes, chosen_.values.data(), bytes);
      }
    }
    co_await exchange.breathe();
    const std::size_t payload = kPair * mine.elements;
    Group sent(exchange.resumer);
    std::deque<Message> sending;
    for (std::size_t i = 0; i < peers; ++i) {
      const int to = (exchange.rank + 1 + static_cast<int>(i)) % exchange.size;
      exchange.send(sending.emplace_back(), sent, to, 0, wire, sizeof(Announcement));
      if (payload != 0) {
        exchange.send(sending.emplace_back(), sent, to, 1, wire + kAnnouncement, payload);
      }
      counters_.sent_bytes += static_cast<std::int64_t>(sizeof(Announcement) + payload);
    }

    std::vector<Announcement> said(index_of(exchange.size), mine);
    std::deque<Incoming> coming;
    for (int rank = 0; rank < exchange.size; ++rank) {
      coming.emplace_back(exchange);
      if (rank == exchange.rank) {
        continue;
      }
      Incoming& one = announced[index_of(rank)];
      co_await one.arrived;
      exchange.advance(one.arrived);
      Announcement& theirs = said[index_of(rank)];
      std::memcpy(&theirs, one.message.data, sizeof(theirs));
      exchange.transport.release(one.message);
      check(theirs, rank);
      if (theirs.elements != 0) {
        Incoming& pairs = coming.back();
        exchange.receive(
            pairs.message, pairs.arrived, rank, 1, kPair * theirs.elements, &pairs.readable);
      }
    }
    {
      const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
      std::memset(input_.data.data, 0, input_.data.size_bytes());
    }
    for (int rank = 0; rank < exchange.size; ++rank) {
      const std::size_t elements = said[index_of(rank)].elements;
      finite_ = finite_ && said[index_of(rank)].finite != 0;
      if (elements == 0) {
        continue;
      }
      Incoming& pairs = coming[index_of(rank)];
      const std::byte* from = wire + kAnnouncement;
      if (rank != exchange.rank) {
        co_await pairs.arrived;
        exchange.advance(pairs.arrived);
        from = pairs.message.data;
      }
      {
        const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
        add(from, elements, rank);
      }
      if (rank != exchange.rank) {
        exchange.transport.release(pairs.message);
      }
      co_await exchange.breathe();
    }
    if (!finite_) {
      std::fill_n(reinterpret_cast<float*>(input_.data.data), input_.data.count, kNotANumber);
    }
    co_await sent;
  }

  void check(const Announcement& theirs, int rank) const {
    if (theirs.elements > input_.data.count) {
      throw Error(ErrorCode::kMismatch,
                  {"a rank chose more elements than the bucket has",
                   "rank " + std::to_string(rank),
                   std::to_string(theirs.elements),
                   "at most " + std::to_string(input_.data.count),
                   "Give every rank the same plan."});
    }
  }

  void add(const std::byte* pairs, std::size_t elements, int rank) const {
    auto* const sum = reinterpret_cast<float*>(input_.data.data);
    const std::byte* const values = pairs + elements * sizeof(std::uint32_t);
    for (std::size_t i = 0; i < elements; ++i) {
      std::uint32_t index = 0;
      float value = 0;
      std::memcpy(&index, pairs + i * sizeof(index), sizeof(index));
      std::memcpy(&value, values + i * sizeof(value), sizeof(value));
      if (index >= input_.data.count) {
        throw Error(ErrorCode::kMismatch,
                    {"a rank sent an element that the bucket does not have",
                     "rank " + std::to_string(rank),
                     std::to_string(index),
                     "below " + std::to_string(input_.data.count),
                     "Give every rank the same plan."});
      }
      sum[index] += value * input_.factor;
    }
  }

  std::size_t count_;
  std::unique_ptr<Arena> outgoing_;
  Selector selector_;
  SparseValues chosen_;
};

/// Values at places that follow from the step: any all-reduce adds them.
class RandomK final : public Sparse {
 public:
  RandomK(Communicator& communicator, const CodecSpec& codec, std::size_t count)
      : Sparse(codec),
        outgoing_(communicator.allocate(
            Bytes(static_cast<std::int64_t>(sizeof(float) * most_chosen(codec, count))))) {}

 private:
  Task run(Exchange& exchange, const Call& call) override {
    auto* const data = reinterpret_cast<float*>(input_.data.data);
    const std::size_t count = input_.data.count;
    auto* const wire = reinterpret_cast<float*>(outgoing_->bytes().data());
    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      begin_velocity();
      draw_indices(count, codec().chosen_of(count, input_.step), input_.key, chosen_.indices);
      const bool finite = selector_.at({data, input_.own, input_.next_own, count}, chosen_);
      end_velocity(chosen_.indices);
      std::copy(chosen_.values.begin(), chosen_.values.end(), wire);
      if (!finite && !chosen_.values.empty()) {
        wire[0] = kNotANumber;  // reaches every rank
      }
    }
    co_await exchange.breathe();
    Call inner = call;
    inner.procedure = nullptr;
    inner.data = {outgoing_->bytes().data(), chosen_.values.size(), DType::kF32, {}};
    counters_.sent_bytes += static_cast<std::int64_t>(
        2 * inner.data.size_bytes() * (index_of(exchange.size) - 1) / index_of(exchange.size));
    co_await carry_out(exchange, inner);
    const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
    finite_ = std::all_of(
        wire, wire + inner.data.count, [](float value) { return std::isfinite(value); });
    counters_.not_finite += finite_ ? 0 : 1;
    std::fill_n(data, count, finite_ ? 0.0F : kNotANumber);
    // Without memory of the others, each value stands for as many as it was drawn from.
    const float weight =
        input_.own != nullptr
            ? 1.0F
            : static_cast<float>(static_cast<double>(count) /
                                 static_cast<double>(std::max<std::size_t>(inner.data.count, 1)));
    for (std::size_t i = 0; finite_ && i < inner.data.count; ++i) {
      data[chosen_.indices[i]] = wire[i] * weight;
    }
  }

  std::unique_ptr<Arena> outgoing_;
  Selector selector_;
  SparseValues chosen_;
};

}  // namespace

std::unique_ptr<CompressedBucket> gather_exchange(Communicator& communicator,
                                                  const CodecSpec& codec,
                                                  std::size_t count) {
  return std::make_unique<Gather>(communicator, codec, count);
}

std::unique_ptr<CompressedBucket> random_k_exchange(Communicator& communicator,
                                                    const CodecSpec& codec,
                                                    std::size_t count) {
  return std::make_unique<RandomK>(communicator, codec, count);
}

}  // namespace stretto::detail
