// SPDX-License-Identifier: Apache-2.0
#include "stretto/measure/machine_of_curve.hpp"

#include <cmath>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/measure/fit.hpp"
#include "stretto/measure/measure.hpp"

namespace stretto {
namespace {

/// Messages that follow one another.
double messages_in_a_row(Collective collective, int ranks) {
  switch (collective) {
    case Collective::kAllReduce:
      return 2.0 * (ranks - 1);
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return ranks - 1;
    default:
      return 1.0;
  }
}

}  // namespace

Machine machine_of_curve(std::string name, std::string source, CollectiveCurve curve) {
  if (curve.ranks < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "a curve of fewer than two ranks says nothing of a network",
                 .where = name,
                 .found = std::to_string(curve.ranks),
                 .expected = "2 or more",
                 .help = {}});
  }
  const LineFit line = fit_line(curve.points);
  const CurvePoint& largest = curve.points.back();
  // Times that did not grow say that the link is at least this fast.
  const BytesPerSecond rate =
      line.bandwidth() > BytesPerSecond(0)
          ? line.bandwidth()
          : BytesPerSecond(static_cast<double>(largest.size.count()) / largest.time.count());
  Machine machine;
  machine.name = std::move(name);
  machine.source = std::move(source);
  machine.basis = Basis::kMeasured;
  machine.levels.push_back(
      {"link",
       curve.ranks,
       line.latency / messages_in_a_row(curve.collective, curve.ranks),
       BytesPerSecond(rate.value() * bus_factor(curve.collective, curve.ranks))});
  machine.curves.push_back(std::move(curve));
  return machine;
}

}  // namespace stretto
