// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/compress/exchanges.hpp"

namespace stretto::detail {
namespace {

// Encoded, sent and decoded at a time: 256 KiB of fp32, which stay in the second cache between the
// steps. A multiple of every block, so that a part's chunks are encoded as the part would be.
constexpr std::size_t kChunk = std::size_t{64} << 10;

// Of all formats; parts are multiples of 16 elements, so more than their length they never differ.
constexpr std::size_t kLargestBlock = 4096;

std::size_t index_of(int n) {
  return static_cast<std::size_t>(n);
}

class TwoShot final : public CompressedBucket {
 public:
  TwoShot(Communicator& communicator, const CodecSpec& codec, std::size_t count)
      : CompressedBucket(codec), format_(format_of(codec)) {
    // Enough for every way to cut the bucket: among all ranks, or one node's share of it among
    // nodes. A part may begin a block and a cache line of its own.
    const std::size_t ranks = index_of(communicator.size());
    const std::size_t slack = encoded_bytes(format_, kLargestBlock) + 64;
    const std::size_t wire = encoded_bytes(format_, count) + ranks * slack;
    const std::size_t own = encoded_bytes(format_, count / ranks) + slack;
    outgoing_ = communicator.allocate(Bytes(static_cast<std::int64_t>(wire + own)));
    received_ = std::make_unique_for_overwrite<std::byte[]>(  // NOLINT(modernize-avoid-c-arrays):
                                                              // not zeroed
        ranks * own + wire);
  }

 private:
  Task run(Exchange& exchange, const Call& call) override {
    switch (call.options.algorithm) {
      case Algorithm::kDirect:
        co_await exchange_among(exchange);
        break;
      case Algorithm::kHierarchical:
        co_await over_nodes(exchange);
        break;
      default:
        co_await additive(exchange, call);
    }
    counters_.not_finite += finite_ ? 0 : 1;
  }

  Task exchange_among(Exchange& exchange) override {
    lay_out(input_.data.count, exchange.size, exchange.rank);
    return two_shot(exchange);
  }

  /// Which part is whose, and where in the wire.
  void lay_out(std::size_t count, int size, int rank) {
    parts_.clear();
    offsets_.clear();
    std::size_t wire = 0;
    std::size_t longest = 0;
    for (int each = 0; each < size; ++each) {
      parts_.push_back(part_of(count, size, each));
      // Every part begins in a cache line of its own.
      offsets_.push_back(wire);
      wire += (encoded_bytes(format_, length(parts_.back())) + 63) / 64 * 64;
      longest = std::max(longest, length(parts_.back()));
    }
    // Sent: all parts as this rank has them, then the sum of its own part. Received where memory is
    // not shared: this rank's part from all, the sums of the others.
    own_sum_ = wire;
    received_sums_ = index_of(size) * encoded_bytes(format_, length(parts_[index_of(rank)]));
    sum_.resize(std::min(longest, kChunk));
  }

  /// Elements of chunk c of a part, and the bytes before it in the part's encoding.
  [[nodiscard]] static Part chunk_of(Part part, std::size_t c) noexcept {
    const std::size_t begin = part.begin + c * kChunk;
    return {begin, std::min(begin + kChunk, part.end)};
  }
  [[nodiscard]] std::size_t bytes_before(std::size_t c) const noexcept {
    return encoded_bytes(format_, c * kChunk);
  }
  [[nodiscard]] static std::size_t chunks_of(Part part) noexcept {
    return (length(part) + kChunk - 1) / kChunk;
  }
  [[nodiscard]] std::byte* outgoing(std::size_t at) const noexcept {
    return outgoing_->bytes().data() + at;
  }
  [[nodiscard]] float* values(std::size_t at) const noexcept {
    return reinterpret_cast<float*>(input_.data.data) + at;
  }
  [[nodiscard]] CodecInput own_of(Part elements) const noexcept {
    return {values(elements.begin),
            input_.own == nullptr ? nullptr : input_.own + elements.begin,
            input_.own == nullptr ? nullptr : input_.next_own + elements.begin,
            length(elements)};
  }

  Task two_shot(Exchange& exchange) {
    const std::size_t peers = index_of(exchange.size) - 1;
    const auto peer_at = [&exchange](std::size_t i) {
      return (exchange.rank + 1 + static_cast<int>(i)) % exchange.size;
    };
    const Part mine = parts_[index_of(exchange.rank)];
    const std::size_t own_chunks = chunks_of(mine);
    const std::size_t own_bytes = encoded_bytes(format_, length(mine));
    std::deque<Incoming> given;  // chunk by chunk, of each from all peers
    for (std::size_t c = 0; c < own_chunks; ++c) {
      for (std::size_t i = 0; i < peers; ++i) {
        const int from = peer_at(i);
        given.emplace_back(exchange);
        exchange.receive(given.back().message,
                         given.back().arrived,
                         from,
                         0,
                         encoded_bytes(format_, length(chunk_of(mine, c))),
                         &given.back().readable,
                         &received_[index_of(from) * own_bytes + bytes_before(c)]);
      }
    }

    // The first shot: a chunk of everybody's part at a time, so that all can begin.
    Group sent(exchange.resumer);
    std::deque<Message> sending;
    std::size_t rounds = 0;
    for (const Part& part : parts_) {
      rounds = std::max(rounds, chunks_of(part));
    }
    for (std::size_t c = 0; c < rounds; ++c) {
      for (std::size_t i = 0; i <= peers; ++i) {
        const int to = peer_at(i);  // this rank itself the last
        const Part elements = chunk_of(parts_[index_of(to)], c);
        if (elements.begin >= elements.end) {
          continue;
        }
        std::byte* const wire = outgoing(offsets_[index_of(to)] + bytes_before(c));
        {
          const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
          (void)encode(format_, own_of(elements), mix_key(input_.key + elements.begin), wire);
        }
        if (to != exchange.rank) {
          send(exchange, sending.emplace_back(), sent, to, 0, wire, length(elements));
        }
        co_await exchange.breathe();
      }
    }

    // What is received as sums, asked for before this rank is busy with its own.
    std::deque<Incoming> sums;
    for (std::size_t c = 0; c < rounds; ++c) {
      for (std::size_t i = 0; i < peers; ++i) {
        const int from = peer_at(i);
        const Part elements = chunk_of(parts_[index_of(from)], c);
        if (elements.begin >= elements.end) {
          continue;
        }
        sums.emplace_back(exchange);
        exchange.receive(sums.back().message,
                         sums.back().arrived,
                         from,
                         1,
                         encoded_bytes(format_, length(elements)),
                         &sums.back().readable,
                         &received_[received_sums_ + offsets_[index_of(from)] + bytes_before(c)]);
      }
    }

    // The second: sums in rank order, encoded once.
    for (std::size_t c = 0; c < own_chunks; ++c) {
      const Part elements = chunk_of(mine, c);
      std::vector<const std::byte*> wires(index_of(exchange.size));
      wires[index_of(exchange.rank)] =
          outgoing(offsets_[index_of(exchange.rank)] + bytes_before(c));
      for (std::size_t i = 0; i < peers; ++i) {
        Incoming& one = given[c * peers + i];
        co_await one.arrived;
        exchange.advance(one.arrived);
        wires[index_of(peer_at(i))] = one.message.data;
      }
      std::byte* const wire = outgoing(own_sum_ + bytes_before(c));
      add_and_encode(exchange, elements, wires, wire);
      for (std::size_t i = 0; i < peers; ++i) {
        exchange.transport.release(given[c * peers + i].message);
        send(exchange, sending.emplace_back(), sent, peer_at(i), 1, wire, length(elements));
      }
      co_await exchange.breathe();
    }

    std::size_t next = 0;
    for (std::size_t c = 0; c < rounds; ++c) {
      for (std::size_t i = 0; i < peers; ++i) {
        const Part elements = chunk_of(parts_[index_of(peer_at(i))], c);
        if (elements.begin >= elements.end) {
          continue;
        }
        Incoming& one = sums[next++];
        co_await one.arrived;
        exchange.advance(one.arrived);
        decode_result(exchange, elements, one.message.data);
        exchange.transport.release(one.message);
        co_await exchange.breathe();
      }
    }
    co_await sent;
  }

  void send(Exchange& exchange,
            Message& message,
            Group& sent,
            int to,
            std::uint32_t phase,
            std::byte* wire,
            std::size_t elements) {
    const std::size_t bytes = encoded_bytes(format_, elements);
    counters_.sent_bytes += static_cast<std::int64_t>(bytes);
    exchange.send(message, sent, to, phase, wire, bytes);
  }

  void add_and_encode(Exchange& exchange,
                      Part elements,
                      const std::vector<const std::byte*>& wires,
                      std::byte* wire) {
    const std::size_t count = length(elements);
    {
      const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
      // Whether it is finite shows in the sum.
      (void)decode(format_, wires[0], 1.0F, sum_.data(), count);
      for (std::size_t rank = 1; rank < wires.size(); ++rank) {
        (void)decode_add(format_, wires[rank], sum_.data(), count);
      }
    }
    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      const bool feedback = input_.of_sums != nullptr;
      (void)encode(format_,
                   {sum_.data(),
                    feedback ? input_.of_sums + elements.begin : nullptr,
                    feedback ? input_.next_of_sums + elements.begin : nullptr,
                    count},
                   mix_key(~input_.key + elements.begin),
                   wire);
    }
    decode_result(exchange, elements, wire);
  }

  void decode_result(Exchange& exchange, Part elements, const std::byte* wire) {
    const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
    const bool finite =
        decode(format_, wire, input_.factor, values(elements.begin), length(elements));
    finite_ = finite_ && finite;
  }

  /// 16-bit floats under another algorithm: that one rounds its sums as it does.
  Task additive(Exchange& exchange, const Call& call) {
    const std::size_t count = input_.data.count;
    {
      const CodecTime time(exchange, CodecStage::kEncode, counters_, intervals_);
      (void)encode(format_, own_of({0, count}), 0, outgoing(0));
    }
    Call inner = call;
    inner.procedure = nullptr;
    inner.data = {
        outgoing(0), count, format_ == BlockFormat::kFp16 ? DType::kF16 : DType::kBF16, {}};
    counters_.sent_bytes += static_cast<std::int64_t>(
        2 * inner.data.size_bytes() * (index_of(exchange.size) - 1) / index_of(exchange.size));
    co_await carry_out(exchange, inner);
    const CodecTime time(exchange, CodecStage::kDecode, counters_, intervals_);
    finite_ = decode(format_, outgoing(0), 1.0F, values(0), count);
  }

  BlockFormat format_;
  std::vector<Part> parts_;
  std::vector<std::size_t> offsets_;  ///< Of each part in the wire.
  std::size_t own_sum_ = 0;
  std::unique_ptr<Arena> outgoing_;
  std::unique_ptr<std::byte[]> received_;  // NOLINT(modernize-avoid-c-arrays): not to be zeroed
  std::size_t received_sums_ = 0;
  std::vector<float> sum_;
};

}  // namespace

BlockFormat format_of(const CodecSpec& codec) noexcept {
  switch (codec.kind) {
    case CodecKind::kFp16:
      return BlockFormat::kFp16;
    case CodecKind::kBf16:
      return BlockFormat::kBf16;
    case CodecKind::kInt4:
      return codec.stochastic ? BlockFormat::kInt4Stochastic : BlockFormat::kInt4;
    case CodecKind::kOneBit:
      return BlockFormat::kOneBit;
    default:
      return codec.stochastic ? BlockFormat::kInt8Stochastic : BlockFormat::kInt8;
  }
}

std::unique_ptr<CompressedBucket> two_shot_exchange(Communicator& communicator,
                                                    const CodecSpec& codec,
                                                    std::size_t count) {
  return std::make_unique<TwoShot>(communicator, codec, count);
}

}  // namespace stretto::detail
