// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/communicator.hpp"

#include <algorithm>
#include <string>

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

void check(const detail::Call& call, int size) {
  if (call.data.count != 0 && call.data.data == nullptr) {
    refuse(call.kind,
           "the buffer is null",
           "null with " + std::to_string(call.data.count) + " elements",
           "memory");
  }
  if (call.data.device.kind != DeviceKind::kCpu) {
    refuse(call.kind,
           "this backend reaches host memory only",
           "device memory",
           "host memory",
           "Copy it to the host, or use a process group for that device.");
  }
  if (call.op == ReduceOp::kMean && !is_floating(call.data.dtype) &&
      (call.kind == Collective::kAllReduce || call.kind == Collective::kReduceScatter)) {
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
  if (!can_run(call.options.algorithm)) {
    throw Error(ErrorCode::kUnavailable,
                {"this version cannot run that algorithm",
                 std::string(to_string(call.kind)),
                 std::string(to_string(call.options.algorithm)),
                 "auto, direct or ring",
                 {}});
  }
  if (call.peer < -1 || call.peer >= size) {
    refuse(
        call.kind, "no such rank", std::to_string(call.peer), "0 to " + std::to_string(size - 1));
  }
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

Work Communicator::all_reduce(BufferView data, ReduceOp op, CallOptions options) {
  const detail::Call call{Collective::kAllReduce, data, op, -1, options};
  check(call, size_);
  return start(call);
}

Work Communicator::reduce_scatter(BufferView data, ReduceOp op, CallOptions options) {
  const detail::Call call{Collective::kReduceScatter, data, op, -1, options};
  check(call, size_);
  return start(call);
}

Work Communicator::all_gather(BufferView data, CallOptions options) {
  const detail::Call call{Collective::kAllGather, data, ReduceOp::kSum, -1, options};
  check(call, size_);
  return start(call);
}

Work Communicator::broadcast(BufferView data, int root, CallOptions options) {
  const detail::Call call{Collective::kBroadcast, data, ReduceOp::kSum, root, options};
  check(call, size_);
  if (root < 0) {
    refuse(call.kind, "no such rank", std::to_string(root), "0 to " + std::to_string(size_ - 1));
  }
  return start(call);
}

Work Communicator::barrier(CallOptions options) {
  const detail::Call call{Collective::kBarrier, {}, ReduceOp::kSum, -1, options};
  check(call, size_);
  return start(call);
}

Work Communicator::send(BufferView data, int to, CallOptions options) {
  const detail::Call call{Collective::kSend, data, ReduceOp::kSum, to, options};
  check(call, size_);
  if (to < 0 || to == rank_) {
    refuse(call.kind,
           "a rank sends to another rank",
           std::to_string(to),
           "a rank other than " + std::to_string(rank_));
  }
  return start(call);
}

Work Communicator::recv(BufferView data, int from, CallOptions options) {
  const detail::Call call{Collective::kRecv, data, ReduceOp::kSum, from, options};
  check(call, size_);
  if (from < 0 || from == rank_) {
    refuse(call.kind,
           "a rank receives from another rank",
           std::to_string(from),
           "a rank other than " + std::to_string(rank_));
  }
  return start(call);
}

}  // namespace stretto
