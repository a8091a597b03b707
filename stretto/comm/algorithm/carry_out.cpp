// SPDX-License-Identifier: Apache-2.0
// Which algorithm carries out which call. can_run() in communicator.cpp says the same to users.
#include <algorithm>
#include <memory>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

// Whether all_reduce_small() is the quickest. Measured for two ranks with a core each: equal at 256
// B, 10 % slower than in place at 1 KiB, twice as slow at 4 KiB; but in place costs memory that
// cannot be lent a stage. More ranks were measured on two cores, where the second latency of in
// place is a context switch: 100 us against 150 at 4 KiB. By size alone: all ranks must agree on
// it.
bool is_small(const Exchange& exchange, const BufferView& data) {
  constexpr std::size_t kPairBytes = 1024;
  const std::size_t eager = exchange.transport.eager_bytes();
  return data.size_bytes() <= (exchange.size == 2 ? std::min(kPairBytes, eager) : eager);
}

bool by_default(const Call& call) {
  return call.options.algorithm == Algorithm::kAuto || call.options.algorithm == Algorithm::kDirect;
}

Task all_reduce(Exchange& exchange, const Call& call) {
  const BufferView& data = call.data;
  switch (call.options.algorithm) {
    case Algorithm::kRing:
      return all_reduce_ring(exchange, data, call.op);
    case Algorithm::kRecursiveDoubling:
      return all_reduce_recursive_doubling(exchange, data, call.op);
    case Algorithm::kHalvingDoubling:
      return all_reduce_halving_doubling(exchange, data, call.op);
    case Algorithm::kBinomialTree:
      return all_reduce_binomial(exchange, data, call.op);
    case Algorithm::kPipelinedChain:
      return all_reduce_chain(exchange, data, call.op);
    case Algorithm::kDoubleBinaryTree:
      return all_reduce_double_tree(exchange, data, call.op);
    case Algorithm::kHierarchical:
      return all_reduce_hierarchical(exchange, data, call.op);
    case Algorithm::kHierarchicalPipelined:
      return all_reduce_hierarchical_pipelined(exchange, data, call.op);
    case Algorithm::kLeader:
      return all_reduce_leader(exchange, data, call.op);
    case Algorithm::kParameterServer:
      return all_reduce_parameter_server(exchange, data, call.op, call.options.servers);
    default:
      break;
  }
  if (is_small(exchange, data)) {
    return all_reduce_small(exchange, data, call.op);
  }
  return exchange.transport.in_place()
             ? all_reduce_in_place(exchange, data, call.op)
             : all_reduce_direct(exchange, data, call.op, Parts(exchange, data));
}

Task reduce_scatter(Exchange& exchange, const Call& call) {
  const Parts parts(exchange, call.data);
  switch (call.options.algorithm) {
    case Algorithm::kRing:
      return reduce_scatter_ring(exchange, call.data, call.op, parts);
    case Algorithm::kHalvingDoubling:
      return reduce_scatter_halving(exchange, call.data, call.op);
    default:
      return reduce_scatter_direct(exchange, call.data, call.op, parts);
  }
}

Task all_gather(Exchange& exchange, const Call& call) {
  const Parts parts(exchange, call.data);
  switch (call.options.algorithm) {
    case Algorithm::kRing:
      return all_gather_ring(exchange, call.data, parts);
    case Algorithm::kRecursiveDoubling:
    case Algorithm::kHalvingDoubling:
      return all_gather_doubling(exchange, call.data);
    case Algorithm::kBruck:
      return all_gather_bruck(exchange, call.data);
    default:
      return all_gather_direct(exchange, call.data, parts);
  }
}

Task broadcast(Exchange& exchange, const Call& call) {
  switch (call.options.algorithm) {
    case Algorithm::kRing:
      return broadcast_ring(exchange, call.data, call.peer);
    case Algorithm::kBinomialTree:
      return broadcast_binomial(exchange, call.data, call.peer);
    case Algorithm::kPipelinedChain:
      return broadcast_chain(exchange, call.data, call.peer);
    case Algorithm::kDoubleBinaryTree:
      return broadcast_double_tree(exchange, call.data, call.peer);
    default:
      return broadcast_direct(exchange, call.data, call.peer);
  }
}

Task reduce(Exchange& exchange, const Call& call) {
  switch (call.options.algorithm) {
    case Algorithm::kRing:
      return reduce_ring(exchange, call.data, call.op, call.peer);
    case Algorithm::kBinomialTree:
      return reduce_binomial(exchange, call.data, call.op, call.peer);
    default:
      return reduce_direct(exchange, call.data, call.op, call.peer);
  }
}

Task all_to_all_of(Exchange& exchange, const Call& call, std::span<const BufferView> out) {
  switch (call.options.algorithm) {
    case Algorithm::kPairwise:
      return all_to_all_pairwise(exchange, out, call.in);
    case Algorithm::kBruck:
      return all_to_all_bruck(exchange, out, call.in);
    default:
      return all_to_all_direct(exchange, out, call.in);
  }
}

// What is sent, copied to memory that can be lent.
Task all_to_all_copied(Exchange& exchange, const Call& call) {
  const BufferView& data = call.data;
  const std::unique_ptr<Arena> copy =
      exchange.transport.allocate(Bytes(static_cast<std::int64_t>(data.size_bytes())));
  co_await copy_pieces(exchange, copy->bytes().data(), data.data, data.size_bytes());
  std::vector<BufferView> out = call.out;
  for (BufferView& block : out) {
    block.data = copy->bytes().data() + (block.data - data.data);
  }
  co_await all_to_all_of(exchange, call, out);
}

Task all_to_all(Exchange& exchange, const Call& call) {
  const std::size_t bytes = call.data.size_bytes();
  const bool packs = call.options.algorithm == Algorithm::kBruck;
  if (!packs && bytes > exchange.transport.eager_bytes() &&
      !exchange.transport.can_lend(call.data.data, bytes)) {
    return all_to_all_copied(exchange, call);
  }
  return all_to_all_of(exchange, call, call.out);
}

}  // namespace

bool lends(const Exchange& exchange, const Call& call) noexcept {
  if (call.procedure != nullptr) {
    return false;
  }
  const std::size_t bytes = call.data.size_bytes();
  switch (call.kind) {
    case Collective::kAllReduce:
      if (by_default(call)) {
        return bytes != 0 && !is_small(exchange, call.data);
      }
      break;
    case Collective::kAllToAll:  // sees to it itself: blocks must not be cut differently on two
                                 // ranks
    case Collective::kNone:
    case Collective::kBarrier:
      return false;
    default:
      break;
  }
  return bytes > exchange.transport.eager_bytes();
}

Task carry_out(Exchange& exchange, const Call& call) {
  if (call.procedure != nullptr) {
    return call.procedure->run(exchange, call);
  }
  switch (call.kind) {
    case Collective::kAllReduce:
      return all_reduce(exchange, call);
    case Collective::kReduceScatter:
      return reduce_scatter(exchange, call);
    case Collective::kAllGather:
      return all_gather(exchange, call);
    case Collective::kBroadcast:
      return broadcast(exchange, call);
    case Collective::kReduce:
      return reduce(exchange, call);
    case Collective::kAllToAll:
      return all_to_all(exchange, call);
    case Collective::kSend:
      return send_to(exchange, call.data, call.peer);
    case Collective::kRecv:
      return receive_from(exchange, call.data, call.peer);
    case Collective::kSendRecv:
    case Collective::kBarrier:
    case Collective::kNone:
      break;
  }
  return all_reduce_small(exchange, BufferView{}, ReduceOp::kSum);  // a barrier is empty
}

}  // namespace stretto::detail
