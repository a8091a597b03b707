// SPDX-License-Identifier: Apache-2.0
#include "stretto/simulate/pipeline.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"

namespace stretto {
namespace {

struct Turn {
  int chunk = 0;
  int micro_batch = 0;
  bool backward = false;
};

struct Shape {
  int stages = 1;
  int chunks_per_stage = 1;
  int micro_batches = 1;
};

[[noreturn]] void bad_work(std::string message, std::string found, std::string expected) {
  throw Error(ErrorCode::kInvalidArgument,
              {.message = std::move(message),
               .where = "pipeline",
               .found = std::move(found),
               .expected = std::move(expected),
               .help = {}});
}

Shape check(const PipelineWork& work) {
  const auto chunks = static_cast<int>(work.forward.size());
  if (work.stages < 1 || work.micro_batches < 1) {
    bad_work("nothing to run",
             std::to_string(work.stages) + " stages, " + std::to_string(work.micro_batches) +
                 " micro-batches",
             "1 or more of each");
  }
  if (chunks == 0 || chunks % work.stages != 0 || work.backward.size() != work.forward.size()) {
    bad_work(
        "the chunks do not fit the stages",
        std::to_string(chunks) + " forward, " + std::to_string(work.backward.size()) + " backward",
        "a multiple of " + std::to_string(work.stages) + ", of both");
  }
  const auto negative = [](Seconds time) { return !(time >= Seconds(0)); };
  if (negative(work.send) || std::any_of(work.forward.begin(), work.forward.end(), negative) ||
      std::any_of(work.backward.begin(), work.backward.end(), negative)) {
    bad_work("a time is negative", "below 0", "0 or more");
  }
  const int per_stage = chunks / work.stages;
  if (work.schedule != PipelineSchedule::kInterleaved && per_stage > 1) {
    bad_work(
        "several chunks per stage need the interleaved schedule", std::to_string(per_stage), "1");
  }
  if (work.schedule == PipelineSchedule::kInterleaved && work.micro_batches % work.stages != 0) {
    bad_work("the interleaved schedule takes micro-batches in groups of the number of stages",
             std::to_string(work.micro_batches),
             "a multiple of " + std::to_string(work.stages));
  }
  return {work.stages, per_stage, work.micro_batches};
}

/// Forward passes before the first backward one.
int warm_up(const PipelineWork& work, const Shape& shape, int stage) {
  const int total = shape.micro_batches * shape.chunks_per_stage;
  if (work.schedule == PipelineSchedule::kGPipe) {
    return total;
  }
  const int behind = shape.stages - 1 - stage;
  if (shape.chunks_per_stage == 1) {
    return std::min(behind, total);
  }
  return std::min(2 * behind + (shape.chunks_per_stage - 1) * shape.stages, total);
}

/// The k-th pass of one direction on a stage: chunks take turns in groups of p micro-batches.
Turn pass(const Shape& shape, int stage, int k, bool backward) {
  const int group = shape.stages * shape.chunks_per_stage;
  int chunk = k % group / shape.stages;
  if (backward) {
    chunk = shape.chunks_per_stage - 1 - chunk;
  }
  if (shape.chunks_per_stage == 1) {
    return {stage, k, backward};
  }
  return {chunk * shape.stages + stage, k / group * shape.stages + k % shape.stages, backward};
}

std::vector<Turn> turns(const PipelineWork& work, const Shape& shape, int stage) {
  const int total = shape.micro_batches * shape.chunks_per_stage;
  std::vector<Turn> result;
  result.reserve(2 * static_cast<std::size_t>(total));
  int forward = 0;
  for (; forward < warm_up(work, shape, stage); ++forward) {
    result.push_back(pass(shape, stage, forward, false));
  }
  for (int backward = 0; backward < total; ++backward) {
    if (forward < total) {
      result.push_back(pass(shape, stage, forward++, false));
    }
    result.push_back(pass(shape, stage, backward, true));
  }
  return result;
}

constexpr Seconds kNotYet(-1.0);

/// When each pass of each chunk ended.
class Ends {
 public:
  explicit Ends(const PipelineWork& work)
      : work_(work),
        chunks_(work.forward.size()),
        ends_(2 * chunks_ * static_cast<std::size_t>(work.micro_batches), kNotYet) {}

  [[nodiscard]] Seconds& of(const Turn& turn) {
    const auto pass =
        static_cast<std::size_t>(turn.micro_batch) * chunks_ + static_cast<std::size_t>(turn.chunk);
    return ends_[2 * pass + (turn.backward ? 1 : 0)];
  }

  /// When the input of `turn` is there, or kNotYet.
  [[nodiscard]] Seconds ready(const Turn& turn) {
    const auto last = static_cast<int>(chunks_) - 1;
    if (!turn.backward && turn.chunk == 0) {
      return Seconds(0);
    }
    Turn before = turn;
    if (!turn.backward) {
      --before.chunk;
    } else if (turn.chunk == last) {
      before.backward = false;
      return of(before);
    } else {
      ++before.chunk;
    }
    const Seconds end = of(before);
    return end < Seconds(0) || work_.stages == 1 ? end : end + work_.send;
  }

 private:
  const PipelineWork& work_;
  std::size_t chunks_;
  std::vector<Seconds> ends_;
};

struct Stage {
  std::vector<Turn> turns;
  std::size_t next = 0;
  Seconds now{};
  Seconds busy{};
  std::vector<PipelineOp> ops;
};

/// Runs what can run. @returns whether anything did.
bool advance(const PipelineWork& work, Ends& ends, int index, Stage& stage) {
  const std::size_t first = stage.next;
  for (; stage.next < stage.turns.size(); ++stage.next) {
    const Turn& turn = stage.turns[stage.next];
    const Seconds ready = ends.ready(turn);
    if (ready < Seconds(0)) {
      break;
    }
    const auto& times = turn.backward ? work.backward : work.forward;
    const Seconds time = times[static_cast<std::size_t>(turn.chunk)];
    const Seconds begin = std::max(stage.now, ready);
    stage.now = begin + time;
    stage.busy += time;
    ends.of(turn) = stage.now;
    stage.ops.push_back({index, turn.chunk, turn.micro_batch, turn.backward, begin, stage.now});
  }
  return stage.next > first;
}

}  // namespace

PipelineRun simulate_pipeline(const PipelineWork& work) {
  const Shape shape = check(work);
  std::vector<Stage> stages(static_cast<std::size_t>(work.stages));
  for (int i = 0; i < work.stages; ++i) {
    stages[static_cast<std::size_t>(i)].turns = turns(work, shape, i);
  }
  Ends ends(work);
  for (bool any = true; any;) {
    any = false;
    for (int i = 0; i < work.stages; ++i) {
      any = advance(work, ends, i, stages[static_cast<std::size_t>(i)]) || any;
    }
  }
  PipelineRun run;
  Seconds busiest{};
  for (const Stage& stage : stages) {
    run.ops.insert(run.ops.end(), stage.ops.begin(), stage.ops.end());
    run.end = std::max(run.end, stage.now);
    busiest = std::max(busiest, stage.busy);
  }
  if (busiest > Seconds(0)) {
    run.bubble = run.end / busiest - 1.0;
  }
  return run;
}

Seconds pipeline_bound(const PipelineWork& work) {
  const Shape shape = check(work);
  Seconds bound{};
  Seconds way{};
  for (int i = 0; i < shape.stages; ++i) {
    Seconds all{};
    for (auto chunk = static_cast<std::size_t>(i); chunk < work.forward.size();
         chunk += static_cast<std::size_t>(shape.stages)) {
      all += work.forward[chunk] + work.backward[chunk];
    }
    bound = std::max(bound, shape.micro_batches * all + way);
    const auto first = static_cast<std::size_t>(i);
    way += work.forward[first] + work.backward[first] + 2.0 * work.send;
  }
  return bound;
}

}  // namespace stretto
