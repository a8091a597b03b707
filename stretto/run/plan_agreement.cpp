// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/plan_agreement.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/hash.hpp"
#include "stretto/run/text_exchange.hpp"

namespace stretto {
namespace {

bool all_equal(Communicator& communicator, std::uint64_t hash) {
  const auto mine = std::bit_cast<std::int64_t>(hash);
  std::int64_t least = mine;
  std::int64_t greatest = mine;
  communicator.all_reduce(view(std::span(&least, 1)), ReduceOp::kMin).wait();
  communicator.all_reduce(view(std::span(&greatest, 1)), ReduceOp::kMax).wait();
  return least == greatest;
}

// The lowest rank for which `differs` holds. There is one.
int lowest(Communicator& communicator, bool differs) {
  std::int64_t rank = differs ? communicator.rank() : communicator.size();
  communicator.all_reduce(view(std::span(&rank, 1)), ReduceOp::kMin).wait();
  return static_cast<int>(rank);
}

}  // namespace

void agree_on_plan(Communicator& communicator, const Plan& plan) {
  if (communicator.size() == 1 || all_equal(communicator, plan.hash())) {
    return;
  }
  // Rank 0's plan is the measure; the lowest rank that differs from it says how, and everybody
  // throws its words.
  const Plan first =
      plan_from_json(broadcast_text(communicator, to_json(plan), 0), "rank 0's plan");
  const int who = lowest(communicator, first.hash() != plan.hash());
  const PlanDifference mine = difference(first, plan);
  const std::string where = broadcast_text(communicator, mine.where, who);
  const std::string found = broadcast_text(communicator, mine.found, who);
  const std::string expected = broadcast_text(communicator, mine.expected, who);
  // What is thrown ends this rank: no other may still need it.
  communicator.barrier().wait();
  throw Error(ErrorCode::kMismatch,
              {"the plan of rank " + std::to_string(who) + " differs from that of rank 0",
               where,
               found,
               expected,
               "Give every rank the same model and the same plan."});
}

void agree_on_text(Communicator& communicator, const std::string& what, const std::string& mine) {
  if (communicator.size() == 1 || all_equal(communicator, Hasher().add(mine).digest())) {
    return;
  }
  const std::string first = broadcast_text(communicator, mine, 0);
  const int who = lowest(communicator, first != mine);
  const std::string found = broadcast_text(communicator, mine, who);
  throw Error(ErrorCode::kMismatch,
              {what + " of rank " + std::to_string(who) + " differ from those of rank 0",
               "rank " + std::to_string(who),
               found,
               first,
               "Give every rank the same."});
}

void agree_on_settings(Communicator& communicator, const std::vector<NamedValue>& mine) {
  std::string text;
  for (const NamedValue& setting : mine) {
    text += setting.value + "\n";
  }
  if (communicator.size() == 1 || all_equal(communicator, Hasher().add(text).digest())) {
    return;
  }
  const std::string first = broadcast_text(communicator, text, 0);
  const int who = lowest(communicator, first != text);
  const std::string other = broadcast_text(communicator, text, who);
  // What is thrown ends this rank: no other may still need it.
  communicator.barrier().wait();
  std::string_view expected = first;
  std::string_view found = other;
  const auto next_line = [](std::string_view& rest) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    return std::string(line);
  };
  const auto named = [](const std::string& value) { return value.empty() ? "none" : value; };
  for (const NamedValue& setting : mine) {
    const std::string theirs = next_line(found);
    const std::string firsts = next_line(expected);
    if (theirs != firsts) {
      throw Error(
          ErrorCode::kMismatch,
          {setting.name + " of rank " + std::to_string(who) + " differs from that of rank 0",
           setting.name + ", rank " + std::to_string(who),
           named(theirs),
           named(firsts),
           "Give every rank the same"});
    }
  }
}

}  // namespace stretto
