// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/data/plan.hpp"

namespace stretto {

/// Returns if all ranks passed plans that hash alike: two tiny all-reduces. Collective.
/// @throws Error kMismatch with the same text on every rank: the lowest rank that differs from rank
/// 0,
///         and the first tensor or bucket in which it does.
void agree_on_plan(Communicator& communicator, const Plan& plan);

/// The same for something a line of text describes; `what` names it in the message.
void agree_on_text(Communicator& communicator, const std::string& what, const std::string& mine);

/// Something that a user may set for each rank, as `--batch` and `64`. One line each.
struct NamedValue {
  std::string name;
  std::string value;
};

/// The same for settings that must be alike for ranks to do one thing together; the names in the
/// same order on every rank. The message names the first that differs.
void agree_on_settings(Communicator& communicator, const std::vector<NamedValue>& mine);

}  // namespace stretto
