// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/kernel/reduce.hpp"

namespace stretto::detail {
namespace {

std::size_t count_of(int n) {
  return static_cast<std::size_t>(n);
}

// Peers in the order r+1, r+2, ...: at any moment every rank is sent to by one other only.
int peer_at(const Exchange& exchange, std::size_t i) {
  return (exchange.rank + 1 + static_cast<int>(i)) % exchange.size;
}

// Combines elements [begin, end) in pieces, with a breath between them.
Task reduce_pieces(Exchange& exchange,
                   DType dtype,
                   ReduceOp op,
                   std::span<const std::byte* const> inputs,
                   std::span<std::byte* const> outputs,
                   Part range) {
  const std::size_t piece = kPieceBytes / size_of(dtype);
  for (std::size_t at = range.begin; at < range.end; at += piece) {
    if (at != range.begin) {
      co_await exchange.breathe();
    }
    reduce(dtype, op, inputs, outputs, at, std::min(at + piece, range.end));
  }
}

Task copy_pieces(Exchange& exchange, std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
    if (at != 0) {
      co_await exchange.breathe();
    }
    std::memcpy(to + at, from + at, std::min(kPieceBytes, bytes - at));
  }
}

}  // namespace

Task all_reduce_small(Exchange& exchange, BufferView data, ReduceOp op) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group arrived(exchange.resumer);
  Group sent(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.send(out[i], sent, peer_at(exchange, i), 0, data);
  }
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.receive(in[i], arrived, peer_at(exchange, i), 0, data.size_bytes());
  }
  co_await arrived;
  exchange.advance(arrived);
  if (data.count != 0) {
    co_await sent;  // before the result overwrites it; an empty message is back only when released
  }
  PeerArray<const std::byte*> inputs(count_of(exchange.size));
  inputs[count_of(exchange.rank)] = data.data;
  for (std::size_t i = 0; i < peers; ++i) {
    inputs[count_of(in[i].peer)] = in[i].data;
  }
  std::byte* const output = data.data;
  reduce(data.dtype, op, inputs.span(), {&output, 1}, 0, data.count);
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.transport.release(in[i]);
  }
  co_await sent;
}

Task all_reduce_in_place(Exchange& exchange, BufferView data, ReduceOp op) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group arrived(exchange.resumer);
  Group returned(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  // Lending the whole buffer says: my gradients are in it. Getting it back says: your part of it is
  // reduced. So the two messages are all the synchronisation there is.
  for (std::size_t i = 0; i < peers; ++i) {
    out[i].lend = true;
    exchange.send(out[i], returned, peer_at(exchange, i), 0, data);
    exchange.receive(in[i], arrived, peer_at(exchange, i), 0, data.size_bytes());
  }
  co_await arrived;
  PeerArray<const std::byte*> inputs(count_of(exchange.size));
  PeerArray<std::byte*> outputs(count_of(exchange.size));
  inputs[count_of(exchange.rank)] = outputs[count_of(exchange.rank)] = data.data;
  for (std::size_t i = 0; i < peers; ++i) {
    inputs[count_of(in[i].peer)] = outputs[count_of(in[i].peer)] = in[i].data;
  }
  const Part mine = part_of(data.count, exchange.size, exchange.rank);
  const std::size_t piece = kPieceBytes / size_of(data.dtype);
  for (std::size_t at = mine.begin; at < mine.end; at += piece) {
    if (at != mine.begin) {
      co_await exchange.breathe();
    }
    reduce(data.dtype, op, inputs.span(), outputs.span(), at, std::min(at + piece, mine.end));
  }
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.transport.release(in[i]);
  }
  co_await returned;
}

Task reduce_scatter_direct(Exchange& exchange, BufferView data, ReduceOp op) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  Group sent(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  const Part mine = part_of(data.count, exchange.size, exchange.rank);
  const BufferView own = data.slice(mine.begin, mine.end);
  for (std::size_t i = 0; i < peers; ++i) {
    const Part theirs = part_of(data.count, exchange.size, peer_at(exchange, i));
    if (theirs.begin < theirs.end) {
      exchange.send(out[i], sent, peer_at(exchange, i), 0, data.slice(theirs.begin, theirs.end));
    }
    if (own.count != 0) {
      exchange.receive(in[i], arrived, peer_at(exchange, i), 0, own.size_bytes(), &readable);
    }
  }
  co_await readable;
  if (own.count != 0) {
    PeerArray<const std::byte*> inputs(count_of(exchange.size));
    inputs[count_of(exchange.rank)] = own.data;
    for (std::size_t i = 0; i < peers; ++i) {
      inputs[count_of(in[i].peer)] = in[i].data;
    }
    std::byte* const output = own.data;
    co_await reduce_pieces(exchange, data.dtype, op, inputs.span(), {&output, 1}, {0, own.count});
    co_await arrived;
    exchange.advance(arrived);
    for (std::size_t i = 0; i < peers; ++i) {
      exchange.transport.release(in[i]);
    }
  }
  co_await sent;
}

Task all_gather_direct(Exchange& exchange, BufferView data) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group sent(exchange.resumer);
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  const Part mine = part_of(data.count, exchange.size, exchange.rank);
  for (std::size_t i = 0; i < peers; ++i) {
    const int peer = peer_at(exchange, i);
    const Part theirs = part_of(data.count, exchange.size, peer);
    if (mine.begin < mine.end) {
      exchange.send(out[i], sent, peer, 0, data.slice(mine.begin, mine.end));
    }
    if (theirs.begin < theirs.end) {
      const std::size_t bytes = (theirs.end - theirs.begin) * size_of(data.dtype);
      exchange.receive(in[i], arrived, peer, 0, bytes, &readable);
    }
  }
  co_await readable;
  for (std::size_t i = 0; i < peers; ++i) {
    const Part theirs = part_of(data.count, exchange.size, peer_at(exchange, i));
    const BufferView to = data.slice(theirs.begin, theirs.end);
    co_await copy_pieces(exchange, to.data, in[i].data, to.size_bytes());
  }
  co_await arrived;
  exchange.advance(arrived);
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.transport.release(in[i]);
  }
  co_await sent;
}

Task all_reduce_direct(Exchange& exchange, BufferView data, ReduceOp op) {
  co_await reduce_scatter_direct(exchange, data, op);
  exchange.phase += 1;
  co_await all_gather_direct(exchange, data);
}

Task broadcast_direct(Exchange& exchange, BufferView data, int root) {
  if (exchange.rank == root) {
    const std::size_t peers = count_of(exchange.size) - 1;
    Group sent(exchange.resumer);
    PeerArray<Message> out(peers);
    for (std::size_t i = 0; i < peers; ++i) {
      exchange.send(out[i], sent, peer_at(exchange, i), 0, data);
    }
    co_await sent;
  } else {
    co_await receive_from(exchange, data, root);
  }
}

Task send_to(Exchange& exchange, BufferView data, int to) {
  Group sent(exchange.resumer);
  Message message;
  exchange.send(message, sent, to, 0, data);
  co_await sent;
}

Task receive_from(Exchange& exchange, BufferView data, int from) {
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  Message message;
  exchange.receive(message, arrived, from, 0, data.size_bytes(), &readable);
  co_await readable;
  co_await copy_pieces(exchange, data.data, message.data, data.size_bytes());
  co_await arrived;
  exchange.advance(arrived);
  exchange.transport.release(message);
}

}  // namespace stretto::detail
