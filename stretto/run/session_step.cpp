// SPDX-License-Identifier: Apache-2.0
// What happens in a step of a Session, in the order in which it happens.
#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stretto/run/session_impl.hpp"

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

CallOptions Session::Impl::call_options(std::uint32_t b) const {
  CallOptions call;
  call.slot = b;
  call.priority = plan.buckets[b].priority;
  call.algorithm = plan.buckets[b].algorithm;
  if (options.streams > 0) {
    call.stream = b % static_cast<std::uint32_t>(options.streams);
  }
  return call;
}

// Waits for one bucket; its failure becomes the Session's, with step and bucket.
void Session::Impl::await(std::uint32_t b) {
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

void Session::Impl::verify(std::uint32_t b) {
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

void Session::Impl::finish() {
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

void Session::Impl::commit_residuals() {
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
void Session::Impl::call_back(std::uint32_t b) {
  try {
    on_bucket(b, buckets[b].ranges);
  } catch (...) {
    communicator.abort(
        Error(ErrorCode::kBackend, {"a bucket's callback threw", here(b), "", "", ""}), step, b);
    throw;
  }
}

void Session::Impl::record(std::vector<Record>& records) {
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

}  // namespace stretto
