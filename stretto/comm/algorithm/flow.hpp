// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "stretto/comm/algorithm/pieces.hpp"

namespace stretto::detail {

/// What one rank does in a tree through which a tensor flows in segments: sums up to the root,
/// results down from it, both at the same time. A chain is a tree too.
class Flow {
 public:
  /// `parent` is -1 at the root. Children are added in the order given. `sums`: false for a
  /// broadcast, where nothing goes up.
  Flow(Exchange& exchange,
       BufferView data,
       ReduceOp op,
       int parent,
       std::vector<int> children,
       int segments,
       bool sums);

  /// The two directions, on lanes of their own. At the root all is done by one of them: up() where
  /// there are sums, else down(); the other does nothing.
  static Task up(Exchange& lane, Flow& flow);
  static Task down(Exchange& lane, Flow& flow);

 private:
  void pass_down(Exchange& lane, std::size_t segment);

  BufferView data_;
  ReduceOp op_;
  int parent_;
  std::vector<int> children_;
  bool sums_;
  std::vector<Part> segments_;
  std::deque<Group> given_;  // per segment: the parent has been sent the sum, and taken it
  std::vector<Message> to_parent_;
  std::vector<Message> to_children_;
  Group passed_;
};

/// Both directions of all flows at the same time. Uses two phases for each.
Task run_flows(Exchange& exchange, std::deque<Flow>& flows);

}  // namespace stretto::detail
