// SPDX-License-Identifier: Apache-2.0
// What a Session refuses, and how it says so.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/run/session_impl.hpp"

namespace stretto {
namespace {

std::string runnable_names() {
  std::vector<std::string_view> names = {to_string(Algorithm::kAuto)};
  for (const Algorithm algorithm : runnable_algorithms(Collective::kAllReduce)) {
    names.push_back(to_string(algorithm));
  }
  return join(names);
}

// Tensors as an error message lists them.
std::string name_some(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kShown) {
    text += " and " + std::to_string(names.size() - kShown) + " more";
  }
  return text;
}

}  // namespace

void Session::Impl::check_types(const Plan& checked) const {
  if (options.schedule == Schedule::kPriority && options.verify_every > 0 &&
      communicator.ordering() == Ordering::kTotal) {
    throw Error(ErrorCode::kUnavailable,
                {"this backend cannot repeat a reduction whenever a rank comes to it",
                 "verify_every " + std::to_string(options.verify_every) + ", schedule priority",
                 std::string(communicator.backend()),
                 "shm or mpi",
                 "Verify under the schedule overlap."});
  }
  for (std::size_t b = 0; b < checked.buckets.size(); ++b) {
    if (!can_run(Collective::kAllReduce, checked.buckets[b].algorithm)) {
      throw Error(ErrorCode::kUnavailable,
                  {"no communicator runs all_reduce by that algorithm",
                   "bucket " + std::to_string(b),
                   std::string(to_string(checked.buckets[b].algorithm)),
                   runnable_names(),
                   "simulate() predicts it."});
    }
  }
  if (options.shard_optimizer) {
    check_sharding(checked);
  }
  for (std::size_t b = 0; b < checked.buckets.size(); ++b) {
    check_codec(checked.buckets[b], b);
  }
  for (const TensorSpec& tensor : checked.tensors) {
    if (options.op == ReduceOp::kMean && !is_floating(tensor.dtype)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {"the mean of integers is not defined",
           "tensor '" + tensor.name + "'",
           std::string(to_string(tensor.dtype)),
           "a floating type",
           "Use SessionOptions{.op = ReduceOp::kSum}, or leave the tensor out of the plan."});
    }
  }
}

void Session::Impl::check_sharding(const Plan& checked) const {
  const auto refuse = [](const std::string& found, const std::string& expected) {
    throw Error(ErrorCode::kUnavailable,
                {"the optimizer cannot be sharded so", "shard_optimizer", found, expected, ""});
  };
  if (communicator.ordering() == Ordering::kTotal) {
    refuse("backend " + std::string(communicator.backend()), "shm or mpi");
  }
  if (options.verify_every > 0) {
    refuse("verify_every " + std::to_string(options.verify_every), "0");
  }
  for (std::size_t b = 0; b < checked.buckets.size(); ++b) {
    if (!in_halves(checked.buckets[b])) {
      const Bucket& bucket = checked.buckets[b];
      refuse("bucket " + std::to_string(b) + ", algorithm " +
                 std::string(to_string(bucket.algorithm)) +
                 (bucket.codec.lossy() ? ", codec " + to_string(bucket.codec) : std::string()),
             "an algorithm with reduce_scatter and all_gather (direct, ring...), no codec");
    }
  }
}

void Session::Impl::check_codec(const Bucket& bucket, std::size_t b) const {
  if (!bucket.codec.lossy()) {
    return;
  }
  const std::string where = "bucket " + std::to_string(b) + ", codec " + to_string(bucket.codec);
  if (communicator.ordering() == Ordering::kTotal) {
    throw Error(ErrorCode::kUnavailable,
                {"this backend has no codecs",
                 where,
                 std::string(communicator.backend()),
                 "shm or mpi",
                 "Leave the codec out."});
  }
  if (options.op != ReduceOp::kMean && options.op != ReduceOp::kSum) {
    throw Error(ErrorCode::kInvalidArgument,
                {"encoded gradients can be added only",
                 where,
                 std::string(to_string(options.op)),
                 "sum or mean",
                 ""});
  }
  if (!can_ride(bucket.codec, bucket.algorithm)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"this codec has an exchange of its own",
                 where,
                 "algorithm " + std::string(to_string(bucket.algorithm)),
                 "direct or auto",
                 ""});
  }
  if (options.verify_every > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a codec loses bits, and verify_every compares them",
                 where,
                 "verify_every " + std::to_string(options.verify_every),
                 "0",
                 "Verify without codecs."});
  }
}

// What ranks must have in common for their results to be alike.
std::string Session::Impl::describe(const SessionOptions& options) {
  return "op " + std::string(to_string(options.op)) + ", schedule " +
         std::string(to_string(options.schedule)) + ", streams " + std::to_string(options.streams) +
         ", verify_every " + std::to_string(options.verify_every) + ", reduce_first " +
         (options.reduce_first ? "yes" : "no") + ", shard_optimizer " +
         (options.shard_optimizer ? "yes" : "no") + ", codec_start " +
         std::to_string(options.codec_start) + ", optimizer_momentum " +
         std::to_string(options.optimizer_momentum);
}

std::string Session::Impl::here(std::uint32_t b) const {
  std::string text = "step " + std::to_string(b == kNothing ? step : travelling());
  if (b != kNothing) {
    text += ", bucket " + std::to_string(b);
  }
  return text;
}

// Fails the job because of something this rank did, and throws it.
void Session::Impl::stop_job(ErrorCode code, ErrorDetail detail, std::uint32_t b) {
  detail.where = "rank " + std::to_string(communicator.rank()) + ", " + here(b);
  Error error(code, std::move(detail));
  broken = true;
  communicator.abort(error, b == kNothing ? step : travelling(), b == kNothing ? 0xffffffffU : b);
  throw error;  // NOLINT(misc-throw-by-value-catch-by-reference): needed by abort() as well
}

bool Session::Impl::in_halves(const Bucket& bucket) const {
  // A table says what all_reduce is to travel by; its halves would all be direct.
  const bool by_table =
      bucket.algorithm == Algorithm::kAuto && !communicator.algorithm_table().rules.empty();
  return ((options.schedule == Schedule::kPriority && !by_table) || options.shard_optimizer) &&
         communicator.ordering() == Ordering::kAddressed && !bucket.codec.lossy() &&
         can_run(Collective::kReduceScatter, bucket.algorithm) &&
         can_run(Collective::kAllGather, bucket.algorithm);
}

void Session::Impl::check_whole() const {
  if (broken) {
    throw Error(ErrorCode::kInvalidArgument,
                {"this Session failed before", here(kNothing), "", "", "Make a new one."});
  }
}

void Session::Impl::check_norm() const {
  for (const TensorSpec& tensor : plan.tensors) {
    if (!is_floating(tensor.dtype)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the norm of gradients that are no floating numbers",
                   "tensor '" + tensor.name + "'",
                   std::string(to_string(tensor.dtype)),
                   "a floating type",
                   ""});
    }
  }
  // What was taken already, on_bucket() may have changed.
  const bool late =
      options.schedule == Schedule::kPriority && on_bucket && !buckets.empty() &&
      (!unsettled.load(std::memory_order_relaxed) ||
       std::any_of(buckets.begin(), buckets.end(), [](const auto& each) { return each.taken; }));
  if (step == 0 || step_is_open() || late) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no finished step whose gradients are all as they were reduced",
                 here(kNothing),
                 step == 0 ? "no step finished"
                 : late    ? "buckets taken already"
                           : "gradients ready already",
                 "gradient_norm() right after finish()",
                 ""});
  }
}

void Session::Impl::check_ready() {
  if (const std::uint32_t i = ready_early.load(std::memory_order_relaxed); i != kNothing) {
    std::vector<std::string> left;
    for (std::size_t other = 0; other < plan.tensors.size(); ++other) {
      const std::vector<std::uint32_t>& in = tensor_buckets[other];
      if (std::any_of(in.begin(), in.end(), [&](std::uint32_t b) { return !buckets[b].taken; })) {
        left.push_back(plan.tensors[other].name);
      }
    }
    stop_job(ErrorCode::kInvalidArgument,
             {"a gradient was reported ready while others of the step before still travelled",
              "",
              "'" + plan.tensors[i].name + "' ready, not waited for: " + name_some(left),
              "wait(i) for every tensor, or drain(), between finish() and the next ready()",
              "Under the schedule priority the forward pass waits for each layer's parameters."},
             kNothing);
  }
  if (const std::uint32_t i = ready_twice.load(std::memory_order_relaxed); i != kNothing) {
    if (i >= plan.tensors.size()) {
      stop_job(ErrorCode::kInvalidArgument,
               {"ready() was called for a tensor the plan does not have",
                "",
                std::to_string(i),
                "an index below " + std::to_string(plan.tensors.size()),
                ""},
               kNothing);
    }
    stop_job(
        ErrorCode::kReadyTwice,
        {"a gradient was reported ready twice in one step",
         "",
         "tensor '" + plan.tensors[i].name + "' twice",
         "once per step",
         "Shared parameters: call ready() after the last contribution only. Accumulation: hold "
         "accumulate() during all micro-batches but the last."},
        tensor_buckets[i].empty() ? kNothing : tensor_buckets[i].front());
  }
  std::vector<std::string> missing;
  std::uint32_t first = kNothing;
  for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
    if (tensor_marks[i].load(std::memory_order_relaxed) != mark()) {
      missing.push_back(plan.tensors[i].name);
      if (first == kNothing && !tensor_buckets[i].empty()) {
        first = tensor_buckets[i].front();
      }
    }
  }
  if (!missing.empty() && holds.load(std::memory_order_relaxed) > 0) {
    stop_job(ErrorCode::kNeverReady,
             {"finish() was called while accumulate() is held",
              "",
              "no gradient reported",
              "the last micro-batch outside it",
              "End the Hold before the last backward pass."},
             kNothing);
  }
  if (!missing.empty()) {
    const std::string count =
        std::to_string(missing.size()) + " of " + std::to_string(plan.tensors.size());
    stop_job(ErrorCode::kNeverReady,
             {"finish() was called before all gradients were ready",
              "",
              count + " not ready: " + name_some(missing),
              "ready() for every tensor",
              "For a parameter that took no part in the step, write zeros and call ready()."},
             first);
  }
}

}  // namespace stretto
