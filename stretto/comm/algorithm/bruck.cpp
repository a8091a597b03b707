// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>

#include "stretto/comm/algorithm/algorithms.hpp"

namespace stretto::detail {
namespace {

// Parts first, first + 1, ..., around the ring: one range, or two where it begins again.
std::vector<Part> ranges(const Parts& parts, int first, int count) {
  std::vector<Part> result;
  for (int i = first; i < first + count; ++i) {
    const Part part = parts.of(i);
    if (length(part) == 0) {
      continue;
    }
    if (!result.empty() && result.back().end == part.begin) {
      result.back().end = part.end;
    } else {
      result.push_back(part);
    }
  }
  return result;
}

}  // namespace

Task all_gather_bruck(Exchange& exchange, BufferView data) {
  const Parts parts(exchange, data);
  const int size = exchange.size;
  for (int have = 1; have < size; have *= 2) {
    const int count = std::min(have, size - have);
    Group sent(exchange.resumer);
    PeerArray<Message> out(2);
    std::size_t sending = 0;
    for (const Part& part : ranges(parts, exchange.rank, count)) {
      exchange.send(
          out[sending++], sent, (exchange.rank + size - have) % size, 0, slice(data, part));
    }
    const int from = (exchange.rank + have) % size;
    const std::vector<Part> get = ranges(parts, exchange.rank + have, count);
    std::deque<Incoming> in;
    for (const Part& part : get) {
      const BufferView to = slice(data, part);
      in.emplace_back(exchange);
      in.back().expect(exchange, from, 0, to, to.data);
    }
    for (std::size_t i = 0; i < get.size(); ++i) {
      co_await take(exchange, in[i], slice(data, get[i]));
    }
    co_await sent;
  }
}

}  // namespace stretto::detail
