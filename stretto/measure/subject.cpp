// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/subject.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "stretto/measure/expectation.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t stride_of(Bytes size) noexcept {
  return (static_cast<std::size_t>(size.count()) + kCacheLine - 1) / kCacheLine * kCacheLine;
}

int buffers_of(Collective collective) noexcept {
  return collective == Collective::kSendRecv || collective == Collective::kAllToAll ? 2 : 1;
}

}  // namespace

Memory::Memory(Communicator& communicator, Buffers kind, Bytes size) {
  const auto count = static_cast<std::size_t>(size.count());
  if (kind == Buffers::kArena) {
    arena_ = communicator.allocate(size);
    bytes_ = arena_->bytes().first(count);
  } else {
    own_.resize(count);
    bytes_ = own_;
  }
}

Bytes Subject::memory_needed(Collective collective, Bytes size, int copies) noexcept {
  return Bytes(static_cast<std::int64_t>(stride_of(size))) * buffers_of(collective) * copies;
}

Subject::Subject(Communicator& communicator,
                 const MeasureOptions& options,
                 const MeasuredRow& row,
                 std::span<std::byte> memory)
    : communicator_(communicator),
      options_(options),
      row_(row),
      memory_(memory),
      stride_(stride_of(row.size)) {
  // Send and receive are two operations.
  works_.reserve(static_cast<std::size_t>(options.at_once) * 2);
}

BufferView Subject::data(int copy) const noexcept {
  const auto index =
      static_cast<std::size_t>(copy) * static_cast<std::size_t>(buffers_of(options_.collective));
  return {memory_.data() + index * stride_, row_.count, row_.dtype, {}};
}

BufferView Subject::received(int copy) const noexcept {
  BufferView view = data(copy);
  view.data += stride_;
  return view;
}

void Subject::clear() noexcept {
  const Bytes needed = memory_needed(options_.collective, row_.size, options_.at_once);
  std::memset(memory_.data(), 0, static_cast<std::size_t>(needed.count()));
}

void Subject::start(int copy, Progress progress) {
  CallOptions call;
  call.algorithm = row_.algorithm;
  call.progress = progress;
  const BufferView view = data(copy);
  switch (options_.collective) {
    case Collective::kAllReduce:
      works_.push_back(communicator_.all_reduce(view, options_.op, call));
      return;
    case Collective::kReduceScatter:
      works_.push_back(communicator_.reduce_scatter(view, options_.op, call));
      return;
    case Collective::kAllGather:
      works_.push_back(communicator_.all_gather(view, call));
      return;
    case Collective::kBroadcast:
      works_.push_back(communicator_.broadcast(view, options_.root, call));
      return;
    case Collective::kReduce:
      works_.push_back(communicator_.reduce(view, options_.root, options_.op, call));
      return;
    case Collective::kAllToAll:
      works_.push_back(communicator_.all_to_all(view, received(copy), call));
      return;
    default: {  // send_recv: measure() has refused all else
      const int ranks = communicator_.size();
      const int rank = communicator_.rank();
      works_.push_back(communicator_.send(view, (rank + 1) % ranks, call));
      works_.push_back(communicator_.recv(received(copy), (rank + ranks - 1) % ranks, call));
    }
  }
}

WorkTimes Subject::finish() {
  WorkTimes all;
  for (const Work& work : works_) {
    work.wait();
    const WorkTimes times = work.times();
    all.launched =
        all.launched == Nanoseconds(0) ? times.launched : std::min(all.launched, times.launched);
    all.started =
        all.started == Nanoseconds(0) ? times.started : std::min(all.started, times.started);
    all.ended = std::max(all.ended, times.ended);
  }
  works_.clear();
  return all;
}

Taken Subject::time(int calls) {
  using Clock = std::chrono::steady_clock;
  const Progress progress = options_.progress;
  communicator_.barrier({.progress = progress}).wait();
  const auto begin = Clock::now();
  WorkTimes times;
  for (int call = 0; call < calls; ++call) {
    for (int copy = 0; copy < options_.at_once; ++copy) {
      start(copy, progress);
    }
    times = finish();
  }
  const double operations = static_cast<double>(calls) * options_.at_once;
  if (progress == Progress::kBackground && calls == 1) {
    const double launched = Seconds(times.launched).count();
    return {launched, launched + Seconds(times.ended - times.launched).count() / operations};
  }
  return {0.0, Seconds(Clock::now() - begin).count() / operations};
}

std::int64_t Subject::check() {
  const int ranks = communicator_.size();
  const int rank = communicator_.rank();
  const BufferView view = data(0);
  const auto part = [&](int r) { return part_of(view.count, ranks, r); };
  switch (options_.collective) {
    case Collective::kAllGather: {
      // What others are to bring is something else before.
      fill_input(view, ranks);
      const Part own = part(rank);
      fill_input(view.slice(own.begin, own.end), rank, own.begin);
      break;
    }
    case Collective::kSendRecv:
    case Collective::kAllToAll:
      fill_input(received(0), ranks);
      fill_input(view, rank);
      break;
    default:
      fill_input(view, rank);
  }
  communicator_.barrier().wait();
  start(0, options_.progress);
  (void)finish();
  std::int64_t wrong = 0;
  switch (options_.collective) {
    case Collective::kAllReduce:
      wrong = count_wrong_sums(view, options_.op, ranks);
      break;
    case Collective::kReduceScatter: {
      const Part own = part(rank);
      wrong = count_wrong_sums(view.slice(own.begin, own.end), options_.op, ranks, own.begin);
      break;
    }
    case Collective::kAllGather:
      for (int r = 0; r < ranks; ++r) {
        const Part theirs = part(r);
        wrong += count_wrong_copies(view.slice(theirs.begin, theirs.end), r, theirs.begin);
      }
      break;
    case Collective::kBroadcast:
      wrong = count_wrong_copies(view, options_.root);
      break;
    case Collective::kReduce:
      wrong = rank == options_.root ? count_wrong_sums(view, options_.op, ranks) : 0;
      break;
    case Collective::kAllToAll: {
      const std::size_t block = view.count / static_cast<std::size_t>(ranks);
      for (std::size_t from = 0; from < static_cast<std::size_t>(ranks); ++from) {
        wrong += count_wrong_copies(received(0).slice(from * block, (from + 1) * block),
                                    static_cast<int>(from),
                                    static_cast<std::size_t>(rank) * block);
      }
      break;
    }
    default:
      wrong = count_wrong_copies(received(0), (rank + ranks - 1) % ranks);
  }
  clear();
  return wrong;
}

}  // namespace stretto::detail
