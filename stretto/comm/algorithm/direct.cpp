// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <vector>

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
    inputs[count_of(peer_at(exchange, i))] = in[i].data;
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
    const std::size_t peer = count_of(peer_at(exchange, i));
    inputs[peer] = outputs[peer] = in[i].data;
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

Task reduce_scatter_direct(Exchange& exchange, BufferView data, ReduceOp op, Parts parts) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  Group sent(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  const BufferView own = slice(data, parts.of(exchange.rank));
  for (std::size_t i = 0; i < peers; ++i) {
    const BufferView theirs = slice(data, parts.of(peer_at(exchange, i)));
    if (theirs.count != 0) {
      exchange.send(out[i], sent, peer_at(exchange, i), 0, theirs);
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
      inputs[count_of(peer_at(exchange, i))] = in[i].data;
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

Task all_gather_direct(Exchange& exchange, BufferView data, Parts parts) {
  const std::size_t peers = count_of(exchange.size) - 1;
  Group sent(exchange.resumer);
  Group arrived(exchange.resumer);
  Group readable(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  const BufferView own = slice(data, parts.of(exchange.rank));
  for (std::size_t i = 0; i < peers; ++i) {
    const int peer = peer_at(exchange, i);
    const BufferView theirs = slice(data, parts.of(peer));
    if (own.count != 0) {
      exchange.send(out[i], sent, peer, 0, own);
    }
    if (theirs.count != 0) {
      exchange.receive(in[i], arrived, peer, 0, theirs.size_bytes(), &readable, theirs.data);
    }
  }
  co_await readable;
  for (std::size_t i = 0; i < peers; ++i) {
    const BufferView theirs = slice(data, parts.of(peer_at(exchange, i)));
    if (theirs.count != 0) {
      co_await copy_pieces(exchange, theirs.data, in[i].data, theirs.size_bytes());
    }
  }
  co_await arrived;
  exchange.advance(arrived);
  for (std::size_t i = 0; i < peers; ++i) {
    if (length(parts.of(peer_at(exchange, i))) != 0) {
      exchange.transport.release(in[i]);
    }
  }
  co_await sent;
}

namespace {

// With segments: each is sent to everybody as soon as it is reduced, while the next ones are still
// coming in.
Task all_reduce_direct_segments(Exchange& exchange, BufferView data, ReduceOp op, Parts parts) {
  const std::size_t peers = count_of(exchange.size) - 1;
  std::vector<std::vector<Part>> segments(count_of(exchange.size));
  std::size_t others = 0;
  for (int member = 0; member < exchange.size; ++member) {
    append_segments(exchange, data.dtype, parts.of(member), segments[count_of(member)]);
    others += member == exchange.rank ? 0 : segments[count_of(member)].size();
  }
  const std::vector<Part>& own = segments[count_of(exchange.rank)];
  Group given(exchange.resumer);
  Group sent(exchange.resumer);
  PeerArray<Message> giving(others);
  PeerArray<Message> sending(own.size() * peers);
  // Segment by segment to all peers, so that all can begin.
  std::size_t next = 0;
  for (std::size_t s = 0; next < others; ++s) {
    for (std::size_t i = 0; i < peers; ++i) {
      const std::vector<Part>& theirs = segments[count_of(peer_at(exchange, i))];
      if (s < theirs.size()) {
        exchange.send(giving[next++], given, peer_at(exchange, i), 0, slice(data, theirs[s]));
      }
    }
  }
  std::deque<Incoming> in;  // own.size() x peers
  const auto expect = [&](std::size_t s) {
    for (std::size_t i = 0; i < peers; ++i) {
      in.emplace_back(exchange);
      in.back().expect(exchange, peer_at(exchange, i), 0, slice(data, own[s]));
    }
  };
  PeerArray<const std::byte*> inputs(count_of(exchange.size));
  for (std::size_t s = 0; s < own.size(); ++s) {
    const BufferView segment = slice(data, own[s]);
    if (s == 0) {
      expect(0);
    }
    if (s + 1 < own.size()) {
      expect(s + 1);
    }
    inputs[count_of(exchange.rank)] = segment.data;
    for (std::size_t i = 0; i < peers; ++i) {
      Incoming& one = in[i];
      co_await one.readable;
      inputs[count_of(peer_at(exchange, i))] = one.message.data;
    }
    std::byte* const output = segment.data;
    co_await reduce_pieces(
        exchange, data.dtype, op, inputs.span(), {&output, 1}, {0, segment.count});
    for (std::size_t i = 0; i < peers; ++i) {
      Incoming& one = in.front();
      co_await one.arrived;
      exchange.advance(one.arrived);
      exchange.transport.release(one.message);
      in.pop_front();
    }
    for (std::size_t i = 0; i < peers; ++i) {
      exchange.send(sending[s * peers + i], sent, peer_at(exchange, i), 1, segment);
    }
  }
  co_await given;  // results may be written over what was given away
  std::deque<Incoming> results;
  for (std::size_t i = 0; i < peers; ++i) {
    for (const Part& segment : segments[count_of(peer_at(exchange, i))]) {
      const BufferView to = slice(data, segment);
      results.emplace_back(exchange);
      results.back().expect(exchange, peer_at(exchange, i), 1, to, to.data);
    }
  }
  for (std::size_t i = 0; i < peers; ++i) {
    for (const Part& segment : segments[count_of(peer_at(exchange, i))]) {
      co_await take(exchange, results.front(), slice(data, segment));
      results.pop_front();
    }
  }
  co_await sent;
}

}  // namespace

Task all_reduce_direct(Exchange& exchange, BufferView data, ReduceOp op, Parts parts) {
  const Part longest = parts.of(0);
  if (length(longest) * size_of(data.dtype) > exchange.transport.segment_bytes()) {
    co_await all_reduce_direct_segments(exchange, data, op, parts);
    co_return;
  }
  co_await reduce_scatter_direct(exchange, data, op, parts);
  exchange.phase += 1;
  co_await all_gather_direct(exchange, data, parts);
}

Task all_reduce_parameter_server(Exchange& exchange, BufferView data, ReduceOp op, int servers) {
  // The first ranks serve a share each, and the others' parts are empty.
  std::vector<Part> shares;
  shares.reserve(count_of(exchange.size));
  for (int rank = 0; rank < exchange.size; ++rank) {
    shares.push_back(rank < servers ? part_of(data.count, servers, rank)
                                    : Part{data.count, data.count});
  }
  co_await all_reduce_direct(exchange, data, op, Parts(shares, data));
}

Task reduce_direct(Exchange& exchange, BufferView data, ReduceOp op, int root) {
  std::vector<Part> shares;
  shares.reserve(count_of(exchange.size));
  for (int rank = 0; rank < exchange.size; ++rank) {
    shares.push_back({rank <= root ? 0 : data.count, rank < root ? 0 : data.count});
  }
  co_await reduce_scatter_direct(exchange, data, op, Parts(shares, data));
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
  Incoming in(exchange);
  in.expect(exchange, from, 0, data, data.data);
  co_await take(exchange, in, data);
}

}  // namespace stretto::detail
