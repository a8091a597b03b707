// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/communicator.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "stretto/base/text.hpp"

namespace stretto {
namespace {

[[noreturn]] void refuse(Collective kind,
                         const std::string& message,
                         std::string found,
                         std::string expected,
                         std::string help = {}) {
  throw Error(ErrorCode::kInvalidArgument,
              {message,
               std::string(to_string(kind)),
               std::move(found),
               std::move(expected),
               std::move(help)});
}

void check_memory(Collective kind, const BufferView& data) {
  if (data.count != 0 && data.data == nullptr) {
    refuse(kind,
           "the buffer is null",
           "null with " + std::to_string(data.count) + " elements",
           "memory");
  }
  if (data.device.kind != DeviceKind::kCpu) {
    refuse(kind,
           "this backend reaches host memory only",
           "device memory",
           "host memory",
           "Copy it to the host, or use a process group for that device.");
  }
}

void check(const detail::Call& call, int size) {
  check_memory(call.kind, call.data);
  if (call.op == ReduceOp::kMean && !is_floating(call.data.dtype) &&
      (call.kind == Collective::kAllReduce || call.kind == Collective::kReduceScatter ||
       call.kind == Collective::kReduce)) {
    refuse(call.kind,
           "the mean of integers is not defined",
           std::string(to_string(call.data.dtype)),
           "a floating type",
           "Use kSum and divide.");
  }
  if (call.options.slot && *call.options.slot > kMaxSlot) {
    refuse(call.kind,
           "slot out of range",
           std::to_string(*call.options.slot),
           "at most " + std::to_string(kMaxSlot));
  }
  if (!can_run(call.kind, call.options.algorithm)) {
    std::vector<std::string_view> names = {to_string(Algorithm::kAuto)};
    for (const Algorithm algorithm : runnable_algorithms(call.kind)) {
      names.push_back(to_string(algorithm));
    }
    throw Error(ErrorCode::kUnavailable,
                {"that algorithm does not run this collective",
                 std::string(to_string(call.kind)),
                 std::string(to_string(call.options.algorithm)),
                 join(names),
                 {}});
  }
  if (call.options.algorithm == Algorithm::kParameterServer &&
      (call.options.servers < 1 || call.options.servers > size)) {
    refuse(call.kind,
           "no such number of parameter servers",
           std::to_string(call.options.servers),
           "1 to " + std::to_string(size));
  }
  if (call.peer < -1 || call.peer >= size) {
    refuse(
        call.kind, "no such rank", std::to_string(call.peer), "0 to " + std::to_string(size - 1));
  }
}

void check_root(const detail::Call& call, int size) {
  if (call.peer < 0) {
    refuse(
        call.kind, "no such rank", std::to_string(call.peer), "0 to " + std::to_string(size - 1));
  }
}

std::vector<BufferView> blocks_of(const BufferView& data,
                                  std::span<const std::size_t> counts,
                                  int size) {
  std::vector<BufferView> blocks;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    if (count <= data.count - at) {
      blocks.push_back(data.slice(at, at + count));
      at += count;
    }
  }
  if (counts.size() != static_cast<std::size_t>(size) || blocks.size() != counts.size() ||
      at != data.count) {
    refuse(Collective::kAllToAll,
           "the blocks are not the buffer",
           std::to_string(counts.size()) + " blocks of " +
               std::to_string(std::accumulate(counts.begin(), counts.end(), std::size_t{0})) +
               " elements",
           std::to_string(size) + " of " + std::to_string(data.count));
  }
  return blocks;
}

}  // namespace

Part part_of(std::size_t count, int ranks, int rank) noexcept {
  constexpr std::size_t kBlock = 16;
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  const auto parts = static_cast<std::size_t>(ranks);
  const auto index = static_cast<std::size_t>(rank);
  // The first `blocks % parts` ranks get one block more, so no part is longer than the first.
  const std::size_t each = blocks / parts;
  const std::size_t extra = blocks % parts;
  const std::size_t begin = index * each + std::min(index, extra);
  const std::size_t end = begin + each + (index < extra ? 1 : 0);
  return {std::min(begin * kBlock, count), std::min(end * kBlock, count)};
}

bool can_run(Collective collective, Algorithm algorithm) noexcept {
  if (algorithm == Algorithm::kAuto || algorithm == Algorithm::kDirect) {
    return true;
  }
  switch (collective) {
    case Collective::kAllReduce:
      switch (algorithm) {
        case Algorithm::kInSwitch:
        case Algorithm::kPairwise:
        case Algorithm::kBruck:
          return false;
        default:
          return true;
      }
    case Collective::kReduceScatter:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kHalvingDoubling;
    case Collective::kAllGather:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kRecursiveDoubling ||
             algorithm == Algorithm::kHalvingDoubling || algorithm == Algorithm::kBruck;
    case Collective::kBroadcast:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kBinomialTree ||
             algorithm == Algorithm::kPipelinedChain || algorithm == Algorithm::kDoubleBinaryTree;
    case Collective::kReduce:
      return algorithm == Algorithm::kRing || algorithm == Algorithm::kBinomialTree;
    case Collective::kAllToAll:
      return algorithm == Algorithm::kPairwise || algorithm == Algorithm::kBruck;
    default:
      return false;
  }
}

std::vector<Algorithm> runnable_algorithms(Collective collective) {
  std::vector<Algorithm> algorithms;
  for (int a = 1; a <= static_cast<int>(kLastAlgorithm); ++a) {
    if (can_run(collective, static_cast<Algorithm>(a))) {
      algorithms.push_back(static_cast<Algorithm>(a));
    }
  }
  return algorithms;
}

Work Communicator::check_and_start(detail::Call call) {
  if (call.options.algorithm == Algorithm::kAuto && !table_.rules.empty()) {
    call.options.algorithm =
        table_.choose(call.kind, Bytes(static_cast<std::int64_t>(call.data.size_bytes())));
  }
  check(call, size_);
  return start(call);
}

Work Communicator::all_reduce(BufferView data, ReduceOp op, CallOptions options) {
  return check_and_start({Collective::kAllReduce, data, op, -1, options});
}

Work Communicator::all_reduce_by(detail::Procedure& procedure,
                                 BufferView data,
                                 ReduceOp op,
                                 CallOptions options) {
  if (ordering() == Ordering::kTotal) {
    throw Error(ErrorCode::kUnavailable,
                {"this backend runs its own all_reduce only",
                 std::string(backend()),
                 "a procedure of compress/",
                 "a backend whose messages are addressed: shm or mpi",
                 "Leave the codec out."});
  }
  detail::Call call{Collective::kAllReduce, data, op, -1, options};
  call.procedure = &procedure;
  return check_and_start(std::move(call));
}

Work Communicator::reduce_scatter(BufferView data, ReduceOp op, CallOptions options) {
  return check_and_start({Collective::kReduceScatter, data, op, -1, options});
}

Work Communicator::all_gather(BufferView data, CallOptions options) {
  return check_and_start({Collective::kAllGather, data, ReduceOp::kSum, -1, options});
}

Work Communicator::broadcast(BufferView data, int root, CallOptions options) {
  detail::Call call{Collective::kBroadcast, data, ReduceOp::kSum, root, options};
  check_root(call, size_);
  return check_and_start(std::move(call));
}

Work Communicator::reduce(BufferView data, int root, ReduceOp op, CallOptions options) {
  detail::Call call{Collective::kReduce, data, op, root, options};
  check_root(call, size_);
  return check_and_start(std::move(call));
}

Work Communicator::all_to_all(BufferView out, BufferView in, CallOptions options) {
  const auto ranks = static_cast<std::size_t>(size_);
  if (out.count % ranks != 0) {
    refuse(Collective::kAllToAll,
           "the buffer cannot be cut into equal blocks",
           std::to_string(out.count) + " elements",
           "a multiple of " + std::to_string(size_),
           "Use all_to_all_v for blocks of unequal length.");
  }
  const std::vector<std::size_t> counts(ranks, out.count / ranks);
  return all_to_all_of_blocks(out, counts, in, counts, options);
}

Work Communicator::all_to_all_v(BufferView out,
                                std::span<const std::size_t> out_counts,
                                BufferView in,
                                std::span<const std::size_t> in_counts,
                                CallOptions options) {
  if (options.algorithm == Algorithm::kBruck) {
    throw Error(ErrorCode::kUnavailable,
                {"that algorithm needs blocks of equal length",
                 "all_to_all_v",
                 "bruck",
                 "auto, direct or pairwise",
                 "Use all_to_all, where they are."});
  }
  if (options.algorithm == Algorithm::kAuto) {
    // A table chooses by size, which differs from rank to rank here, and may choose kBruck.
    options.algorithm = Algorithm::kDirect;
  }
  return all_to_all_of_blocks(out, out_counts, in, in_counts, options);
}

Work Communicator::all_to_all_of_blocks(BufferView out,
                                        std::span<const std::size_t> out_counts,
                                        BufferView in,
                                        std::span<const std::size_t> in_counts,
                                        CallOptions options) {
  if (out.dtype != in.dtype) {
    refuse(Collective::kAllToAll,
           "what goes out and what comes in differ in type",
           std::string(to_string(in.dtype)),
           std::string(to_string(out.dtype)));
  }
  check_memory(Collective::kAllToAll, in);
  const auto overlaps = [](const BufferView& a, const BufferView& b) {
    return a.count != 0 && b.count != 0 && std::less<>()(a.data, b.data + b.size_bytes()) &&
           std::less<>()(b.data, a.data + a.size_bytes());
  };
  if (overlaps(out, in)) {
    refuse(Collective::kAllToAll,
           "what goes out and what comes in lie on each other",
           "overlapping memory",
           "two buffers");
  }
  detail::Call call{Collective::kAllToAll, out, ReduceOp::kSum, -1, options};
  call.out = blocks_of(out, out_counts, size_);
  call.in = blocks_of(in, in_counts, size_);
  const auto mine = static_cast<std::size_t>(rank_);
  if (out_counts[mine] != in_counts[mine]) {
    refuse(call.kind,
           "a rank's block for itself has two lengths",
           std::to_string(in_counts[mine]) + " elements come in",
           std::to_string(out_counts[mine]));
  }
  return check_and_start(std::move(call));
}

Work Communicator::barrier(CallOptions options) {
  return check_and_start({Collective::kBarrier, {}, ReduceOp::kSum, -1, options});
}

Work Communicator::send(BufferView data, int to, CallOptions options) {
  detail::Call call{Collective::kSend, data, ReduceOp::kSum, to, options};
  if (to < 0 || to == rank_) {
    refuse(call.kind,
           "a rank sends to another rank",
           std::to_string(to),
           "a rank other than " + std::to_string(rank_));
  }
  return check_and_start(std::move(call));
}

Work Communicator::recv(BufferView data, int from, CallOptions options) {
  detail::Call call{Collective::kRecv, data, ReduceOp::kSum, from, options};
  if (from < 0 || from == rank_) {
    refuse(call.kind,
           "a rank receives from another rank",
           std::to_string(from),
           "a rank other than " + std::to_string(rank_));
  }
  return check_and_start(std::move(call));
}

}  // namespace stretto
