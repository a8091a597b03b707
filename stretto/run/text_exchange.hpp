// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stretto/comm/communicator.hpp"

namespace stretto {

/// Root's text, on every rank. Collective.
[[nodiscard]] std::string broadcast_text(Communicator& communicator,
                                         const std::string& text,
                                         int root);
/// From one rank to another; the receiver calls receive_text.
void send_text(Communicator& communicator, const std::string& text, int to);
[[nodiscard]] std::string receive_text(Communicator& communicator, int from);

}  // namespace stretto
