// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stretto/comm/communicator.hpp"

namespace stretto {

/// Numbers taken on an emulated machine mean nothing when its host was too busy to deliver the
/// messages in time. Made before a run, asked after it.
class EmulationCheck {
 public:
  explicit EmulationCheck(Communicator& communicator);
  /// Collective.
  /// @throws Error kBackend, the same on every rank, if more than 5 % of the messages since the
  ///         constructor were late, or one by more than 100 ms and more than any before it.
  void verify();

 private:
  Communicator& communicator_;
  EmulationStatistics before_;
};

}  // namespace stretto
