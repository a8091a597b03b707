// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

BufferView block(std::span<const BufferView> blocks, int member) {
  return blocks[static_cast<std::size_t>(member)];
}

Task keep_own(Exchange& exchange, std::span<const BufferView> out, std::span<const BufferView> in) {
  const BufferView own = block(out, exchange.rank);
  co_await copy_pieces(exchange, block(in, exchange.rank).data, own.data, own.size_bytes());
}

}  // namespace

Task all_to_all_direct(Exchange& exchange,
                       std::span<const BufferView> out,
                       std::span<const BufferView> in) {
  Group sent(exchange.resumer);
  PeerArray<Message> sending(static_cast<std::size_t>(exchange.size));
  std::deque<Incoming> coming;
  // The next rank first: at any moment every rank is sent to by one other only.
  for (int i = 1; i < exchange.size; ++i) {
    const int to = (exchange.rank + i) % exchange.size;
    if (block(out, to).count != 0) {
      exchange.send(sending[static_cast<std::size_t>(i)], sent, to, 0, block(out, to));
    }
    const int from = (exchange.rank + exchange.size - i) % exchange.size;
    coming.emplace_back(exchange);
    if (block(in, from).count != 0) {
      coming.back().expect(exchange, from, 0, block(in, from), block(in, from).data);
    }
  }
  co_await keep_own(exchange, out, in);
  for (int i = 1; i < exchange.size; ++i) {
    const int from = (exchange.rank + exchange.size - i) % exchange.size;
    if (block(in, from).count != 0) {
      co_await take(exchange, coming[static_cast<std::size_t>(i - 1)], block(in, from));
    }
  }
  co_await sent;
}

Task all_to_all_pairwise(Exchange& exchange,
                         std::span<const BufferView> out,
                         std::span<const BufferView> in) {
  co_await keep_own(exchange, out, in);
  for (int i = 1; i < exchange.size; ++i) {
    const int to = (exchange.rank + i) % exchange.size;
    const int from = (exchange.rank + exchange.size - i) % exchange.size;
    Group sent(exchange.resumer);
    Message message;
    if (block(out, to).count != 0) {
      exchange.send(message, sent, to, 0, block(out, to));
    }
    co_await receive_into(exchange, from, 0, block(in, from));
    co_await sent;
  }
}

Task all_to_all_bruck(Exchange& exchange,
                      std::span<const BufferView> out,
                      std::span<const BufferView> in) {
  const int size = exchange.size;
  const BufferView first = block(out, 0);
  const std::size_t bytes = first.size_bytes();
  const auto total = static_cast<std::size_t>(size) * bytes;
  if (bytes == 0) {
    co_return;
  }
  // held[i]: what goes i ranks further on. Packed to be sent, so in memory that can be lent.
  std::vector<std::byte> held(total);
  const std::unique_ptr<Arena> packed =
      exchange.transport.allocate(Bytes(static_cast<std::int64_t>(total)));
  std::vector<std::byte> got(total);
  const auto at = [bytes](int i) { return static_cast<std::size_t>(i) * bytes; };
  for (int i = 0; i < size; ++i) {
    std::memcpy(held.data() + at(i), block(out, (exchange.rank + i) % size).data, bytes);
  }
  for (int distance = 1; distance < size; distance *= 2) {
    int count = 0;
    for (int i = 0; i < size; ++i) {
      if ((i & distance) != 0) {
        std::memcpy(packed->bytes().data() + at(count++), held.data() + at(i), bytes);
      }
    }
    const auto elements = static_cast<std::size_t>(count) * first.count;
    Group sent(exchange.resumer);
    Message message;
    exchange.send(message,
                  sent,
                  (exchange.rank + distance) % size,
                  0,
                  {packed->bytes().data(), elements, first.dtype, {}});
    co_await receive_into(exchange,
                          (exchange.rank + size - distance) % size,
                          0,
                          {got.data(), elements, first.dtype, {}});
    count = 0;
    for (int i = 0; i < size; ++i) {
      if ((i & distance) != 0) {
        std::memcpy(held.data() + at(i), got.data() + at(count++), bytes);
      }
    }
    co_await sent;
    co_await exchange.breathe();
  }
  // What went i ranks further on has come from i ranks back.
  for (int i = 0; i < size; ++i) {
    std::memcpy(block(in, (exchange.rank + size - i) % size).data, held.data() + at(i), bytes);
  }
}

}  // namespace stretto::detail
