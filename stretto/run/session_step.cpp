// SPDX-License-Identifier: Apache-2.0
// What happens in a step of a Session, in the order in which it happens.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "stretto/data/codec_records.hpp"
#include "stretto/run/session_impl.hpp"
#include "stretto/run/sum_of_squares.hpp"

namespace stretto {

void Session::Impl::ready(std::size_t i) noexcept {
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
  if (unsettled.load(std::memory_order_relaxed)) {
    std::uint32_t none = kNothing;
    ready_early.compare_exchange_strong(
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

void Session::Impl::bucket_ready(std::uint32_t b) noexcept {
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

void Session::Impl::launch(std::uint32_t b) noexcept {
  BucketState& bucket = buckets[b];
  try {
    pay(b);
    if (b == verified) {
      std::memcpy(verify_copy->bytes().data(), bucket.view.data, bucket.view.size_bytes());
    }
    bucket.sequence = launches.fetch_add(1, std::memory_order_relaxed);
    CallOptions call = call_options(b);
    if (options.reduce_first) {
      call.priority += static_cast<int>(plan.tensors.size());
    }
    if (bucket.compressed && encodes) {
      bucket.reduced =
          bucket.compressed->all_reduce(bucket.view,
                                        options.op,
                                        &*residuals,
                                        static_cast<std::size_t>(plan.buckets[b].begin),
                                        codec_step() - options.codec_start,
                                        call);
      bucket.available = bucket.reduced;
    } else if (bucket.halves) {
      // On one slot the second begins when the first is over; nobody has to be there for that.
      bucket.reduced = communicator.reduce_scatter(bucket.view, options.op, call);
      if (!options.shard_optimizer) {
        bucket.available = communicator.all_gather(bucket.view, call_options(b));
      }
    } else {
      bucket.reduced = communicator.all_reduce(bucket.view, options.op, call);
      bucket.available = bucket.reduced;
    }
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

void Session::Impl::pay(std::uint32_t b) noexcept {
  BucketState& bucket = buckets[b];
  const auto begin = static_cast<std::size_t>(plan.buckets[b].begin);
  const auto end = static_cast<std::size_t>(plan.buckets[b].end);
  if (bucket.debt == Debt::kPaid) {
    residuals->keep(begin, end);  // what was owed cannot be undone any more
    bucket.debt = Debt::kNone;
  } else if (bucket.debt == Debt::kOwed) {
    auto* const gradient = reinterpret_cast<float*>(bucket.view.data);
    const std::span<const float> own = residuals->own_part(begin, end);
    for (std::size_t i = 0; i < own.size(); ++i) {
      gradient[i] += own[i];
    }
    std::fill_n(residuals->next_own(begin), own.size(), 0.0F);
  }
}

CallOptions Session::Impl::call_options(std::uint32_t b) const {
  CallOptions call;
  call.slot = b;
  call.priority =
      options.schedule == Schedule::kPriority ? buckets[b].urgency : plan.buckets[b].priority;
  call.algorithm = plan.buckets[b].algorithm;
  if (options.streams > 0) {
    call.stream = b % static_cast<std::uint32_t>(options.streams);
  }
  return call;
}

// Waits for an operation of one bucket; its failure becomes the Session's, with step and bucket.
void Session::Impl::await(std::uint32_t b, const Work& work) {
  const bool waits = !work.done();
  const Nanoseconds begin = waits ? monotonic_now() : Nanoseconds(0);
  awaited.store(b, std::memory_order_relaxed);
  try {
    work.wait();
    awaited.store(kNothing, std::memory_order_relaxed);
  } catch (const Error& error) {
    awaited.store(kNothing, std::memory_order_relaxed);
    broken = true;
    ErrorDetail detail = error.detail();
    detail.where += (detail.where.empty() ? "" : ", ") + std::string("noticed by rank ") +
                    std::to_string(communicator.rank()) + " in " + here(b);
    throw Error(error.code(), std::move(detail));
  }
  if (waits) {
    record_wait(b, begin);
  }
}

void Session::Impl::record_wait(std::uint32_t b, Nanoseconds begin) {
  if (options.record_steps == 0) {
    return;
  }
  Record wait;
  wait.kind = RecordKind::kWait;
  wait.begin_ns = begin.count();
  wait.end_ns = monotonic_now().count();
  wait.bucket = b;
  wait.name = wait_name;
  recorder->add(wait);
}

void Session::Impl::verify(std::uint32_t b) {
  const BucketState& bucket = buckets[b];
  BufferView again = bucket.view;
  again.data = verify_copy->bytes().data();
  CallOptions call;
  // An address of its own: what a rank sees to while it waits does not come in the order of its
  // peers.
  call.slot = static_cast<std::uint32_t>(buckets.size());
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

void Session::Impl::finish() {
  check_whole();
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
  if (options.schedule == Schedule::kPriority && !buckets.empty()) {
    close_step();
    unsettled.store(true, std::memory_order_relaxed);
  } else {
    std::vector<std::uint32_t> order(buckets.size());
    for (std::uint32_t b = 0; b < buckets.size(); ++b) {
      order[buckets[b].sequence] = b;
    }
    take_all(order);
    settle();
    close_step();
    open_step();
  }
  broken = false;
}

void Session::Impl::close_step() {
  const Nanoseconds end = monotonic_now();
  recorder->end_step(end);
  ++step;
  recorder->begin_step(step, end);
}

// Those first that have arrived; where none has, the first in `order` is waited for.
void Session::Impl::take_all(std::vector<std::uint32_t> order) {
  if (options.shard_optimizer) {
    // All updates before any parameter is waited for: the gathers go on beside them.
    const auto reduced = [this](std::uint32_t b) { return buckets[b].reduced.done(); };
    std::vector<std::uint32_t> left = order;
    while (!left.empty()) {
      const auto arrived = std::find_if(left.begin(), left.end(), reduced);
      const auto next = arrived == left.end() ? left.begin() : arrived;
      update(*next);
      left.erase(next);
    }
  }
  while (!order.empty()) {
    const auto arrived = std::find_if(
        order.begin(), order.end(), [&](std::uint32_t b) { return buckets[b].available.done(); });
    const auto next = arrived == order.end() ? order.begin() : arrived;
    const std::uint32_t b = *next;
    order.erase(next);
    take(b);
  }
}

// With shard_optimizer: this rank's part of the bucket, and off with it to the others.
void Session::Impl::update(std::uint32_t b) {
  BucketState& bucket = buckets[b];
  if (bucket.updated) {
    return;
  }
  await(b, bucket.reduced);
  if (on_bucket) {
    call_back(b, bucket.owned);
  }
  bucket.available = communicator.all_gather(bucket.parameters, call_options(b));
  bucket.updated = true;
}

// Of those whose gradients are reduced; what is needed first first.
void Session::Impl::update_reduced() {
  if (!options.shard_optimizer) {
    return;
  }
  for (const std::uint32_t b : by_urgency) {
    if (!buckets[b].updated && buckets[b].reduced.done()) {
      update(b);
    }
  }
}

void Session::Impl::take(std::uint32_t b) {
  if (options.shard_optimizer) {
    update(b);
    update_others_until(b);
  }
  await(b, buckets[b].available);
  if (b == verified) {
    verify(b);
  }
  if (on_bucket && !options.shard_optimizer) {
    call_back(b, buckets[b].ranges);
  }
  buckets[b].taken = true;
}

// A peer may wait for another bucket first, whose gather waits for this rank's update of it: nobody
// may sleep on one bucket while another of his is due.
void Session::Impl::update_others_until(std::uint32_t b) {
  constexpr auto kPause = std::chrono::microseconds(20);
  const auto all_updated = [this] {
    return std::all_of(
        buckets.begin(), buckets.end(), [](const auto& each) { return each.updated; });
  };
  while (!buckets[b].available.done() && !all_updated()) {
    update_reduced();
    const Nanoseconds begin = monotonic_now();
    awaited.store(b, std::memory_order_relaxed);
    std::this_thread::sleep_for(kPause);
    awaited.store(kNothing, std::memory_order_relaxed);
    record_wait(b, begin);
  }
}

// Work that refers to nothing yet is done() as well.
bool Session::Impl::has_arrived(const BucketState& bucket) const {
  return (!options.shard_optimizer || bucket.updated) && bucket.available.done();
}

// Of the step before the open one, under kPriority.
void Session::Impl::take_for(std::size_t i) {
  check_whole();
  if (tensor_marks.at(i).load(std::memory_order_relaxed) == mark()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"wait() for a gradient of the open step",
                 here(kNothing),
                 "tensor '" + plan.tensors[i].name + "', ready",
                 "wait() after finish(), in the next forward pass",
                 "Call finish() first."});
  }
  if (!unsettled.load(std::memory_order_relaxed)) {
    return;
  }
  broken = true;
  update_reduced();
  for (const std::uint32_t b : tensor_buckets[i]) {
    while (!buckets[b].taken && !has_arrived(buckets[b])) {
      const auto other = std::find_if(by_urgency.begin(), by_urgency.end(), [&](std::uint32_t o) {
        return !buckets[o].taken && has_arrived(buckets[o]);
      });
      if (other == by_urgency.end()) {
        break;
      }
      take(*other);
    }
    if (!buckets[b].taken) {
      take(b);
    }
  }
  settle_if_taken();
  broken = false;
}

void Session::Impl::drain() {
  if (!unsettled.load(std::memory_order_relaxed)) {
    return;
  }
  check_whole();
  broken = true;
  std::vector<std::uint32_t> left;
  std::copy_if(
      by_urgency.begin(), by_urgency.end(), std::back_inserter(left), [&](std::uint32_t b) {
        return !buckets[b].taken;
      });
  take_all(std::move(left));
  settle_if_taken();
  broken = false;
}

void Session::Impl::settle_if_taken() {
  if (std::all_of(buckets.begin(), buckets.end(), [](const auto& each) { return each.taken; })) {
    settle();
    unsettled.store(false, std::memory_order_relaxed);
    open_step();
  }
}

// All of a step's buckets are taken.
void Session::Impl::settle() {
  commit_residuals();
  if (options.record_steps > 0) {
    record();
  }
}

double Session::Impl::gradient_norm() {
  check_whole();
  check_norm();
  double sum = 0.0;
  for (std::uint32_t b = 0; b < buckets.size(); ++b) {
    await(b, buckets[b].reduced);
    const BufferView& data = buckets[b].view;
    const Part mine = part_of(data.count, communicator.size(), communicator.rank());
    sum += sum_of_squares(data.slice(mine.begin, mine.end));
  }
  const std::span<double> all(&sum, 1);
  CallOptions call;
  call.algorithm = Algorithm::kDirect;
  call.priority = static_cast<int>(2 * plan.tensors.size());
  await(kNothing, communicator.all_reduce(view(all), ReduceOp::kSum, call));
  return std::sqrt(sum);
}

void Session::Impl::commit_residuals() {
  if (!residuals) {
    return;
  }
  can_undo = true;
  const bool owed = std::any_of(buckets.begin(), buckets.end(), [](const BucketState& bucket) {
    return bucket.debt == Debt::kOwed;
  });
  encoded = encodes;
  wrote_residuals = encodes || owed;
  if (!wrote_residuals) {
    return;
  }
  for (std::uint32_t b = 0; b < buckets.size(); ++b) {
    BucketState& bucket = buckets[b];
    bucket.debt = bucket.debt == Debt::kOwed ? Debt::kPaid : bucket.debt;
    if (!bucket.compressed) {
      continue;
    }
    if (!encodes || !bucket.compressed->finite()) {  // the same on all ranks
      residuals->keep(static_cast<std::size_t>(plan.buckets[b].begin),
                      static_cast<std::size_t>(plan.buckets[b].end));
    }
    if (encodes) {
      bucket.compressed->commit();
    }
  }
  residuals->commit();
}

// Peers must not wait for a rank whose optimizer gave up.
void Session::Impl::call_back(std::uint32_t b, const std::vector<TensorRange>& ranges) {
  try {
    on_bucket(b, ranges);
  } catch (...) {
    communicator.abort(
        Error(ErrorCode::kBackend, {"a bucket's callback threw", here(b), "", "", ""}),
        travelling(),
        b);
    throw;
  }
}

void Session::Impl::record() {
  std::vector<Record> records;
  const std::uint32_t number = travelling();
  const auto link_base = number * static_cast<std::uint32_t>(buckets.size());
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
    const BucketState& bucket = buckets[b];
    Record entry;
    entry.lane = Lane::kCommunication;
    entry.algorithm = plan.buckets[b].algorithm;
    entry.bytes = static_cast<std::int64_t>(bucket.view.size_bytes());
    entry.name = bucket_names[b];
    entry.bucket = b;
    entry.link = link_base + b;
    entry.sequence = bucket.sequence;
    const auto add = [&](RecordKind kind, Collective what, Nanoseconds begin, Nanoseconds end) {
      entry.kind = kind;
      entry.collective = what;
      entry.begin_ns = begin.count();
      entry.end_ns = end.count();
      records.push_back(entry);
    };
    const WorkTimes first = bucket.reduced.times();
    const Collective what = bucket.halves ? Collective::kReduceScatter : Collective::kAllReduce;
    add(RecordKind::kLaunched, what, first.launched, first.launched);
    add(RecordKind::kCommunication, what, first.started, first.ended);
    if (bucket.halves) {
      const WorkTimes second = bucket.available.times();
      add(RecordKind::kCommunication, Collective::kAllGather, second.started, second.ended);
    }
    if (bucket.compressed && encodes) {
      entry.link = kNoId;  // only the exchange follows from the gradients
      for (const CodecInterval& interval : bucket.compressed->intervals()) {
        const bool encode = interval.stage == CodecStage::kEncode;
        entry.name = recorder->name_id(
            codec_record_name(bucket.compressed->codec(), encode ? kEncodeRecord : kDecodeRecord));
        // On an emulated machine an exchange begins a little before its host sees to it.
        const Nanoseconds begin = std::max(interval.begin, first.started);
        add(RecordKind::kAnnotation, Collective::kNone, begin, std::max(begin, interval.end));
      }
    }
  }
  recorder->add(number, records);
}

}  // namespace stretto
