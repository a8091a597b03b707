// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

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

}  // namespace stretto
