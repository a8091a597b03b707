// SPDX-License-Identifier: Apache-2.0
// Momentum correction: what is in flight when a bucket's codec changes.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/world.hpp"
#include "run/session_steps.hpp"
#include "stretto/compress/residual_state.hpp"

namespace stretto::testing {
namespace {

constexpr Bytes kCap(5000);
constexpr std::uint32_t kBefore = 3;
constexpr std::size_t kTensor = 1;  // of those with 2000 elements

Plan plan_with(const std::string& codec,
               Algorithm algorithm = Algorithm::kDirect,
               Bytes cap = kCap) {
  Plan plan = uniform_plan(model(), cap);
  for (Bucket& bucket : plan.buckets) {
    bucket.algorithm = algorithm;
    if (bucket.dtype == DType::kF32) {
      bucket.codec = parse_codec(codec);
    }
  }
  return plan;
}

double momentum_of(const std::string& codec) {
  return parse_codec(codec).momentum;
}

/// How far a training moves weights, over the learning rate: gradients times 1 / (1 - momentum),
/// whoever applies it.
class Weights {
 public:
  explicit Weights(double optimizer_momentum) : moves_(1.0 / (1.0 - optimizer_momentum)) {}

  /// Gradients of step `step`, or zeros, under plan codec `codec`.
  void step(Session& session, int rank, std::uint32_t step, bool zeros, const std::string& codec) {
    fill(session, rank, step);
    for (std::size_t i = 0; zeros && i < session.tensors(); ++i) {
      if (session.gradient(i).count != 0) {
        std::memset(session.gradient(i).data, 0, session.gradient(i).size_bytes());
      }
    }
    ready_in_order(session);
    session.finish();
    arrived(session, codec);
  }
  void arrived(Session& session, const std::string& codec) {
    const std::span<const float> values = as_span<float>(session.gradient(kTensor));
    const double moves = momentum_of(codec) > 0.0 ? 1.0 : moves_;
    for (std::size_t k = 0; k < moved.size(); ++k) {
      moved[k] += moves * static_cast<double>(values[k]);
    }
  }

  std::vector<double> moved = std::vector<double>(2000);

 private:
  double moves_;
};

/// Mean over ranks of how far what was not sent yet will move weights; `moves` says it of an
/// element: its index, residual and velocity.
template <typename Moves>
std::vector<double> in_flight(const Session& session, Communicator& communicator, Moves moves) {
  const ResidualState state = residual_state_from_bytes(session.compression_state(), "test");
  const ResidualState::Tensor& tensor = state.tensors.at(kTensor);
  const auto at = [](const std::vector<float>& values, std::size_t k) {
    return values.empty() ? 0.0 : static_cast<double>(values[k]);
  };
  std::vector<double> result(tensor.own.size());
  for (std::size_t k = 0; k < result.size(); ++k) {
    result[k] = moves(k, at(tensor.own, k) + at(tensor.sums, k), at(tensor.velocity, k));
  }
  communicator.all_reduce(view(std::span<double>(result)), ReduceOp::kMean).wait();
  return result;
}

void add(std::vector<double>& to, const std::vector<double>& values) {
  for (std::size_t k = 0; k < to.size(); ++k) {
    to[k] += values[k];
  }
}

/// All that a velocity adds to what it is: momentum + momentum^2 + ...
double still_to_come(double momentum) {
  return momentum / (1.0 - momentum);
}

void compare(const std::vector<double>& found,
             const std::vector<double>& wanted,
             const std::string& what) {
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    ASSERT_NEAR(found[k], wanted[k], 1e-4 * (1.0 + std::abs(wanted[k]))) << what << ", " << k;
  }
}

struct Change {
  const char* before;
  const char* after;
  double optimizer;  // its momentum
};

TEST(SessionMomentum, InFlightMovesWeightsAsFarWhateverCodecComesNext) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const int rank = communicator.rank();
    for (const Change& change : {Change{"topk:0.1:momentum=0.9", "none", 0.0},
                                 {"topk:0.1:momentum=0.9", "none", 0.9},
                                 {"randomk:0.2:momentum=0.5", "none", 0.5},
                                 {"threshold:1rms:momentum=0.5", "topk:1.0", 0.0},
                                 {"topk:0.1:momentum=0.9", "topk:1.0", 0.9},
                                 {"topk:0.1:momentum=0.9", "topk:1.0:momentum=0.5", 0.9},
                                 {"topk:0.1", "topk:1.0:momentum=0.5", 0.5},
                                 {"onebit", "none", 0.5}}) {
      const std::string before = change.before;
      const std::string after = change.after;
      const std::string what = before + " to " + after;
      SessionOptions options;
      options.optimizer_momentum = change.optimizer;
      Session session(communicator, plan_with(before), options);
      Weights weights(change.optimizer);
      for (std::uint32_t step = 0; step < kBefore; ++step) {
        weights.step(session, rank, step, false, before);
      }
      const double old = momentum_of(before);
      std::vector<double> wanted = weights.moved;
      add(wanted, in_flight(session, communicator, [&](std::size_t, double own, double velocity) {
            return old > 0.0 ? own + still_to_come(old) * velocity : own / (1.0 - change.optimizer);
          }));
      // What replan() does, and taking up the state in a job with the other codec.
      const std::vector<std::byte> state = session.compression_state();
      Session resumed(communicator, plan_with(after, Algorithm::kDirect, Bytes(3000)), options);
      resumed.restore_compression({&state, 1});
      Weights then = weights;
      session.replan(plan_with(after, Algorithm::kDirect, Bytes(3000)));
      for (std::uint32_t step = kBefore; step < kBefore + 2; ++step) {
        weights.step(session, rank, step, true, after);
        then.step(resumed, rank, step, true, after);
      }
      compare(weights.moved, wanted, what);
      compare(then.moved, wanted, what + ", restored");
    }
  });
}

TEST(SessionMomentum, AStepThatPaidWhatWasInFlightCanBeUndone) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    const std::string codec = "topk:0.1:momentum=0.9";
    Session session(communicator, plan_with(codec));
    Weights weights(0.0);
    for (std::uint32_t step = 0; step < kBefore; ++step) {
      weights.step(session, communicator.rank(), step, false, codec);
    }
    std::vector<double> wanted = weights.moved;
    add(wanted, in_flight(session, communicator, [](std::size_t, double own, double velocity) {
          return own + still_to_come(0.9) * velocity;
        }));
    session.replan(plan_with("none"));
    Weights left_out(0.0);
    left_out.step(session, communicator.rank(), 7, false, "none");
    session.undo_compression();
    // Back to the codec, and away from it again: nothing is paid twice.
    session.replan(plan_with(codec));
    session.replan(plan_with("none"));
    weights.step(session, communicator.rank(), kBefore, true, "none");
    weights.step(session, communicator.rank(), kBefore + 1, true, "none");
    compare(weights.moved, wanted, codec);
  });
}

TEST(SessionMomentum, InFlightOfSharesThatAnotherRankEncodesFromNowOnTravels) {
  ShmOptions options = test_options();
  options.emulate = machine_from_text("2x2@intra=20GB/s,2us@inter=10Gbit/s,5us");
  run_threads(4, options, [](Communicator& communicator) {
    const int rank = communicator.rank();
    const std::string before = "topk:0.1:momentum=0.5";
    const std::string after = "topk:1.0:momentum=0.5";
    for (const auto& [from, to] : {std::pair(Algorithm::kDirect, Algorithm::kHierarchical),
                                   std::pair(Algorithm::kHierarchical, Algorithm::kDirect)}) {
      Session session(communicator, plan_with(before, from));
      Weights weights(0.0);
      for (std::uint32_t step = 0; step < kBefore; ++step) {
        weights.step(session, rank, step, false, before);
      }
      const Plan next = plan_with(after, to);
      const bool nodes = to == Algorithm::kHierarchical;
      const auto encodes = [&](std::size_t k) {  // this rank, element k of the tensor
        const std::int64_t element = next.offsets()[kTensor] + static_cast<std::int64_t>(k);
        for (const Bucket& bucket : next.buckets) {
          if (bucket.dtype == DType::kF32 && bucket.begin <= element && element < bucket.end) {
            const auto count = static_cast<std::size_t>(bucket.end - bucket.begin);
            const Part share = part_of(count, 2, rank % 2);
            const auto at = static_cast<std::size_t>(element - bucket.begin);
            return share.begin <= at && at < share.end;
          }
        }
        return false;
      };
      // A velocity moves the gradient of the next step, which sends all, and ends there. What this
      // rank does not encode any more goes as a whole.
      std::vector<double> wanted = weights.moved;
      add(wanted, in_flight(session, communicator, [&](std::size_t k, double own, double velocity) {
            return own + (nodes && !encodes(k) ? still_to_come(0.5) : 0.5) * velocity;
          }));
      session.replan(next);
      for (std::uint32_t step = kBefore; step < kBefore + 3; ++step) {
        weights.step(session, rank, step, true, after);
      }
      compare(weights.moved, wanted, nodes ? "to hierarchical" : "to direct");
    }
  });
}

TEST(SessionMomentum, TheOptimizersIsANumberBelowOne) {
  run_threads(2, test_options(), [](Communicator& communicator) {
    for (const double wrong : {1.0, -0.1, 2.0}) {
      SessionOptions options;
      options.optimizer_momentum = wrong;
      try {
        const Session session(communicator, plan_with("int8"), options);
        ADD_FAILURE() << wrong;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      }
    }
  });
}

}  // namespace
}  // namespace stretto::testing
