// SPDX-License-Identifier: Apache-2.0
#pragma once

// One suite for every way a communicator can be had. A test program includes this and instantiates
// `Conformance` with its worlds: ranks as threads or processes, in place, emulated or over MPI.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "stretto/base/half.hpp"
#include "world.hpp"

namespace stretto::testing {
namespace {

/// A way to run a body on every rank of a job.
struct World {
  std::string name;
  int size = 1;
  std::function<void(const RankBody&)> run;
};

/// Without it gtest prints the object's bytes.
inline void PrintTo(  // NOLINT(readability-identifier-naming): gtest's name
    const World& world,
    std::ostream* out) {
  *out << world.name;
}

inline std::string name_of(const ::testing::TestParamInfo<World>& info) {
  return info.param.name;
}

// Memory for the elements, in an arena or private, and access by value whatever the type.
class Buffer {
 public:
  Buffer(Communicator& communicator, std::size_t count, DType dtype, bool arena)
      : dtype_(dtype), count_(count) {
    const std::size_t bytes = count * size_of(dtype);
    if (arena) {
      arena_ = communicator.allocate(Bytes(static_cast<std::int64_t>(bytes)));
      data_ = arena_->bytes().data();
    } else {
      own_.resize(bytes + 8);
      data_ = own_.data();
    }
  }
  [[nodiscard]] BufferView view() const { return {data_, count_, dtype_, {}}; }
  void set(std::size_t i, double value) {
    switch (dtype_) {
      case DType::kF32:
        return put(i, static_cast<float>(value));
      case DType::kF64:
        return put(i, value);
      case DType::kF16:
        return put(i, f32_to_f16(static_cast<float>(value)));
      case DType::kBF16:
        return put(i, f32_to_bf16(static_cast<float>(value)));
      case DType::kI32:
        return put(i, static_cast<std::int32_t>(value));
      case DType::kI64:
        return put(i, static_cast<std::int64_t>(value));
    }
  }
  [[nodiscard]] double get(std::size_t i) const {
    switch (dtype_) {
      case DType::kF32:
        return static_cast<double>(take<float>(i));
      case DType::kF64:
        return take<double>(i);
      case DType::kF16:
        return static_cast<double>(f16_to_f32(take<std::uint16_t>(i)));
      case DType::kBF16:
        return static_cast<double>(bf16_to_f32(take<std::uint16_t>(i)));
      case DType::kI32:
        return take<std::int32_t>(i);
      case DType::kI64:
        return static_cast<double>(take<std::int64_t>(i));
    }
    return 0;
  }

 private:
  template <typename T>
  void put(std::size_t i, T value) {
    std::memcpy(data_ + i * sizeof(T), &value, sizeof(T));
  }
  template <typename T>
  [[nodiscard]] T take(std::size_t i) const {
    T value;
    std::memcpy(&value, data_ + i * sizeof(T), sizeof(T));
    return value;
  }
  DType dtype_;
  std::size_t count_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::byte> own_;
  std::byte* data_ = nullptr;
};

// Small whole numbers: exact in every type under every order of addition.
inline double value_at(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 3) % 8);
}

inline double combined(ReduceOp op, int size, std::size_t i) {
  double result = value_at(0, i);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value_at(rank, i);
    result = op == ReduceOp::kMin   ? std::min(result, next)
             : op == ReduceOp::kMax ? std::max(result, next)
                                    : result + next;
  }
  return result;
}

class Conformance : public ::testing::TestWithParam<World> {
 protected:
  [[nodiscard]] static int size() { return GetParam().size; }
  static void run(const RankBody& body) { GetParam().run(body); }
};

TEST_P(Conformance, AllReduceOfEveryTypeOpAlgorithmSizeAndMemory) {
  run([&](Communicator& communicator) {
    const auto check =
        [&](DType dtype, ReduceOp op, Algorithm algorithm, std::size_t count, bool arena) {
          Buffer buffer(communicator, count, dtype, arena);
          for (std::size_t i = 0; i < count; ++i) {
            buffer.set(i, value_at(communicator.rank(), i));
          }
          communicator
              .all_reduce(buffer.view(),
                          op,
                          {.algorithm = algorithm,
                           .progress = arena ? Progress::kCaller : Progress::kBackground})
              .wait();
          for (std::size_t i = 0; i < count; ++i) {
            double expected = combined(op, communicator.size(), i);
            if (op == ReduceOp::kMean) {
              expected /= communicator.size();
            }
            const double tolerance =
                op == ReduceOp::kMean ? (size_of(dtype) == 2 ? 0.02 : 1e-6) : 0.0;
            ASSERT_NEAR(buffer.get(i), expected, tolerance)
                << to_string(dtype) << " " << to_string(op) << " " << to_string(algorithm)
                << " count " << count << (arena ? " arena" : " private") << " element " << i;
          }
        };
    for (const Algorithm algorithm : runnable_algorithms(Collective::kAllReduce)) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op :
             {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
          if (op == ReduceOp::kMean && !is_floating(dtype)) {
            EXPECT_EQ(code_of([&] {
                        (void)communicator.all_reduce({nullptr, 0, dtype, {}}, op);
                      }),
                      ErrorCode::kInvalidArgument);
            continue;
          }
          for (const bool arena : {true, false}) {
            check(dtype, op, algorithm, arena ? 5 : 1000, arena);
            check(dtype, op, algorithm, arena ? 5003 : 17, arena);
          }
        }
      }
      for (const std::size_t count : {0UL, 1UL, 333UL, 70'001UL}) {
        for (const bool arena : {true, false}) {
          check(DType::kF32, ReduceOp::kSum, algorithm, count, arena);
        }
      }
      // Private memory goes through a stage, two pieces at a time: here one lane has two.
      check(DType::kI32, ReduceOp::kMax, algorithm, 280'001, false);
    }
  });
}

TEST_P(Conformance, EveryAlgorithmGivesTheSameBitsOnEveryRankAndTwice) {
  constexpr std::size_t kCount = 30'011;
  run([&](Communicator& communicator) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const Algorithm algorithm : runnable_algorithms(Collective::kAllReduce)) {
        std::uint64_t first = 0;
        for (int round = 0; round < 2; ++round) {
          Buffer buffer(communicator, kCount, dtype, true);
          std::mt19937 generator(static_cast<unsigned>(communicator.rank()) + 1);
          std::normal_distribution<double> normal;
          for (std::size_t i = 0; i < kCount; ++i) {
            buffer.set(i, normal(generator));
          }
          communicator.all_reduce(buffer.view(), ReduceOp::kMean, {.algorithm = algorithm}).wait();
          std::uint64_t bits = 0;
          for (std::size_t i = 0; i < kCount; ++i) {
            std::uint64_t element = 0;
            const double value = buffer.get(i);
            std::memcpy(&element, &value, sizeof(element));
            bits = bits * 31 + element;
          }
          if (round == 0) {
            first = bits;
          }
          EXPECT_EQ(bits, first) << to_string(algorithm);
          auto highest = static_cast<std::int64_t>(bits >> 1U);
          std::int64_t lowest = highest;
          communicator.all_reduce(view(std::span(&highest, 1)), ReduceOp::kMax).wait();
          communicator.all_reduce(view(std::span(&lowest, 1)), ReduceOp::kMin).wait();
          EXPECT_EQ(highest, lowest) << to_string(algorithm) << " " << to_string(dtype);
        }
      }
    }
  });
}

TEST_P(Conformance, ParameterServersOfEveryNumber) {
  run([&](Communicator& communicator) {
    for (int servers = 1; servers <= communicator.size(); ++servers) {
      for (const std::size_t count : {1UL, 20UL, 3001UL}) {
        Buffer buffer(communicator, count, DType::kF32, true);
        for (std::size_t i = 0; i < count; ++i) {
          buffer.set(i, value_at(communicator.rank(), i));
        }
        communicator
            .all_reduce(buffer.view(),
                        ReduceOp::kSum,
                        {.algorithm = Algorithm::kParameterServer, .servers = servers})
            .wait();
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(buffer.get(i), combined(ReduceOp::kSum, communicator.size(), i))
              << servers << " servers, count " << count;
        }
      }
    }
    EXPECT_EQ(code_of([&] {
                (void)communicator.all_reduce(
                    {}, ReduceOp::kSum, {.algorithm = Algorithm::kParameterServer, .servers = 0});
              }),
              ErrorCode::kInvalidArgument);
  });
}

TEST_P(Conformance, ReduceToEveryRootByEveryAlgorithm) {
  run([&](Communicator& communicator) {
    for (const Algorithm algorithm : runnable_algorithms(Collective::kReduce)) {
      for (int root = 0; root < communicator.size(); ++root) {
        for (const std::size_t count : {0UL, 1UL, 40UL, 2999UL}) {
          for (const bool arena : {true, false}) {
            Buffer buffer(communicator, count, DType::kF64, arena);
            for (std::size_t i = 0; i < count; ++i) {
              buffer.set(i, value_at(communicator.rank(), i));
            }
            communicator.reduce(buffer.view(), root, ReduceOp::kMean, {.algorithm = algorithm})
                .wait();
            for (std::size_t i = 0; communicator.rank() == root && i < count; ++i) {
              ASSERT_NEAR(buffer.get(i),
                          combined(ReduceOp::kSum, communicator.size(), i) / communicator.size(),
                          1e-12)
                  << to_string(algorithm) << " root " << root << " count " << count;
            }
          }
        }
      }
    }
  });
}

TEST_P(Conformance, AllToAllByEveryAlgorithm) {
  run([&](Communicator& communicator) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const auto mine = static_cast<std::size_t>(communicator.rank());
    for (const Algorithm algorithm : runnable_algorithms(Collective::kAllToAll)) {
      for (const std::size_t block : {0UL, 1UL, 50UL, 3000UL}) {
        for (const bool arena : {true, false}) {
          Buffer out(communicator, block * ranks, DType::kI32, arena);
          std::vector<std::int32_t> in(block * ranks, -1);
          for (std::size_t i = 0; i < block * ranks; ++i) {
            const std::size_t to = i / std::max<std::size_t>(block, 1);
            out.set(i, static_cast<double>(mine * 1000 + to * 10 + i % 7));
          }
          communicator.all_to_all(out.view(), view(std::span(in)), {.algorithm = algorithm}).wait();
          for (std::size_t i = 0; i < in.size(); ++i) {
            const std::size_t in_sender = mine * block + i % block;
            ASSERT_EQ(static_cast<std::size_t>(in[i]), i / block * 1000 + mine * 10 + in_sender % 7)
                << to_string(algorithm) << " block " << block << " element " << i;
          }
        }
      }
    }
  });
}

TEST_P(Conformance, ATableSaysWhatAutoIs) {
  run([&](Communicator& communicator) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    communicator.use({{{Collective::kAllReduce, Bytes(100), Algorithm::kRecursiveDoubling, {}},
                       {Collective::kAllReduce, Bytes(1 << 30), Algorithm::kHalvingDoubling, {}},
                       {Collective::kAllToAll, Bytes(1 << 30), Algorithm::kBruck, {}},
                       {Collective::kBroadcast, Bytes(1), Algorithm::kInSwitch, {}}}});
    for (const std::size_t count : {10UL, 5000UL}) {
      std::vector<float> values(count, 1.0F);
      communicator.all_reduce(view(std::span(values))).wait();
      EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<float>(ranks)),
                static_cast<std::ptrdiff_t>(count));
    }
    // Blocks of unequal length never go by Bruck's algorithm.
    std::vector<std::size_t> counts(ranks, 3);
    counts[0] = 1000;
    const std::vector<std::size_t> mine(ranks, communicator.rank() == 0 ? 1000 : 3);
    std::vector<float> out(1000 + 3 * (ranks - 1), static_cast<float>(communicator.rank()));
    std::vector<float> in(mine[0] * ranks, -1.0F);
    communicator.all_to_all_v(view(std::span(out)), counts, view(std::span(in)), mine).wait();
    for (std::size_t i = 0; i < in.size(); ++i) {
      const std::size_t from = i / mine[0];
      ASSERT_EQ(in[i], static_cast<float>(from));
    }
    // What the table says is what runs: this one cannot.
    EXPECT_EQ(code_of([&] { (void)communicator.broadcast(view(std::span(out)), 0); }),
              ErrorCode::kUnavailable);
    communicator.use({});
    communicator.broadcast(view(std::span(out)), 0).wait();
  });
}

TEST_P(Conformance, AllToAllChecksBothBuffers) {
  run([&](Communicator& communicator) {
    const auto count = static_cast<std::size_t>(communicator.size());
    std::vector<float> out(count);
    const BufferView data = view(std::span(out));
    for (const BufferView& in : {BufferView{nullptr, count, DType::kF32, {}},
                                 BufferView{data.data, count, DType::kF32, {DeviceKind::kCuda, 0}},
                                 data}) {
      EXPECT_EQ(code_of([&] { (void)communicator.all_to_all(data, in); }),
                ErrorCode::kInvalidArgument);
    }
  });
}

TEST_P(Conformance, AllToAllOfUnequalBlocks) {
  run([&](Communicator& communicator) {
    const int ranks = communicator.size();
    // Some blocks are empty, some larger than what is copied at once; a rank may send nothing.
    const auto length = [](int from, int to) {
      return from == 1 ? std::size_t{0} : static_cast<std::size_t>((from * 7 + to * 3) % 5) * 700;
    };
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kPairwise}) {
      for (const bool arena : {true, false}) {
        std::vector<std::size_t> out_counts;
        std::vector<std::size_t> in_counts;
        for (int r = 0; r < ranks; ++r) {
          out_counts.push_back(length(communicator.rank(), r));
          in_counts.push_back(length(r, communicator.rank()));
        }
        const std::size_t sent = std::accumulate(out_counts.begin(), out_counts.end(), 0UL);
        std::vector<float> in(std::accumulate(in_counts.begin(), in_counts.end(), 0UL), -1.0F);
        Buffer out(communicator, sent, DType::kF32, arena);
        for (std::size_t i = 0; i < sent; ++i) {
          out.set(i, communicator.rank());
        }
        communicator
            .all_to_all_v(
                out.view(), out_counts, view(std::span(in)), in_counts, {.algorithm = algorithm})
            .wait();
        std::size_t at = 0;
        for (int r = 0; r < ranks; ++r) {
          for (std::size_t i = 0; i < in_counts[static_cast<std::size_t>(r)]; ++i) {
            ASSERT_EQ(in[at++], static_cast<float>(r)) << to_string(algorithm);
          }
        }
      }
    }
  });
}

TEST_P(Conformance, LargePrivateAndArenaBuffersGiveTheSameBitsInRankOrder) {
  constexpr std::size_t kCount = 400'001;  // more than a stage of 1 MiB
  run([&](Communicator& communicator) {
    const auto input = [](int rank) {
      std::minstd_rand generator(static_cast<unsigned>(rank) + 1);
      std::vector<float> values(kCount);
      for (float& value : values) {
        value = static_cast<float>(generator()) * 1e-9F - 1;
      }
      return values;
    };
    std::vector<float> expected = input(0);
    for (int rank = 1; rank < communicator.size(); ++rank) {
      const std::vector<float> next = input(rank);
      for (std::size_t i = 0; i < kCount; ++i) {
        expected[i] += next[i];
      }
    }
    std::vector<float> mine = input(communicator.rank());
    const auto arena = communicator.allocate(Bytes(kCount * sizeof(float)));
    std::memcpy(arena->bytes().data(), mine.data(), kCount * sizeof(float));
    communicator.all_reduce({arena->bytes().data(), kCount, DType::kF32, {}}, ReduceOp::kSum)
        .wait();
    const std::span<std::byte> bits = std::as_writable_bytes(std::span(expected));
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), arena->bytes().begin()));
    communicator.all_reduce(view(std::span(mine)), ReduceOp::kSum).wait();
    const std::span<std::byte> found = std::as_writable_bytes(std::span(mine));
    EXPECT_TRUE(std::equal(bits.begin(), bits.end(), found.begin()));
  });
}

TEST_P(Conformance, ReduceScatterThenAllGatherIsAllReduce) {
  const std::vector<std::pair<Algorithm, Algorithm>> pairs = {
      {Algorithm::kDirect, Algorithm::kDirect},
      {Algorithm::kRing, Algorithm::kRing},
      {Algorithm::kHalvingDoubling, Algorithm::kHalvingDoubling},
      {Algorithm::kHalvingDoubling, Algorithm::kRecursiveDoubling},
      {Algorithm::kRing, Algorithm::kBruck}};
  run([&](Communicator& communicator) {
    for (const auto& [scatter, gather] : pairs) {
      for (const std::size_t count : {1UL, 31UL, 100UL, 4000UL, 150'011UL}) {
        for (const bool arena : {true, false}) {
          Buffer buffer(communicator, count, DType::kF32, arena);
          for (std::size_t i = 0; i < count; ++i) {
            buffer.set(i, value_at(communicator.rank(), i));
          }
          communicator.reduce_scatter(buffer.view(), ReduceOp::kSum, {.algorithm = scatter}).wait();
          const Part mine = part_of(count, communicator.size(), communicator.rank());
          for (std::size_t i = mine.begin; i < mine.end; ++i) {
            ASSERT_EQ(buffer.get(i), combined(ReduceOp::kSum, communicator.size(), i))
                << to_string(scatter) << ", " << to_string(gather) << " count " << count;
          }
          communicator.all_gather(buffer.view(), {.algorithm = gather}).wait();
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_EQ(buffer.get(i), combined(ReduceOp::kSum, communicator.size(), i))
                << to_string(scatter) << ", " << to_string(gather) << " count " << count;
          }
        }
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRootByEveryAlgorithm) {
  run([&](Communicator& communicator) {
    for (const Algorithm algorithm : runnable_algorithms(Collective::kBroadcast)) {
      for (int root = 0; root < communicator.size(); ++root) {
        for (const std::size_t count : {0UL, 3UL, 3000UL, 40'000UL}) {
          std::vector<std::int64_t> values(count, communicator.rank() == root ? root + 1 : -1);
          communicator.broadcast(view(std::span(values)), root, {.algorithm = algorithm}).wait();
          EXPECT_EQ(std::count(values.begin(), values.end(), root + 1),
                    static_cast<std::ptrdiff_t>(count))
              << to_string(algorithm) << " root " << root;
        }
      }
    }
  });
}

TEST_P(Conformance, PairsExchangeInBothDirectionsAtOnce) {
  if (size() == 1) {
    return;  // nobody to pair with
  }
  run([&](Communicator& communicator) {
    const int next = (communicator.rank() + 1) % communicator.size();
    const int previous = (communicator.rank() + communicator.size() - 1) % communicator.size();
    for (const std::size_t count : {1UL, 2000UL, 300'000UL}) {
      std::vector<std::int32_t> out(count, communicator.rank());
      std::vector<std::int32_t> in(count, -1);
      std::vector<std::int32_t> out2(count, communicator.rank() + 100);
      std::vector<std::int32_t> in2(count, -1);
      const std::array<Work, 2> sends = {communicator.send(view(std::span(out)), next),
                                         communicator.send(view(std::span(out2)), next)};
      const std::array<Work, 2> receives = {communicator.recv(view(std::span(in)), previous),
                                            communicator.recv(view(std::span(in2)), previous)};
      for (const Work& work : {sends[0], sends[1], receives[0], receives[1]}) {
        work.wait();
      }
      EXPECT_EQ(std::count(in.begin(), in.end(), previous), static_cast<std::ptrdiff_t>(count));
      EXPECT_EQ(std::count(in2.begin(), in2.end(), previous + 100),
                static_cast<std::ptrdiff_t>(count));
    }
  });
}

TEST_P(Conformance, ManyInFlightStartedInAnotherOrderOnEveryRank) {
  constexpr std::size_t kSlots = 60;
  constexpr std::size_t kCount = 3000;  // above eager: real lending
  run([&](Communicator& communicator) {
    const auto arena = communicator.allocate(Bytes(kSlots * kCount * 4));
    float* const values = reinterpret_cast<float*>(arena->bytes().data());
    for (unsigned round = 0; round < 3; ++round) {
      for (std::size_t i = 0; i < kSlots * kCount; ++i) {
        values[i] = static_cast<float>(value_at(communicator.rank(), i + round));
      }
      std::vector<std::uint32_t> order(kSlots);
      std::iota(order.begin(), order.end(), 0U);
      std::shuffle(order.begin(),
                   order.end(),
                   std::mt19937(static_cast<unsigned>(communicator.rank()) * 10 + round));
      std::vector<Work> works;
      for (const std::uint32_t slot : order) {
        CallOptions call{.slot = slot, .priority = static_cast<int>(slot % 5)};
        if (round == 1) {
          call.stream = 0;  // one after the other, and still no rank may block another
        }
        works.push_back(communicator.all_reduce(
            view(std::span(values + slot * kCount, kCount)), ReduceOp::kSum, call));
      }
      for (const Work& work : works) {
        work.wait();
      }
      for (std::size_t i = 0; i < kSlots * kCount; ++i) {
        ASSERT_EQ(values[i],
                  static_cast<float>(combined(ReduceOp::kSum, communicator.size(), i + round)));
      }
      communicator.barrier().wait();
    }
  });
}

TEST_P(Conformance, StreamsNeverBlockRanksWithDifferentOrders) {
  run([&](Communicator& communicator) {
    const int ranks = communicator.size();
    for (const Algorithm algorithm : runnable_algorithms(Collective::kAllReduce)) {
      // Too small for every rank to have a part, and large enough.
      for (const std::size_t count : {16UL, 2000UL}) {
        const auto arena = communicator.allocate(
            Bytes(static_cast<std::int64_t>(static_cast<std::size_t>(ranks) * count * 4)));
        std::vector<Work> works;
        for (int k = 0; k < ranks; ++k) {
          const auto slot = static_cast<std::size_t>((k + communicator.rank()) % ranks);
          float* const data = reinterpret_cast<float*>(arena->bytes().data()) + slot * count;
          std::fill_n(data, count, 1.0F);
          works.push_back(communicator.all_reduce(
              view(std::span(data, count)),
              ReduceOp::kSum,
              {.slot = static_cast<std::uint32_t>(slot), .algorithm = algorithm, .stream = 0}));
        }
        for (const Work& work : works) {
          work.wait();
        }
        EXPECT_EQ(as_span<float>({arena->bytes().data(), count, DType::kF32, {}})[count - 1],
                  static_cast<float>(ranks));
      }
    }
    // Broadcasts from different roots, every rank beginning with its own.
    std::vector<std::vector<std::int32_t>> values(
        static_cast<std::size_t>(ranks), std::vector<std::int32_t>(3000, communicator.rank()));
    std::vector<Work> works;
    for (int k = 0; k < ranks; ++k) {
      const int root = (k + communicator.rank()) % ranks;
      works.push_back(
          communicator.broadcast(view(std::span(values[static_cast<std::size_t>(root)])),
                                 root,
                                 {.slot = static_cast<std::uint32_t>(root), .stream = 0}));
    }
    for (int k = 0; k < ranks; ++k) {
      const int root = (k + communicator.rank()) % ranks;
      works[static_cast<std::size_t>(k)].wait();
      EXPECT_EQ(values[static_cast<std::size_t>(root)][2999], root);
    }
  });
}

TEST_P(Conformance, WhatIsSentArrivesThoughTheChannelIsFullAndTheSenderIdle) {
  if (size() == 1) {
    return;
  }
  run([&](Communicator& communicator) {
    constexpr int kMessages = 700;  // more than a channel holds, small and larger
    std::vector<std::vector<std::int64_t>> values(kMessages);
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      values[static_cast<std::size_t>(i)].assign(i % 2 == 0 ? 1 : 500,
                                                 communicator.rank() == 0 ? i : -1);
    }
    if (communicator.rank() != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    works.reserve(values.size());
    for (auto& each : values) {
      works.push_back(communicator.broadcast(view(std::span(each)), 0));
    }
    for (int i = 0; i < kMessages; ++i) {
      works[static_cast<std::size_t>(i)].wait();
      ASSERT_EQ(values[static_cast<std::size_t>(i)].back(), i);
    }
  });  // and rank 0 may leave as soon as its own part is over
}

TEST_P(Conformance, OneSlotUsedAgainAndAgainMatchesInOrder) {
  run([&](Communicator& communicator) {
    const auto arena = communicator.allocate(Bytes(160'000));
    double* const values = reinterpret_cast<double*>(arena->bytes().data());
    std::vector<Work> works;
    for (std::size_t i = 0; i < 20; ++i) {
      std::fill(values + i * 1000, values + (i + 1) * 1000, static_cast<double>(i));
      works.push_back(communicator.all_reduce(
          view(std::span(values + i * 1000, 1000)), ReduceOp::kSum, {.slot = 3}));
    }
    for (std::size_t i = 0; i < 20; ++i) {
      works[i].wait();
      EXPECT_EQ(values[i * 1000 + 999], static_cast<double>(i) * communicator.size());
    }
  });
}

TEST_P(Conformance, BarrierHoldsBackUntilTheLastRank) {
  run([&](Communicator& communicator) {
    // Rank r may leave barrier k only after all entered it: a counter broadcast by the last one in.
    for (int round = 0; round < 20; ++round) {
      std::int64_t entered = round;
      communicator.barrier().wait();
      communicator.all_reduce(view(std::span(&entered, 1)), ReduceOp::kMin).wait();
      EXPECT_EQ(entered, round);
    }
  });
}

}  // namespace
}  // namespace stretto::testing
