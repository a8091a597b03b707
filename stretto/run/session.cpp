// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/session.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stretto/run/plan_agreement.hpp"
#include "stretto/run/session_impl.hpp"

namespace stretto {

Session::Impl::Impl(Communicator& communicator_in, Plan plan_in, const SessionOptions& options_in)
    : communicator(communicator_in), options(options_in), plan(std::move(plan_in)) {
  plan.validate();
  check_types(plan);
  if (!(options.optimizer_momentum >= 0.0 && options.optimizer_momentum < 1.0)) {
    throw Error(ErrorCode::kInvalidArgument,
                {"an optimizer has no such momentum",
                 "SessionOptions::optimizer_momentum",
                 std::to_string(options.optimizer_momentum),
                 "from 0 to below 1",
                 ""});
  }
  agree_on_plan(communicator, plan);
  agree_on_text(communicator, "the options of the Session", describe(options));
  offsets = plan.offsets();
  std::array<std::int64_t, std::size(kAllDTypes)> elements{};
  for (const TensorSpec& tensor : plan.tensors) {
    elements[static_cast<std::size_t>(tensor.dtype)] += tensor.elements();
  }
  for (const DType dtype : kAllDTypes) {
    const auto index = static_cast<std::size_t>(dtype);
    if (elements[index] > 0) {
      const Bytes size(elements[index] * static_cast<std::int64_t>(size_of(dtype)));
      arenas[index] = communicator.allocate(size);
      if (options.shard_optimizer) {
        parameters[index] = communicator.allocate(size);
      }
    }
  }
  tensor_marks = std::vector<std::atomic<std::uint32_t>>(plan.tensors.size());
  ready_at.resize(plan.tensors.size());
  recorder.emplace(communicator.rank(), communicator.size(), options.record_steps, common_origin());
  for (const TensorSpec& tensor : plan.tensors) {
    tensor_names.push_back(recorder->name_id(tensor.name));
  }
  install();
  recorder->begin_step(0, monotonic_now());
}

// One origin for all ranks. They share a clock: this backend is for one host.
RunOrigin Session::Impl::common_origin() {
  const RunOrigin here = origin_now();
  std::array<std::int64_t, 2> both = {here.monotonic.count(), here.unix_ns};
  communicator.broadcast(view(std::span(both)), 0).wait();
  return {Nanoseconds(both[0]), both[1]};
}

namespace {

// What of a bucket's ranges lies in elements [part.begin, part.end) of it.
std::vector<TensorRange> owned_ranges(const std::vector<TensorRange>& ranges, Part part) {
  std::vector<TensorRange> owned;
  std::int64_t at = 0;
  for (const TensorRange& range : ranges) {
    const std::int64_t length = range.end - range.begin;
    const std::int64_t begin = std::max(at, static_cast<std::int64_t>(part.begin));
    const std::int64_t end = std::min(at + length, static_cast<std::int64_t>(part.end));
    if (begin < end) {
      owned.push_back({range.tensor, range.begin + (begin - at), range.begin + (end - at)});
    }
    at += length;
  }
  return owned;
}

}  // namespace

// Derives everything from the plan. No step may be open.
void Session::Impl::install() {
  buckets = std::deque<BucketState>(plan.buckets.size());
  tensor_buckets.assign(plan.tensors.size(), {});
  bucket_names.clear();
  std::size_t largest = 0;
  const std::vector<std::vector<TensorRange>> ranges = plan.all_ranges();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    BucketState& state = buckets[b];
    const std::size_t element = size_of(bucket.dtype);
    state.view = {arenas[static_cast<std::size_t>(bucket.dtype)]->bytes().data() +
                      static_cast<std::size_t>(bucket.begin) * element,
                  static_cast<std::size_t>(bucket.end - bucket.begin),
                  bucket.dtype,
                  {}};
    state.halves = in_halves(bucket);
    state.ranges = ranges[b];
    if (options.shard_optimizer) {
      state.parameters = state.view;
      state.parameters.data = parameters[static_cast<std::size_t>(bucket.dtype)]->bytes().data() +
                              static_cast<std::size_t>(bucket.begin) * element;
      state.owned = owned_ranges(
          state.ranges, part_of(state.view.count, communicator.size(), communicator.rank()));
    }
    state.tensors = static_cast<int>(state.ranges.size());
    for (const TensorRange& range : state.ranges) {
      state.urgency = std::max(state.urgency, static_cast<int>(range.tensor));
      tensor_buckets[range.tensor].push_back(static_cast<std::uint32_t>(b));
    }
    if (bucket.codec.lossy()) {
      state.compressed = compressed_bucket(communicator,
                                           bucket.codec,
                                           state.view.count,
                                           matrices_in(plan.tensors, state.ranges, bucket.codec));
      if (!residuals) {
        make_residuals();
      }
    }
    largest = std::max(largest, state.view.size_bytes());
    bucket_names.push_back(recorder->name_id("bucket " + std::to_string(b)));
  }
  by_urgency.resize(buckets.size());
  std::iota(by_urgency.begin(), by_urgency.end(), 0U);
  std::stable_sort(by_urgency.begin(), by_urgency.end(), [&](std::uint32_t a, std::uint32_t b) {
    return buckets[a].urgency > buckets[b].urgency;
  });
  if (options.verify_every > 0) {
    verify_copy = communicator.allocate(Bytes(static_cast<std::int64_t>(largest)));
  }
  find_debts();
  open_step();
}

// After residuals have become others. Every rank adds its own, so ranks need not agree.
void Session::Impl::find_debts() {
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    buckets[b].debt = Debt::kNone;
    if (residuals && !bucket.codec.lossy() && bucket.dtype == DType::kF32) {
      const std::span<const float> own = residuals->own_part(static_cast<std::size_t>(bucket.begin),
                                                             static_cast<std::size_t>(bucket.end));
      if (std::any_of(own.begin(), own.end(), [](float value) { return value != 0.0F; })) {
        buckets[b].debt = Debt::kOwed;
      }
    }
  }
}

void Session::Impl::make_residuals() {
  residuals.emplace(arenas[static_cast<std::size_t>(DType::kF32)]->bytes().size() / sizeof(float));
}

void Session::Impl::open_step() {
  for (BucketState& bucket : buckets) {
    bucket.pending.store(bucket.tensors, std::memory_order_relaxed);
    bucket.launched.store(false, std::memory_order_relaxed);
    bucket.reduced = Work();
    bucket.available = Work();
    bucket.taken = false;
    bucket.updated = false;
  }
  ready_buckets.store(0, std::memory_order_relaxed);
  launches.store(0, std::memory_order_relaxed);
  next_in_order = 0;
  encodes = codec_step() >= options.codec_start;
  verified = kNothing;
  if (options.verify_every > 0 && !buckets.empty() && step % options.verify_every == 0) {
    verified = step / options.verify_every % static_cast<std::uint32_t>(buckets.size());
  }
}

bool Session::Impl::step_is_open() const {
  return std::any_of(tensor_marks.begin(), tensor_marks.end(), [&](const auto& each) {
    return each.load(std::memory_order_relaxed) == mark();
  });
}

Session::Session(Communicator& communicator, Plan plan, SessionOptions options)
    : impl_(std::make_unique<Impl>(communicator, std::move(plan), options)) {
  impl_->wait_name = impl_->recorder->name_id("wait");
}

Session::~Session() {
  // Peers may be reading arenas that are about to go. In good order nothing is in flight.
  const bool in_flight =
      std::any_of(impl_->buckets.begin(), impl_->buckets.end(), [this](const auto& bucket) {
        return bucket.launched.load(std::memory_order_acquire) &&
               !(bucket.reduced.done() && bucket.available.done() &&
                 (bucket.updated || !impl_->options.shard_optimizer));
      });
  if (in_flight) {
    impl_->communicator.abort(Error(ErrorCode::kBackend,
                                    {"a Session was destroyed in the middle of a step",
                                     impl_->here(kNothing),
                                     "buckets that still travel",
                                     "finish(), and under the schedule priority drain(), before",
                                     ""}),
                              impl_->travelling(),
                              0xffffffffU);
  }
}

BufferView Session::Impl::tensor_in(
    const std::array<std::unique_ptr<Arena>, std::size(kAllDTypes)>& of, std::size_t i) const {
  const TensorSpec& tensor = plan.tensors.at(i);
  const Arena* const arena = of[static_cast<std::size_t>(tensor.dtype)].get();
  std::byte* const data =
      tensor.elements() == 0
          ? nullptr
          : arena->bytes().data() + static_cast<std::size_t>(offsets[i]) * size_of(tensor.dtype);
  return {data, static_cast<std::size_t>(tensor.elements()), tensor.dtype, {}};
}

BufferView Session::gradient(std::size_t i) const {
  return impl_->tensor_in(impl_->arenas, i);
}

BufferView Session::parameter(std::size_t i) const {
  return impl_->options.shard_optimizer ? impl_->tensor_in(impl_->parameters, i) : BufferView();
}

std::size_t Session::tensors() const noexcept {
  return impl_->plan.tensors.size();
}
const Plan& Session::plan() const noexcept {
  return impl_->plan;
}
void Session::ready(std::size_t i) noexcept {
  impl_->ready(i);
}

void Session::wait(std::size_t i) {
  if (impl_->options.schedule == Schedule::kPriority) {
    impl_->take_for(i);
    return;
  }
  if (impl_->tensor_marks.at(i).load(std::memory_order_relaxed) != impl_->mark()) {
    return;
  }
  const bool in_order = impl_->options.schedule == Schedule::kSerial ||
                        impl_->communicator.ordering() == Ordering::kTotal;
  for (const std::uint32_t b : impl_->tensor_buckets.at(i)) {
    Impl::BucketState& bucket = impl_->buckets[b];
    if (!bucket.launched.load(std::memory_order_acquire) &&
        (in_order || bucket.pending.load(std::memory_order_acquire) > 0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"wait() for a gradient that does not travel yet",
                   impl_->here(b),
                   "tensor '" + impl_->plan.tensors[i].name + "'",
                   "ready() for all tensors of its bucket, and of all before it if the schedule "
                   "keeps an order",
                   "Call finish()."});
    }
    bucket.launched.wait(false, std::memory_order_acquire);
    impl_->await(b, bucket.reduced);
  }
}

void Session::drain() {
  impl_->drain();
}
double Session::gradient_norm() {
  return impl_->gradient_norm();
}

void Session::on_bucket(BucketCallback callback) {
  impl_->on_bucket = std::move(callback);
}
void Session::finish() {
  impl_->finish();
}
std::optional<std::size_t> Session::awaited() const noexcept {
  const std::uint32_t b = impl_->awaited.load(std::memory_order_relaxed);
  return b == kNothing ? std::nullopt : std::optional<std::size_t>(b);
}
std::uint32_t Session::step() const noexcept {
  return impl_->step;
}
Recorder& Session::recorder() noexcept {
  return *impl_->recorder;
}

void Session::reset_recording() {
  impl_->recorder->clear();
  impl_->earlier_counters = {};
  impl_->recorder->begin_step(impl_->step, monotonic_now());
  for (Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed) {
      bucket.compressed->reset_counters();
    }
  }
}

Session::Compression Session::compression() const {
  Compression result;
  result.counters = impl_->earlier_counters;
  for (const Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed) {
      result.counters += bucket.compressed->counters();
    }
  }
  result.residual_norm = impl_->residuals ? impl_->residuals->norm() : 0.0;
  return result;
}

void Session::undo_compression() {
  if (!impl_->residuals) {
    return;
  }
  const bool open = impl_->step_is_open();
  const bool travels = impl_->unsettled.load(std::memory_order_relaxed);
  if (open || travels || !impl_->can_undo) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no finished step to undo",
                 "step " + std::to_string(impl_->step),
                 open      ? "gradients ready already"
                 : travels ? "gradients on their way"
                           : "none finished, or undone before",
                 "right after finish() (under priority, drain()), once",
                 ""});
  }
  impl_->can_undo = false;
  if (!impl_->wrote_residuals) {
    return;  // it travelled as it was
  }
  impl_->residuals->undo();
  for (const Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed && impl_->encoded) {
      bucket.compressed->undo();
    }
  }
  impl_->find_debts();
}

Timeline Session::timeline() const {
  return impl_->recorder->timeline();
}

void Session::replan(Plan plan) {
  plan.validate();
  if (plan.tensors != impl_->plan.tensors) {
    const PlanDifference what = difference(impl_->plan, plan);
    throw Error(ErrorCode::kInvalidArgument,
                {"replan() cuts the same tensors in another way, and these are not the same",
                 what.where,
                 what.found,
                 what.expected,
                 "Make a new Session for other tensors."});
  }
  const bool open = impl_->step_is_open();
  if (open || impl_->holds.load(std::memory_order_relaxed) > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {"replan() between steps only",
                 "step " + std::to_string(impl_->step),
                 open ? "gradients ready already" : "accumulate() held",
                 "a step without ready()",
                 "Call it right after finish()."});
  }
  if (impl_->options.shard_optimizer) {
    throw Error(ErrorCode::kUnavailable,
                {"a sharded optimizer's state belongs to the parts of the plan it was made for",
                 "replan()",
                 "shard_optimizer",
                 "a Session without it",
                 "Make a new Session, and gather the state before."});
  }
  impl_->drain();
  impl_->check_types(plan);
  agree_on_plan(impl_->communicator, plan);
  const std::vector<Impl::Momentum> before = impl_->momenta();
  for (const Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed) {
      impl_->earlier_counters += bucket.compressed->counters();
    }
  }
  impl_->plan = std::move(plan);
  if (impl_->residuals) {
    impl_->residuals->settle();
    impl_->convert_momentum(before);
    impl_->can_undo = false;
  }
  impl_->install();
}

Session::Hold::Hold(Session& session) : session_(session) {
  session_.impl_->holds.fetch_add(1, std::memory_order_relaxed);
}
Session::Hold::~Hold() {
  session_.impl_->holds.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace stretto
