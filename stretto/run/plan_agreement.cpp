// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/plan_agreement.hpp"

#include <array>
#include <bit>
#include <span>
#include <string>

#include "stretto/run/text_exchange.hpp"

namespace stretto {

void agree_on_plan(Communicator& communicator, const Plan& plan) {
  if (communicator.size() == 1) {
    return;
  }
  const auto mine = std::bit_cast<std::int64_t>(plan.hash());
  std::int64_t least = mine;
  std::int64_t greatest = mine;
  communicator.all_reduce(view(std::span(&least, 1)), ReduceOp::kMin).wait();
  communicator.all_reduce(view(std::span(&greatest, 1)), ReduceOp::kMax).wait();
  if (least == greatest) {
    return;
  }
  // They differ. Rank 0's plan is the measure; the lowest rank that differs from it says how, and
  // everybody throws its words.
  const Plan first =
      plan_from_json(broadcast_text(communicator, to_json(plan), 0), "rank 0's plan");
  std::int64_t culprit = first.hash() == plan.hash() ? communicator.size() : communicator.rank();
  communicator.all_reduce(view(std::span(&culprit, 1)), ReduceOp::kMin).wait();
  const auto who = static_cast<int>(culprit);
  const PlanDifference mine_differs = difference(first, plan);
  const std::string where = broadcast_text(communicator, mine_differs.where, who);
  const std::string found = broadcast_text(communicator, mine_differs.found, who);
  const std::string expected = broadcast_text(communicator, mine_differs.expected, who);
  throw Error(ErrorCode::kMismatch,
              {"the plan of rank " + std::to_string(who) + " differs from that of rank 0",
               where,
               found,
               expected,
               "Give every rank the same model and the same plan."});
}

}  // namespace stretto
