// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/cost_formulas.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "stretto/base/error.hpp"

namespace stretto::cost {
namespace {

int floor_lg(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))) - 1;
}

int largest_power(int ranks) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
}

int ceil_lg(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U));
}

bool power_of_two(int ranks) {
  return std::has_single_bit(static_cast<unsigned>(ranks));
}

/// What of the tensor is another rank's part.
double others(int ranks) {
  return (ranks - 1.0) / ranks;
}

/// `messages` latencies, and what is sent and added, as multiples of the tensor.
CostLine line(int ranks, LinkCost link, double messages, double sent, double added) {
  if (ranks <= 1) {
    return {};
  }
  return {messages * link.latency,
          sent * link.seconds_per_byte + added * link.reduce_seconds_per_byte,
          Algorithm::kAuto};
}

void check_square(std::span<const std::vector<Bytes>> sent) {
  for (std::size_t s = 0; s < sent.size(); ++s) {
    const auto reject = [s](std::string found, std::string expected) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a routing matrix is not possible",
                   "row of rank " + std::to_string(s),
                   std::move(found),
                   std::move(expected),
                   "Row s says how many bytes rank s sends to each rank"});
    };
    if (sent[s].size() != sent.size()) {
      reject(std::to_string(sent[s].size()) + " columns", std::to_string(sent.size()));
    }
    for (const Bytes bytes : sent[s]) {
      if (bytes < Bytes(0)) {
        reject(std::to_string(bytes.count()) + " bytes", "zero or more");
      }
    }
  }
}

}  // namespace

CostLine direct_all_reduce(int ranks, LinkCost link) {
  return line(ranks, link, 2, 2 * others(ranks), others(ranks));
}

CostLine ring_all_reduce(int ranks, LinkCost link) {
  return line(ranks, link, 2.0 * (ranks - 1), 2 * others(ranks), others(ranks));
}

CostLine recursive_doubling_all_reduce(int ranks, LinkCost link) {
  const double rounds = floor_lg(ranks);
  const double fold = power_of_two(ranks) ? 0 : 1;
  return line(ranks, link, rounds + 2 * fold, rounds + 3 * fold, rounds + fold);
}

CostLine halving_doubling_all_reduce(int ranks, LinkCost link) {
  const double within = others(largest_power(ranks));
  const double fold = power_of_two(ranks) ? 0 : 1;
  return line(
      ranks, link, 2.0 * (floor_lg(ranks) + fold), (2 + fold) * within + 2.0 * fold, within + fold);
}

CostLine binomial_tree_all_reduce(int ranks, LinkCost link) {
  const double rounds = ceil_lg(ranks);
  return line(ranks, link, 2.0 * floor_lg(ranks), 2 * rounds, rounds);
}

Seconds pipelined_chain_all_reduce(int ranks, Bytes size, LinkCost link) {
  if (ranks <= 1) {
    return Seconds(0);
  }
  const double added = link.reduce_seconds_per_byte;
  const double load = (ranks == 2 ? 1 : 2) * link.seconds_per_byte;
  return pipeline_time({2.0 * (ranks - 1) * link.latency,
                        2.0 * (ranks - 1) * link.seconds_per_byte - load + (ranks - 2) * added,
                        load + added},
                       size);
}

Seconds double_binary_tree_all_reduce(int ranks, Bytes size, LinkCost link) {
  if (ranks <= 1) {
    return Seconds(0);
  }
  const double height = floor_lg(ranks);
  const double added = link.reduce_seconds_per_byte;
  const double load = std::min(ranks / 2.0, 2.0);
  return pipeline_time(
      {2.0 * height * link.latency,
       std::max(2 * height - 1 - load, 0.0) * link.seconds_per_byte + height * added,
       load * link.seconds_per_byte + added},
      size);
}

CostLine in_switch_all_reduce(int ranks, LinkCost link, double efficiency) {
  return line(ranks, link, 2, 1 / efficiency, 0);
}

CostLine direct_reduce_scatter(int ranks, LinkCost link) {
  return line(ranks, link, 1, others(ranks), others(ranks));
}

CostLine ring_reduce_scatter(int ranks, LinkCost link) {
  return line(ranks, link, ranks - 1.0, others(ranks), others(ranks));
}

CostLine recursive_halving_reduce_scatter(int ranks, LinkCost link) {
  const int members = largest_power(ranks);
  const int extra = ranks - members;
  if (extra == 0) {
    return line(ranks, link, floor_lg(ranks), others(ranks), others(ranks));
  }
  double received = members - 1;
  for (std::int64_t share = 2; share <= members; share *= 2) {
    received += std::ceil(static_cast<double>(extra) / static_cast<double>(share));
  }
  received /= ranks;
  return line(ranks, link, floor_lg(ranks) + 2, 2 + received - 1.0 / ranks, 1 + received);
}

CostLine direct_all_gather(int ranks, LinkCost link) {
  return line(ranks, link, 1, others(ranks), 0);
}

CostLine ring_all_gather(int ranks, LinkCost link) {
  return line(ranks, link, ranks - 1.0, others(ranks), 0);
}

CostLine bruck_all_gather(int ranks, LinkCost link) {
  return line(ranks, link, ceil_lg(ranks), others(ranks), 0);
}

CostLine direct_broadcast(int ranks, LinkCost link) {
  return line(ranks, link, 1, ranks - 1.0, 0);
}

CostLine binomial_broadcast(int ranks, LinkCost link) {
  return line(ranks, link, floor_lg(ranks), ceil_lg(ranks), 0);
}

CostLine ring_broadcast(int ranks, LinkCost link) {
  return line(ranks, link, floor_lg(ranks) + ranks - 1.0, 2 * others(ranks), 0);
}

Seconds pipelined_chain_broadcast(int ranks, Bytes size, LinkCost link) {
  if (ranks <= 1) {
    return Seconds(0);
  }
  return pipeline_time(
      {(ranks - 1.0) * link.latency, (ranks - 2.0) * link.seconds_per_byte, link.seconds_per_byte},
      size);
}

Seconds double_binary_tree_broadcast(int ranks, Bytes size, LinkCost link) {
  if (ranks <= 1) {
    return Seconds(0);
  }
  const double height = 1.0 + floor_lg(ranks - 1);
  return pipeline_time(
      {height * link.latency, (height - 1) * link.seconds_per_byte, link.seconds_per_byte}, size);
}

CostLine direct_reduce(int ranks, LinkCost link) {
  return line(ranks, link, 1, ranks - 1.0, ranks - 1.0);
}

CostLine binomial_reduce(int ranks, LinkCost link) {
  return line(ranks, link, floor_lg(ranks), ceil_lg(ranks), ceil_lg(ranks));
}

CostLine ring_reduce(int ranks, LinkCost link) {
  return line(ranks, link, floor_lg(ranks) + ranks - 1.0, 2 * others(ranks), others(ranks));
}

CostLine direct_all_to_all(int ranks, LinkCost link) {
  return line(ranks, link, 1, others(ranks), 0);
}

CostLine pairwise_all_to_all(int ranks, LinkCost link) {
  return line(ranks, link, ranks - 1.0, others(ranks), 0);
}

double bruck_parts(std::int64_t ranks, std::int64_t distance) {
  // Of 0 .. ranks-1 those with this bit set: half of every whole run of twice the distance, and
  // what the last run reaches beyond its first half.
  const std::int64_t beyond = ranks % (2 * distance) - distance;
  return static_cast<double>(ranks / (2 * distance) * distance + std::max<std::int64_t>(beyond, 0));
}

CostLine bruck_all_to_all(int ranks, LinkCost link) {
  double sent = 0;  // parts
  for (std::int64_t bit = 1; bit < ranks; bit *= 2) {
    sent += bruck_parts(ranks, bit);
  }
  return line(ranks, link, ceil_lg(ranks), sent / ranks, 0);
}

Seconds pairwise_all_to_all(std::span<const std::vector<Bytes>> sent, LinkCost link) {
  check_square(sent);
  Seconds time{};
  for (std::size_t round = 1; round < sent.size(); ++round) {
    Bytes longest;
    for (std::size_t s = 0; s < sent.size(); ++s) {
      longest = std::max(longest, sent[s][(s + round) % sent.size()]);
    }
    time += link.latency + Seconds(link.seconds_per_byte * static_cast<double>(longest.count()));
  }
  return time;
}

Seconds least_all_to_all(std::span<const std::vector<Bytes>> sent, LinkCost link) {
  check_square(sent);
  double most = 0.0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    double out = 0.0;
    double in = 0.0;
    for (std::size_t j = 0; j < sent.size(); ++j) {
      if (i != j) {
        out += static_cast<double>(sent[i][j].count());
        in += static_cast<double>(sent[j][i].count());
      }
    }
    most = std::max({most, out, in});
  }
  return Seconds(most * link.seconds_per_byte);
}

Seconds point_to_point(Bytes size, LinkCost link, std::optional<Bytes> rendezvous_above) {
  const bool asks_first = rendezvous_above && size > *rendezvous_above;
  return (asks_first ? 3.0 : 1.0) * link.latency +
         Seconds(link.seconds_per_byte * static_cast<double>(size.count()));
}

CostLine one_parameter_server(int pushing_workers, LinkCost link) {
  if (pushing_workers < 1) {
    return {};
  }
  return {2.0 * link.latency,
          pushing_workers * (2 * link.seconds_per_byte + link.reduce_seconds_per_byte),
          Algorithm::kAuto};
}

CostLine parameter_servers(int workers,
                           int servers,
                           LinkCost link,
                           double server_seconds_per_byte) {
  const double per_server = static_cast<double>(workers) / servers;
  return {2.0 * link.latency,
          std::max(link.seconds_per_byte, per_server * server_seconds_per_byte) +
              per_server * link.reduce_seconds_per_byte,
          Algorithm::kAuto};
}

CostLine shared_parameter_servers(int ranks, int servers, LinkCost link) {
  const double pushed = (ranks - 1.0) / servers;
  return line(ranks, link, 2, 2 * pushed, pushed);
}

CostLine sharded_parameter_server(int workers, LinkCost link) {
  return direct_all_reduce(workers, link);
}

Seconds power_sgd(std::int64_t rows,
                  std::int64_t columns,
                  int rank,
                  int bytes_per_element,
                  const ExchangeTime& all_reduce) {
  const std::int64_t bytes = std::int64_t{rank} * bytes_per_element;
  return all_reduce(Bytes(rows * bytes)) + all_reduce(Bytes(columns * bytes));
}

Seconds top_k(int ranks,
              std::int64_t kept,
              int value_bytes,
              int index_bytes,
              const ExchangeTime& all_gather) {
  return all_gather(Bytes(kept * ranks * (value_bytes + index_bytes)));
}

Seconds quantised_two_shot(Bytes wire,
                           const ExchangeTime& all_to_all,
                           const ExchangeTime& all_gather) {
  return all_to_all(wire) + all_gather(wire);
}

Seconds pipeline_time(const Pipeline& pipeline, Bytes size) {
  if (size <= Bytes(0)) {
    return Seconds(0);
  }
  const double per_byte =
      pipeline.seconds_per_byte + pipeline.hops_seconds_per_byte / pipeline_segments(size);
  return pipeline.fill + Seconds(per_byte * static_cast<double>(size.count()));
}

}  // namespace stretto::cost
