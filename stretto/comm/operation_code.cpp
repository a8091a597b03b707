// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/operation_code.hpp"

#include <algorithm>
#include <array>

namespace stretto::detail {
namespace {

constexpr std::array kCollectives = {Collective::kAllReduce,
                                     Collective::kReduceScatter,
                                     Collective::kAllGather,
                                     Collective::kBroadcast,
                                     Collective::kBarrier,
                                     Collective::kSend,
                                     Collective::kReduce,
                                     Collective::kAllToAll};

bool combines(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

}  // namespace

OperationCode code_of(const Call& call) noexcept {
  const Collective kind = call.kind == Collective::kRecv ? Collective::kSend : call.kind;
  const auto index =
      std::find(kCollectives.begin(), kCollectives.end(), kind) - kCollectives.begin();
  const auto op = combines(kind) ? static_cast<unsigned>(call.op) : 0U;
  return static_cast<OperationCode>((static_cast<unsigned>(index) & 7U) |
                                    static_cast<unsigned>(call.data.dtype) << 3U | op << 6U);
}

std::string text_of(OperationCode code) {
  const Collective kind = kCollectives[code & 7U];
  std::string text(to_string(kind));
  if (kind == Collective::kBarrier) {
    return text;
  }
  if (kind == Collective::kSend) {
    text = "send and recv";
  }
  if (combines(kind)) {
    text += " (" + std::string(to_string(static_cast<ReduceOp>(code >> 6U))) + ")";
  }
  return text + " of " + std::string(to_string(static_cast<DType>(code >> 3U & 7U)));
}

}  // namespace stretto::detail
