// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/algorithm/flow.hpp"

#include <utility>

namespace stretto::detail {

Flow::Flow(Exchange& exchange,
           BufferView data,
           ReduceOp op,
           int parent,
           std::vector<int> children,
           int segments,
           bool sums)
    : data_(data),
      op_(op),
      parent_(parent),
      children_(std::move(children)),
      sums_(sums),
      passed_(exchange.resumer) {
  const auto pieces = static_cast<std::size_t>(segments);
  for (std::size_t i = 0; i < pieces; ++i) {
    const Part part{data.count * i / pieces, data.count * (i + 1) / pieces};
    if (length(part) != 0) {
      segments_.push_back(part);
      given_.emplace_back(exchange.resumer);
      if (sums && parent >= 0) {
        given_.back().expect();  // that it is sent at all
      }
    }
  }
  to_parent_ = std::vector<Message>(segments_.size());
  to_children_ = std::vector<Message>(segments_.size() * children_.size());
}

void Flow::pass_down(Exchange& lane, std::size_t segment) {
  lane.turn = static_cast<std::uint32_t>(segment);
  for (std::size_t c = 0; c < children_.size(); ++c) {
    lane.send(to_children_[segment * children_.size() + c],
              passed_,
              children_[c],
              1,
              slice(data_, segments_[segment]));
  }
}

Task Flow::up(Exchange& lane, Flow& flow) {
  if (!flow.sums_) {
    co_return;
  }
  for (std::size_t i = 0; i < flow.segments_.size(); ++i) {
    const BufferView segment = slice(flow.data_, flow.segments_[i]);
    std::deque<Incoming> in;
    for (const int child : flow.children_) {
      in.emplace_back(lane);
      in.back().expect(lane, child, 0, segment);
    }
    for (Incoming& sum : in) {
      co_await combine(lane, sum, segment, hop_of(flow.op_));
    }
    if (flow.parent_ >= 0) {
      lane.turn = static_cast<std::uint32_t>(i);  // flows that share a link take turns
      lane.send(flow.to_parent_[i], flow.given_[i], flow.parent_, 0, segment);
      flow.given_[i].arrived(0);
    } else {
      finish_mean(lane, segment, flow.op_);
      flow.pass_down(lane, i);
    }
  }
  if (flow.parent_ < 0) {
    co_await flow.passed_;
  }
}

Task Flow::down(Exchange& lane, Flow& flow) {
  if (flow.parent_ < 0 && flow.sums_) {
    co_return;
  }
  for (std::size_t i = 0; i < flow.segments_.size(); ++i) {
    if (flow.parent_ >= 0) {
      // Not before the parent has read the sum: the result may be written from then on.
      Group& given = flow.given_[i];
      co_await given;
      co_await receive_into(lane, flow.parent_, 1, slice(flow.data_, flow.segments_[i]));
    }
    flow.pass_down(lane, i);
  }
  co_await flow.passed_;
}

Task run_flows(Exchange& exchange, std::deque<Flow>& flows) {
  std::vector<Exchange> lanes;
  std::vector<Task> tasks;
  lanes.reserve(2 * flows.size());
  tasks.reserve(2 * flows.size());
  for (Flow& flow : flows) {
    const auto lane = static_cast<std::uint32_t>(lanes.size());
    for (int direction = 0; direction < 2; ++direction) {
      lanes.push_back(exchange);
      lanes.back().phase += lane;
      tasks.push_back(direction == 0 ? Flow::up(lanes.back(), flow)
                                     : Flow::down(lanes.back(), flow));
    }
  }
  co_await together(exchange, lanes, tasks);
}

}  // namespace stretto::detail
