// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <new>
#include <vector>

#include "stretto/comm/exchange.hpp"
#include "stretto/compress/codec/block_codec.hpp"
#include "stretto/compress/compressed_bucket.hpp"

/// The exchanges of compress/: coroutines over Transport, as the algorithms of comm/ are. P ranks,
/// n bytes of gradients, w(n) of their encoding, latency a, seconds per byte b.
namespace stretto::detail {

/// Of codecs that send every element.
[[nodiscard]] BlockFormat format_of(const CodecSpec& codec) noexcept;

/// Parts by direct exchange, the sums of parts by direct exchange: 2 a + 2 (P-1)/P w(n) b, and two
/// losses whatever P is. Both are fed back, each where it arose.
[[nodiscard]] std::unique_ptr<CompressedBucket> two_shot_exchange(Communicator& communicator,
                                                                  const CodecSpec& codec,
                                                                  std::size_t count);
/// Everything to everybody: a + (P-1) w b, with w of 8 bytes for each chosen element. Less than
/// dense if less than 1/P of the elements is chosen.
[[nodiscard]] std::unique_ptr<CompressedBucket> gather_exchange(Communicator& communicator,
                                                                const CodecSpec& codec,
                                                                std::size_t count);
/// The chosen values take part in an all-reduce; where they belong, all ranks know.
[[nodiscard]] std::unique_ptr<CompressedBucket> random_k_exchange(Communicator& communicator,
                                                                  const CodecSpec& codec,
                                                                  std::size_t count);

/// Factors of matrices by two dependent all-reduces: 4 a + 2 (P-1)/P w b with `direct`, w of r
/// (rows + columns) floats for each matrix and of all elements that are in none.
[[nodiscard]] std::unique_ptr<CompressedBucket> low_rank_exchange(Communicator& communicator,
                                                                  const CodecSpec& codec,
                                                                  std::size_t count,
                                                                  std::vector<MatrixPart> matrices);

/// Spreads the bits of a number that counts (the finalizer of SplitMix64).
[[nodiscard]] constexpr std::uint64_t mix_key(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Charges the processor time of its life to a counter, and to the emulated machine, which would
/// compute it too.
class CodecTime {
 public:
  CodecTime(Exchange& exchange,
            CodecStage stage,
            CodecCounters& counters,
            std::vector<CodecInterval>& intervals)
      : exchange_(exchange),
        total_(stage == CodecStage::kEncode ? counters.encode : counters.decode),
        intervals_(intervals),
        interval_{stage, clock(), {}},
        begin_(now()) {}
  ~CodecTime() {
    const Nanoseconds spent = now() - begin_;
    total_ += spent;
    exchange_.spend(spent);
    interval_.end = clock();
    note();
  }
  CodecTime(const CodecTime&) = delete;
  CodecTime& operator=(const CodecTime&) = delete;

 private:
  static Nanoseconds now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
  }
  /// That of the operation's WorkTimes.
  [[nodiscard]] Nanoseconds clock() const noexcept {
    return exchange_.now != 0 ? Nanoseconds(exchange_.now)
                              : Nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  }
  void note() noexcept {
    constexpr Nanoseconds kApart = std::chrono::microseconds(10);
    if (!intervals_.empty() && intervals_.back().stage == interval_.stage &&
        interval_.begin - intervals_.back().end <= kApart) {
      intervals_.back().end = interval_.end;
      return;
    }
    try {
      intervals_.push_back(interval_);
    } catch (const std::bad_alloc&) {
      // A record less: nothing is computed from it.
    }
  }
  Exchange& exchange_;
  Nanoseconds& total_;
  std::vector<CodecInterval>& intervals_;
  CodecInterval interval_;
  Nanoseconds begin_;
};

}  // namespace stretto::detail
