// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/step_program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace stretto::detail {
namespace {

const std::string kForwardName = "forward";
const std::string kBackwardName = "backward";
const std::string kOptimizerName = "optimizer";
const std::string kEndName = "end";
const std::string kBetweenName = "accumulated passes";

/// What the plan's buckets hold and who needs them.
struct BucketUse {
  std::vector<std::size_t> last_tensor;  ///< In ready order: the one it waits for.
  std::vector<std::size_t> first_tensor;
  std::vector<std::size_t> first_layer;  ///< That reads its parameters.
  std::vector<std::vector<std::uint32_t>> by_last_tensor;
  std::vector<std::vector<std::uint32_t>> by_layer;  ///< Buckets a layer is the first to read.
  std::vector<std::vector<std::uint32_t>> layer_needs;
  std::vector<std::uint32_t> bucket_of_tensor;
  std::vector<double> share;  ///< Of the bytes.
};

BucketUse bucket_use(const StepProfile& profile, const Plan& plan) {
  const std::vector<std::size_t> layers = layers_of_tensors(profile);
  const std::size_t layer_count = std::max<std::size_t>(1, profile.forward.size());
  const std::vector<std::vector<TensorRange>> ranges = plan.all_ranges();
  BucketUse use;
  use.by_last_tensor.resize(profile.tensors.size());
  use.by_layer.resize(layer_count);
  use.layer_needs.resize(layer_count);
  use.bucket_of_tensor.assign(profile.tensors.size(), kNoId);
  const double total = std::max<double>(1.0, static_cast<double>(profile.bytes().count()));
  for (std::uint32_t b = 0; b < plan.buckets.size(); ++b) {
    std::size_t last = 0;
    std::size_t first = profile.tensors.size();
    std::size_t first_layer = layer_count;
    for (const TensorRange& range : ranges[b]) {
      last = std::max(last, range.tensor);
      first = std::min(first, range.tensor);
      first_layer = std::min(first_layer, layers[range.tensor]);
      std::vector<std::uint32_t>& needs = use.layer_needs[layers[range.tensor]];
      if (needs.empty() || needs.back() != b) {
        needs.push_back(b);
      }
      use.bucket_of_tensor[range.tensor] = b;
    }
    use.last_tensor.push_back(last);
    use.first_tensor.push_back(first);
    use.first_layer.push_back(first_layer);
    use.by_last_tensor[last].push_back(b);
    use.by_layer[first_layer].push_back(b);
    use.share.push_back(static_cast<double>(plan.buckets[b].bytes().count()) / total);
  }
  return use;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const StepProfile& profile,
                 const ExchangeCosts& costs,
                 const Plan& plan,
                 const SimulateOptions& options)
      : profile_(profile),
        costs_(costs),
        plan_(plan),
        options_(options),
        use_(bucket_use(profile, plan)),
        sharded_(options.sharding != Sharding::kNone),
        parameters_sharded_(options.sharding == Sharding::kParameters),
        across_(options.schedule == Schedule::kPriority) {
    result_.program.slowdown = costs.compute_slowdown;
    result_.program.streams =
        options.streams > 0
            ? static_cast<std::uint32_t>(options.streams)
            : static_cast<std::uint32_t>(std::max<std::size_t>(1, plan.buckets.size()));
    result_.bucket_of_tensor = use_.bucket_of_tensor;
  }

  StepProgram build(std::size_t steps) {
    for (step_ = 0; step_ < steps; ++step_) {
      result_.first_task_of_step.push_back(next_task());
      gradients_ = result_.exchanges.size();
      result_.gradients_of_step.push_back(gradients_);
      for (std::uint32_t b = 0; b < plan_.buckets.size(); ++b) {
        add_exchange(sharded_ ? Collective::kReduceScatter : Collective::kAllReduce, b);
      }
      add_task(RecordKind::kForward, kForwardName, 0.0);  // marks the begin, before any wait
      // Passes that neither wait nor communicate are one piece, however many they are.
      const int between = parameters_sharded_ ? 0 : std::max(0, options_.accumulate - 2);
      for (int pass = 0; pass < options_.accumulate - between; ++pass) {
        forward(pass == 0);
        backward(pass + 1 == options_.accumulate - between);
        if (pass == 0 && between > 0) {
          add_task(RecordKind::kCompute, kBetweenName, between * profile_.backward_end.count());
        }
      }
      previous_gradients_ = gradients_;
      if (!across_) {
        update_all();
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::uint32_t next_task() const {
    return static_cast<std::uint32_t>(result_.program.tasks.size());
  }

  /// Waits and releases added before belong to it.
  void add_task(RecordKind kind,
                const std::string& name,
                double work_s,
                std::size_t tensors_begin = 0,
                std::size_t tensors_end = 0) {
    Program& program = result_.program;
    program.tasks.push_back({std::max(0.0, work_s),
                             waits_begin_,
                             static_cast<std::uint32_t>(program.waits.size()),
                             releases_begin_,
                             static_cast<std::uint32_t>(program.releases.size())});
    waits_begin_ = static_cast<std::uint32_t>(program.waits.size());
    releases_begin_ = static_cast<std::uint32_t>(program.releases.size());
    result_.tasks.push_back({kind, &name, step_, tensors_begin, tensors_end});
  }
  void wait_for(std::size_t exchange) {
    result_.program.waits.push_back(static_cast<std::uint32_t>(exchange));
  }
  void release(std::size_t exchange) {
    result_.program.releases.push_back(static_cast<std::uint32_t>(exchange));
  }

  std::size_t add_exchange(Collective collective, std::uint32_t bucket) {
    const ExchangeTime& cost = collective == Collective::kAllReduce       ? costs_.all_reduce
                               : collective == Collective::kReduceScatter ? costs_.reduce_scatter
                                                                          : costs_.all_gather;
    const Bytes size = plan_.buckets[bucket].bytes();
    const CodecCost* const codec = costs_.codec(plan_.buckets[bucket].codec);
    const double whole = codec != nullptr ? (*codec)(size).count() : cost(size).count();
    const double latency = std::min(
        whole, codec != nullptr ? codec->off_wire(size).count() : cost.latency(size).count());
    ExchangeTask task;
    task.latency_s = latency;
    task.wire_s = whole - latency;
    if (options_.segment > Bytes(0) && size > Bytes(0)) {
      task.segment_s = task.wire_s * static_cast<double>(options_.segment.count()) /
                       static_cast<double>(size.count());
    }
    task.urgency = across_ ? -static_cast<std::int32_t>(use_.first_layer[bucket])
                           : plan_.buckets[bucket].priority;
    task.stream = bucket % result_.program.streams;
    result_.program.exchanges.push_back(task);
    result_.exchanges.push_back({collective, bucket, step_});
    return result_.exchanges.size() - 1;
  }

  /// One bucket's share of the optimizer, on what this rank holds.
  [[nodiscard]] double update_s(std::uint32_t bucket) const {
    const double whole = (profile_.compute_end - profile_.backward_end).count();
    return whole * use_.share[bucket] / (sharded_ ? costs_.ranks : 1);
  }

  /// Of the step before, what layer `layer` and those before it read: updated and on its way.
  void update_for(std::size_t layer) {
    const std::size_t ahead =
        layer + (sharded_ ? static_cast<std::size_t>(options_.prefetch) : std::size_t{0});
    for (; updated_layers_ < use_.by_layer.size() && updated_layers_ <= ahead; ++updated_layers_) {
      for (const std::uint32_t b : use_.by_layer[updated_layers_]) {
        wait_for(previous_gradients_ + b);
        if (sharded_ && !parameters_sharded_) {
          gathered_[b] = add_exchange(Collective::kAllGather, b);
          release(gathered_[b]);
        }
        add_task(RecordKind::kOptimizer, kOptimizerName, update_s(b));
      }
    }
  }

  void forward(bool first_pass) {
    const bool first_use = across_ && step_ > 0 && first_pass;
    updated_layers_ = first_use ? 0 : use_.by_layer.size();
    if (first_use) {
      gathered_.assign(plan_.buckets.size(), kNoExchange);
    }
    begin_gathers(false);
    double at = 0.0;
    const double end = profile_.forward_end.count();
    for (std::size_t l = 0; l < profile_.forward.size(); ++l) {
      update_for(l);
      gather_for(use_.layer_needs[l]);
      if (first_use && sharded_ && !parameters_sharded_) {
        for (const std::uint32_t b : use_.layer_needs[l]) {
          wait_for(gathered_[b]);
        }
      }
      const double until = std::min(end, at + profile_.forward[l].forward.count());
      add_task(RecordKind::kForward, profile_.forward[l].name, until - at);
      at = until;
    }
    if (profile_.forward.empty()) {
      update_for(use_.by_layer.size());
      gather_for(use_.layer_needs[0]);
    }
    add_task(RecordKind::kForward, kForwardName, end - at);
  }

  void backward(bool communicates) {
    begin_gathers(true);
    double at = profile_.forward_end.count();
    const std::size_t tensors = profile_.tensors.size();
    for (std::size_t i = 0; i < tensors;) {
      // Tensors that are ready at the same moment end one task.
      std::size_t next = i + 1;
      while (next < tensors && profile_.tensors[next].ready <= profile_.tensors[i].ready) {
        ++next;
      }
      if (parameters_sharded_) {
        for (std::size_t k = i; k < next; ++k) {
          if (use_.bucket_of_tensor[k] != kNoId) {
            gather_for({use_.bucket_of_tensor[k]});
          }
        }
      }
      if (communicates && options_.schedule != Schedule::kSerial) {
        for (std::size_t k = i; k < next; ++k) {
          for (const std::uint32_t b : use_.by_last_tensor[k]) {
            release(gradients_ + b);
          }
        }
      }
      const double until = std::max(at, profile_.tensors[i].ready.count());
      add_task(RecordKind::kBackward,
               profile_.tensors[i].name,
               until - at,
               communicates ? i : 0,
               communicates ? next : 0);
      at = until;
      i = next;
    }
    if (communicates && options_.schedule == Schedule::kSerial) {
      for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
        release(gradients_ + b);
      }
    }
    add_task(RecordKind::kBackward, kBackwardName, profile_.backward_end.count() - at);
  }

  // ZeRO-3: all-gathers of parameters, launched `prefetch` buckets before they are used.

  void begin_gathers(bool backward) {
    if (!parameters_sharded_) {
      return;
    }
    order_.resize(plan_.buckets.size());
    for (std::uint32_t b = 0; b < order_.size(); ++b) {
      order_[b] = b;
    }
    const std::vector<std::size_t>& key = backward ? use_.first_tensor : use_.first_layer;
    std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
      return key[a] < key[b];
    });
    position_.assign(order_.size(), 0);
    for (std::size_t k = 0; k < order_.size(); ++k) {
      position_[order_[k]] = k;
    }
    gathered_.assign(plan_.buckets.size(), kNoExchange);
    launched_ = 0;
    launch_gathers(static_cast<std::size_t>(options_.prefetch));
    add_task(backward ? RecordKind::kBackward : RecordKind::kForward,
             backward ? kBackwardName : kForwardName,
             0.0);
  }

  void launch_gathers(std::size_t count) {
    for (; launched_ < std::min(count, order_.size()); ++launched_) {
      const std::uint32_t b = order_[launched_];
      gathered_[b] = add_exchange(Collective::kAllGather, b);
      release(gathered_[b]);
    }
  }

  /// What comes next reads these buckets.
  void gather_for(const std::vector<std::uint32_t>& buckets) {
    if (!parameters_sharded_) {
      return;
    }
    for (const std::uint32_t b : buckets) {
      launch_gathers(position_[b] + 1 + static_cast<std::size_t>(options_.prefetch));
    }
    add_task(RecordKind::kCompute, kEndName, 0.0);  // launched before what is about to be computed
    for (const std::uint32_t b : buckets) {
      wait_for(gathered_[b]);
    }
  }

  /// The optimizer after backward, and the end of the step.
  void update_all() {
    const bool follows = optimizer_follows(profile_, options_);
    if (!follows) {
      for (std::uint32_t b = 0; b < plan_.buckets.size(); ++b) {
        wait_for(gradients_ + b);
      }
    }
    double rest =
        (profile_.compute_end - profile_.backward_end).count() / (sharded_ ? costs_.ranks : 1);
    const bool gathers = sharded_ && !parameters_sharded_;
    const std::size_t first_gather = result_.exchanges.size();
    if (follows || gathers) {
      for (std::uint32_t b = 0; b < plan_.buckets.size(); ++b) {
        if (follows) {
          wait_for(gradients_ + b);
        }
        if (gathers) {
          release(add_exchange(Collective::kAllGather, b));
        }
        add_task(RecordKind::kOptimizer, kOptimizerName, update_s(b));
        rest -= update_s(b);
      }
    }
    if (gathers) {
      for (std::size_t x = first_gather; x < result_.exchanges.size(); ++x) {
        wait_for(x);
      }
    }
    const bool something_left = rest > 1e-12 * profile_.compute_end.count();
    add_task(RecordKind::kOptimizer, kOptimizerName, something_left ? rest : 0.0);
  }

  static constexpr std::size_t kNoExchange = static_cast<std::size_t>(-1);

  const StepProfile& profile_;
  const ExchangeCosts& costs_;
  const Plan& plan_;
  const SimulateOptions& options_;
  BucketUse use_;
  bool sharded_;
  bool parameters_sharded_;
  bool across_;
  StepProgram result_;
  std::size_t step_ = 0;
  std::uint32_t waits_begin_ = 0;
  std::uint32_t releases_begin_ = 0;
  std::size_t gradients_ = 0;           // the step's first gradient exchange
  std::size_t previous_gradients_ = 0;  // of the step before
  std::size_t updated_layers_ = 0;
  std::vector<std::size_t> gathered_;  // the all-gather of each bucket that counts now
  std::vector<std::uint32_t> order_;   // in which buckets are needed
  std::vector<std::size_t> position_;
  std::size_t launched_ = 0;
};

}  // namespace

StepProgram step_program(const StepProfile& profile,
                         const ExchangeCosts& costs,
                         const Plan& plan,
                         const SimulateOptions& options,
                         std::size_t steps) {
  return ProgramBuilder(profile, costs, plan, options).build(steps);
}

}  // namespace stretto::detail
