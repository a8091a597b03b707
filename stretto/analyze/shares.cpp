// SPDX-License-Identifier: Apache-2.0
#include "stretto/analyze/shares.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

namespace stretto::detail {

std::vector<double> exposed_shares_ns(const std::vector<IntervalSet>& owners,
                                      const IntervalSet& compute) {
  struct Edge {
    std::int64_t at_ns;
    bool begins;
    std::size_t owner;
  };
  std::vector<Edge> edges;
  for (std::size_t owner = 0; owner < owners.size(); ++owner) {
    for (const Interval& piece : owners[owner].intervals()) {
      edges.push_back({piece.begin_ns, true, owner});
      edges.push_back({piece.end_ns, false, owner});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::tuple(a.at_ns, a.begins, a.owner) < std::tuple(b.at_ns, b.begins, b.owner);
  });
  std::vector<double> shares_ns(owners.size(), 0.0);
  std::vector<std::size_t> active;  // few at any time
  std::int64_t since_ns = 0;
  for (const Edge& edge : edges) {
    if (!active.empty() && edge.at_ns > since_ns) {
      const std::int64_t exposed_ns =
          edge.at_ns - since_ns - compute.measure_within_ns({since_ns, edge.at_ns});
      for (const std::size_t owner : active) {
        shares_ns[owner] += static_cast<double>(exposed_ns) / static_cast<double>(active.size());
      }
    }
    since_ns = edge.at_ns;
    if (edge.begins) {
      active.push_back(edge.owner);
    } else {
      active.erase(std::find(active.begin(), active.end(), edge.owner));
    }
  }
  return shares_ns;
}

}  // namespace stretto::detail
