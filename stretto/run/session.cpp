// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/run/plan_agreement.hpp"

namespace stretto {
namespace {

std::string runnable_names() {
  std::vector<std::string_view> names = {to_string(Algorithm::kAuto)};
  for (const Algorithm algorithm : runnable_algorithms(Collective::kAllReduce)) {
    names.push_back(to_string(algorithm));
  }
  return join(names);
}

constexpr std::uint32_t kNothing = 0xffffffffU;

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

struct Session::Impl {
  // A bucket of the installed plan, and how far it is in the open step.
  struct BucketState {
    BufferView view;
    std::vector<TensorRange> ranges;
    int tensors = 0;              // that overlap it
    std::atomic<int> pending{0};  // of these, not ready yet
    std::atomic<bool> launched{false};
    Work work;                                     // valid once launched
    std::unique_ptr<CompressedBucket> compressed;  // null without codec
    std::uint32_t sequence = 0;                    // order of launch in the step
  };

  Impl(Communicator& communicator_in, Plan plan_in, const SessionOptions& options_in)
      : communicator(communicator_in), options(options_in), plan(std::move(plan_in)) {
    plan.validate();
    check_types(plan);
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
        arenas[index] = communicator.allocate(
            Bytes(elements[index] * static_cast<std::int64_t>(size_of(dtype))));
      }
    }
    tensor_marks = std::vector<std::atomic<std::uint32_t>>(plan.tensors.size());
    ready_at.resize(plan.tensors.size());
    recorder.emplace(
        communicator.rank(), communicator.size(), options.record_steps, common_origin());
    for (const TensorSpec& tensor : plan.tensors) {
      tensor_names.push_back(recorder->name_id(tensor.name));
    }
    install();
    recorder->begin_step(0, monotonic_now());
  }

  void check_types(const Plan& checked) const {
    if (options.schedule == Schedule::kPriority) {
      throw Error(ErrorCode::kUnavailable,
                  {"this version cannot run that schedule",
                   "schedule",
                   std::string(to_string(options.schedule)),
                   "serial or overlap",
                   "simulate() predicts it."});
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

  void check_codec(const Bucket& bucket, std::size_t b) const {
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
  static std::string describe(const SessionOptions& options) {
    return "op " + std::string(to_string(options.op)) + ", schedule " +
           std::string(to_string(options.schedule)) + ", streams " +
           std::to_string(options.streams) + ", verify_every " +
           std::to_string(options.verify_every);
  }

  // One origin for all ranks. They share a clock: this backend is for one host.
  RunOrigin common_origin() {
    const RunOrigin here = origin_now();
    std::array<std::int64_t, 2> both = {here.monotonic.count(), here.unix_ns};
    communicator.broadcast(view(std::span(both)), 0).wait();
    return {Nanoseconds(both[0]), both[1]};
  }

  // Derives everything from the plan. No step may be open.
  void install() {
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
      state.ranges = ranges[b];
      state.tensors = static_cast<int>(state.ranges.size());
      for (const TensorRange& range : state.ranges) {
        tensor_buckets[range.tensor].push_back(static_cast<std::uint32_t>(b));
      }
      if (bucket.codec.lossy()) {
        state.compressed = compressed_bucket(communicator, bucket.codec, state.view.count);
        if (!residuals) {
          residuals.emplace(arenas[static_cast<std::size_t>(DType::kF32)]->bytes().size() /
                            sizeof(float));
        }
      }
      largest = std::max(largest, state.view.size_bytes());
      bucket_names.push_back(recorder->name_id("bucket " + std::to_string(b)));
    }
    if (options.verify_every > 0) {
      verify_copy = communicator.allocate(Bytes(static_cast<std::int64_t>(largest)));
    }
    open_step();
  }

  void open_step() {
    for (BucketState& bucket : buckets) {
      bucket.pending.store(bucket.tensors, std::memory_order_relaxed);
      bucket.launched.store(false, std::memory_order_relaxed);
      bucket.work = Work();
    }
    ready_buckets.store(0, std::memory_order_relaxed);
    launches.store(0, std::memory_order_relaxed);
    next_in_order = 0;
    verified = kNothing;
    if (options.verify_every > 0 && !buckets.empty() && step % options.verify_every == 0) {
      verified = step / options.verify_every % static_cast<std::uint32_t>(buckets.size());
    }
  }

  [[nodiscard]] std::uint32_t mark() const noexcept { return step + 1; }
  [[nodiscard]] bool step_is_open() const {
    return std::any_of(tensor_marks.begin(), tensor_marks.end(), [&](const auto& each) {
      return each.load(std::memory_order_relaxed) == mark();
    });
  }

  void ready(std::size_t i) noexcept {
    if (holds.load(std::memory_order_relaxed) > 0) {
      return;
    }
    if (i >= tensor_marks.size() ||
        tensor_marks[i].exchange(mark(), std::memory_order_relaxed) == mark()) {
      std::uint32_t none = kNothing;
      ready_twice.compare_exchange_strong(
          none, static_cast<std::uint32_t>(i), std::memory_order_relaxed);
      return;
    }
    if (options.record_steps > 0) {
      ready_at[i] = monotonic_now().count();
    }
    for (const std::uint32_t b : tensor_buckets[i]) {
      if (buckets[b].pending.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        bucket_ready(b);
      }
    }
  }

  void bucket_ready(std::uint32_t b) noexcept {
    const bool last = ready_buckets.fetch_add(1, std::memory_order_acq_rel) + 1 == buckets.size();
    if (options.schedule == Schedule::kSerial) {
      if (last) {
        for (std::uint32_t each = 0; each < buckets.size(); ++each) {
          launch(each);
        }
      }
      return;
    }
    if (communicator.ordering() == Ordering::kAddressed) {
      launch(b);
      return;
    }
    // One order on all ranks: the plan's. A bucket that is ready early waits for those before it.
    const std::scoped_lock lock(order_mutex);
    while (next_in_order < buckets.size() &&
           buckets[next_in_order].pending.load(std::memory_order_acquire) == 0) {
      launch(next_in_order++);
    }
  }

  void launch(std::uint32_t b) noexcept {
    BucketState& bucket = buckets[b];
    try {
      if (b == verified) {
        std::memcpy(verify_copy->bytes().data(), bucket.view.data, bucket.view.size_bytes());
      }
      bucket.sequence = launches.fetch_add(1, std::memory_order_relaxed);
      bucket.work =
          bucket.compressed
              ? bucket.compressed->all_reduce(bucket.view,
                                              options.op,
                                              &*residuals,
                                              static_cast<std::size_t>(plan.buckets[b].begin),
                                              step,
                                              call_options(b))
              : communicator.all_reduce(bucket.view, options.op, call_options(b));
    } catch (const Error& error) {
      const std::scoped_lock lock(launch_failure_mutex);
      launch_failure.emplace(error);
    } catch (const std::exception& error) {
      const std::scoped_lock lock(launch_failure_mutex);
      launch_failure.emplace(ErrorCode::kBackend, error.what());
    }
    bucket.launched.store(true, std::memory_order_release);
    bucket.launched.notify_all();
  }

  [[nodiscard]] CallOptions call_options(std::uint32_t b) const {
    CallOptions call;
    call.slot = b;
    call.priority = plan.buckets[b].priority;
    call.algorithm = plan.buckets[b].algorithm;
    if (options.streams > 0) {
      call.stream = b % static_cast<std::uint32_t>(options.streams);
    }
    return call;
  }

  [[nodiscard]] std::string here(std::uint32_t b) const {
    std::string text = "step " + std::to_string(step);
    if (b != kNothing) {
      text += ", bucket " + std::to_string(b);
    }
    return text;
  }

  // Fails the job because of something this rank did, and throws it.
  [[noreturn]] void stop_job(ErrorCode code, ErrorDetail detail, std::uint32_t b) {
    detail.where = "rank " + std::to_string(communicator.rank()) + ", " + here(b);
    Error error(code, std::move(detail));
    broken = true;
    communicator.abort(error, step, b == kNothing ? 0xffffffffU : b);
    throw error;  // NOLINT(misc-throw-by-value-catch-by-reference): needed by abort() as well
  }

  void check_ready() {
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

  // Waits for one bucket; its failure becomes the Session's, with step and bucket.
  void await(std::uint32_t b) {
    awaited.store(b, std::memory_order_relaxed);
    try {
      buckets[b].work.wait();
      awaited.store(kNothing, std::memory_order_relaxed);
    } catch (const Error& error) {
      awaited.store(kNothing, std::memory_order_relaxed);
      broken = true;
      ErrorDetail detail = error.detail();
      detail.where += (detail.where.empty() ? "" : ", ") + std::string("noticed by rank ") +
                      std::to_string(communicator.rank()) + " in " + here(b);
      throw Error(error.code(), std::move(detail));
    }
  }

  void verify(std::uint32_t b) {
    const BucketState& bucket = buckets[b];
    BufferView again = bucket.view;
    again.data = verify_copy->bytes().data();
    CallOptions call;
    call.algorithm = plan.buckets[b].algorithm;
    communicator.all_reduce(again, options.op, call).wait();
    if (std::memcmp(again.data, bucket.view.data, bucket.view.size_bytes()) == 0) {
      return;
    }
    const std::size_t element = size_of(again.dtype);
    std::size_t at = 0;
    while (std::memcmp(again.data + at * element, bucket.view.data + at * element, element) == 0) {
      ++at;
    }
    std::string name = "?";
    for (const TensorRange& range : bucket.ranges) {
      const auto length = static_cast<std::size_t>(range.end - range.begin);
      if (at < length) {
        name = plan.tensors[range.tensor].name;
        break;
      }
      at -= length;
    }
    stop_job(ErrorCode::kMismatch,
             {"an overlapped reduction differs from a blocking one",
              "",
              "tensor '" + name + "' differs",
              "the same bits",
              "A gradient was probably written after ready(), or read by two threads at once."},
             b);
  }

  void finish() {
    if (broken) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"this Session failed before", here(kNothing), "", "", "Make a new one."});
    }
    check_ready();
    broken = true;  // until the end: whatever is thrown on the way there, this step is not whole
    for (BucketState& bucket : buckets) {
      // Another thread may still be inside the ready() that launches it.
      bucket.launched.wait(false, std::memory_order_acquire);
    }
    {
      const std::scoped_lock lock(launch_failure_mutex);
      if (launch_failure) {
        communicator.abort(*launch_failure, step, 0xffffffffU);
        throw Error(*launch_failure);
      }
    }
    std::vector<std::uint32_t> order(buckets.size());
    for (std::uint32_t b = 0; b < buckets.size(); ++b) {
      order[buckets[b].sequence] = b;
    }
    std::vector<Record> waits;
    while (!order.empty()) {
      auto next = std::find_if(
          order.begin(), order.end(), [&](std::uint32_t b) { return buckets[b].work.done(); });
      if (next == order.end()) {
        next = order.begin();
        Record wait;
        wait.kind = RecordKind::kWait;
        wait.begin_ns = monotonic_now().count();
        await(*next);
        wait.end_ns = monotonic_now().count();
        wait.bucket = *next;
        wait.name = wait_name;
        waits.push_back(wait);
      }
      const std::uint32_t b = *next;
      order.erase(next);
      await(b);
      if (b == verified) {
        verify(b);
      }
      if (on_bucket) {
        call_back(b);
      }
    }
    commit_residuals();
    const Nanoseconds end = monotonic_now();
    if (options.record_steps > 0) {
      record(waits);
    }
    recorder->end_step(end);
    ++step;
    open_step();
    recorder->begin_step(step, end);
    broken = false;
  }

  void commit_residuals() {
    if (!residuals) {
      return;
    }
    for (std::uint32_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].compressed && !buckets[b].compressed->finite()) {  // the same on all ranks
        residuals->keep(static_cast<std::size_t>(plan.buckets[b].begin),
                        static_cast<std::size_t>(plan.buckets[b].end));
      }
    }
    residuals->commit();
    can_undo = true;
  }

  // Peers must not wait for a rank whose optimizer gave up.
  void call_back(std::uint32_t b) {
    try {
      on_bucket(b, buckets[b].ranges);
    } catch (...) {
      communicator.abort(
          Error(ErrorCode::kBackend, {"a bucket's callback threw", here(b), "", "", ""}), step, b);
      throw;
    }
  }

  void record(std::vector<Record>& records) {
    const auto link_base = step * static_cast<std::uint32_t>(buckets.size());
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      Record ready;
      ready.kind = RecordKind::kReady;
      ready.lane = Lane::kCompute;
      ready.begin_ns = ready.end_ns = ready_at[i];
      ready.bytes = plan.tensors[i].bytes().count();
      ready.name = tensor_names[i];
      if (!tensor_buckets[i].empty()) {
        ready.bucket = tensor_buckets[i].back();  // the one that had to wait for all of it
        ready.link = link_base + ready.bucket;
      }
      records.push_back(ready);
    }
    for (std::uint32_t b = 0; b < buckets.size(); ++b) {
      const WorkTimes times = buckets[b].work.times();
      Record entry;
      entry.lane = Lane::kCommunication;
      entry.collective = Collective::kAllReduce;
      entry.algorithm = plan.buckets[b].algorithm;
      entry.bytes = static_cast<std::int64_t>(buckets[b].view.size_bytes());
      entry.name = bucket_names[b];
      entry.bucket = b;
      entry.link = link_base + b;
      entry.sequence = buckets[b].sequence;
      entry.kind = RecordKind::kLaunched;
      entry.begin_ns = entry.end_ns = times.launched.count();
      records.push_back(entry);
      entry.kind = RecordKind::kCommunication;
      entry.begin_ns = times.started.count();
      entry.end_ns = times.ended.count();
      records.push_back(entry);
    }
    recorder->add(records);
  }

  Communicator& communicator;
  SessionOptions options;
  Plan plan;
  std::array<std::unique_ptr<Arena>, std::size(kAllDTypes)> arenas;
  std::vector<std::int64_t> offsets;
  std::optional<Residuals> residuals;  // of the arena of fp32; from the first codec on
  bool can_undo = false;

  // Of the installed plan.
  std::deque<BucketState> buckets;  // a deque: its elements do not move
  std::vector<std::vector<std::uint32_t>> tensor_buckets;
  std::vector<std::uint32_t> bucket_names;

  // Of the open step.
  std::uint32_t step = 0;
  std::vector<std::atomic<std::uint32_t>> tensor_marks;  // step + 1 once ready in it
  std::vector<std::int64_t> ready_at;
  std::atomic<std::size_t> ready_buckets{0};
  std::atomic<std::uint32_t> launches{0};
  std::atomic<int> holds{0};
  std::atomic<std::uint32_t> ready_twice{kNothing};
  std::atomic<std::uint32_t> awaited{kNothing};
  std::mutex order_mutex;
  std::uint32_t next_in_order = 0;
  std::mutex launch_failure_mutex;
  std::optional<Error> launch_failure;
  std::uint32_t verified = kNothing;
  std::unique_ptr<Arena> verify_copy;
  bool broken = false;

  BucketCallback on_bucket;
  std::optional<Recorder> recorder;
  std::vector<std::uint32_t> tensor_names;
  std::uint32_t wait_name = 0;
};

Session::Session(Communicator& communicator, Plan plan, SessionOptions options)
    : impl_(std::make_unique<Impl>(communicator, std::move(plan), options)) {
  impl_->wait_name = impl_->recorder->name_id("wait");
}

Session::~Session() {
  // Peers may be reading arenas that are about to go. In good order nothing is in flight.
  const bool in_flight =
      std::any_of(impl_->buckets.begin(), impl_->buckets.end(), [](const auto& bucket) {
        return bucket.launched.load(std::memory_order_acquire) && !bucket.work.done();
      });
  if (in_flight) {
    impl_->communicator.abort(
        Error(ErrorCode::kBackend, "a Session was destroyed in the middle of a step"),
        impl_->step,
        0xffffffffU);
  }
}

BufferView Session::gradient(std::size_t i) const {
  const TensorSpec& tensor = impl_->plan.tensors.at(i);
  const auto index = static_cast<std::size_t>(tensor.dtype);
  std::byte* const data = tensor.elements() == 0 ? nullptr
                                                 : impl_->arenas[index]->bytes().data() +
                                                       static_cast<std::size_t>(impl_->offsets[i]) *
                                                           size_of(tensor.dtype);
  return {data, static_cast<std::size_t>(tensor.elements()), tensor.dtype, {}};
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
    impl_->await(b);
  }
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
  impl_->recorder->begin_step(impl_->step, monotonic_now());
  for (Impl::BucketState& bucket : impl_->buckets) {
    if (bucket.compressed) {
      bucket.compressed->reset_counters();
    }
  }
}

Session::Compression Session::compression() const {
  Compression result;
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
  if (open || !impl_->can_undo) {
    throw Error(ErrorCode::kInvalidArgument,
                {"there is no finished step to undo",
                 "step " + std::to_string(impl_->step),
                 open ? "gradients ready already" : "none finished, or undone before",
                 "right after finish(), once",
                 ""});
  }
  impl_->residuals->undo();
  impl_->can_undo = false;
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
  impl_->check_types(plan);
  agree_on_plan(impl_->communicator, plan);
  if (impl_->residuals) {
    impl_->residuals->settle();
    impl_->can_undo = false;
  }
  impl_->plan = std::move(plan);
  impl_->install();
}

Session::Hold::Hold(Session& session) : session_(session) {
  session_.impl_->holds.fetch_add(1, std::memory_order_relaxed);
}
Session::Hold::~Hold() {
  session_.impl_->holds.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace stretto
