// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rapidcheck.h>

#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/step_profile.hpp"
#include "stretto/data/summary.hpp"
#include "stretto/data/timeline.hpp"

/// Random valid nouns for property tests.
namespace stretto::testing {

inline rc::Gen<std::string> any_name() {
  // All of ASCII: quotes, backslashes and control characters have to survive JSON.
  return rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127));
}

inline rc::Gen<double> any_time_s() {
  return rc::gen::map(rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 40),
                      [](std::int64_t ns) { return static_cast<double>(ns) / 7e9; });
}

template <typename Enum>
Enum any_enum(int count) {
  return static_cast<Enum>(*rc::gen::inRange(0, count));
}

inline std::vector<TensorSpec> any_tensors() {
  std::vector<TensorSpec> tensors;
  const int count = *rc::gen::inRange(0, 8);
  for (int i = 0; i < count; ++i) {
    tensors.push_back(
        {*any_name(),
         any_enum<DType>(6),
         *rc::gen::container<std::vector<std::int64_t>>(*rc::gen::inRange<std::size_t>(0, 4),
                                                        rc::gen::inRange<std::int64_t>(0, 6))});
  }
  return tensors;
}

/// Each arena cut at random places; buckets of all arenas in random order.
inline Plan any_plan() {
  Plan plan;
  plan.origin = *any_name();
  plan.tensors = any_tensors();
  for (const DType dtype : kAllDTypes) {
    std::int64_t size = 0;
    for (const TensorSpec& tensor : plan.tensors) {
      size += tensor.dtype == dtype ? tensor.elements() : 0;
    }
    for (std::int64_t begin = 0; begin < size;) {
      const std::int64_t end = *rc::gen::inRange(begin, size) + 1;
      plan.buckets.push_back(
          {dtype, begin, end, *rc::gen::arbitrary<int>(), any_enum<Algorithm>(3)});
      begin = end;
    }
  }
  for (std::size_t i = plan.buckets.size(); i > 1; --i) {
    std::swap(plan.buckets[i - 1], plan.buckets[*rc::gen::inRange<std::size_t>(0, i)]);
  }
  return plan;
}

inline Machine any_machine() {
  Machine machine;
  machine.name = *any_name();
  const int levels = *rc::gen::inRange(1, 4);
  for (int l = 0; l < levels; ++l) {
    machine.levels.push_back(
        {*any_name(),
         *rc::gen::inRange(1, 9),
         Seconds(*any_time_s()),
         BytesPerSecond(static_cast<double>(*rc::gen::inRange<std::int64_t>(1, 1LL << 40)) / 3)});
  }
  for (const char* const codec : {"int8", "topk:0.01:nofeedback", "randomk:1000"}) {
    if (*rc::gen::arbitrary<bool>()) {
      const auto some = [] { return *rc::gen::inRange(1, 1 << 30) / 3.0; };
      machine.codecs.push_back(
          {parse_codec(codec), BytesPerSecond(some()), BytesPerSecond(some()), some(), some()});
    }
  }
  return machine;
}

inline StepProfile any_profile() {
  StepProfile profile;
  profile.model = *any_name();
  profile.batch = *rc::gen::inRange<std::int64_t>(0, 1 << 30);
  profile.basis = any_enum<Basis>(2);
  profile.assumptions = *any_name();
  profile.beside_communication = *rc::gen::arbitrary<bool>();
  profile.optimizer_after_exchanges = *rc::gen::arbitrary<bool>();
  profile.compute_slowdown = 1.0 + *rc::gen::inRange(0, 8) / 8.0;
  Seconds now(*any_time_s());
  profile.forward_end = now;
  profile.forward.push_back({*any_name(), Seconds(*any_time_s())});
  for (const TensorSpec& tensor : any_tensors()) {
    now += Seconds(*any_time_s());
    profile.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, now});
  }
  profile.backward_end = now + Seconds(*any_time_s());
  profile.compute_end = profile.backward_end + Seconds(*any_time_s());
  return profile;
}

inline std::uint32_t any_id() {
  return *rc::gen::arbitrary<bool>() ? kNoId : *rc::gen::inRange(0U, 99U);
}

inline Timeline any_timeline() {
  Timeline timeline;
  timeline.source = *any_name();
  timeline.origin_unix_ns = *rc::gen::arbitrary<std::int64_t>();
  timeline.world_size = *rc::gen::arbitrary<std::uint32_t>();
  timeline.steps_total = *rc::gen::arbitrary<std::uint32_t>();
  timeline.steps_recorded = *rc::gen::arbitrary<std::uint32_t>();
  timeline.clocks.push_back({3, *rc::gen::arbitrary<std::int64_t>(), 17});
  if (*rc::gen::arbitrary<bool>()) {
    timeline.setups.push_back({5, *any_name(), {{"nccl_version", *any_name()}}});
  }
  timeline.names = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(any_name()));
  const auto names = static_cast<std::uint32_t>(timeline.names.size());
  const bool imported = *rc::gen::arbitrary<bool>();
  if (imported) {
    CollectiveCall call;
    call.group = *rc::gen::inRange(0U, names);
    call.group_size = *rc::gen::arbitrary<std::uint32_t>();
    call.element_bytes = *rc::gen::inRange(0U, 16U);
    call.in_elements = *rc::gen::inRange<std::int64_t>(-1, 1LL << 62);
    call.sequence = *rc::gen::inRange<std::int64_t>(-1, 1LL << 62);
    call.peer = *rc::gen::inRange(-1, 1 << 30);
    timeline.calls.push_back(call);
  }
  const int count = *rc::gen::inRange(0, 12);
  for (int i = 0; i < count; ++i) {
    Record record;
    record.begin_ns = *rc::gen::inRange<std::int64_t>(-(1LL << 60), 1LL << 60);
    record.end_ns = record.begin_ns + *rc::gen::inRange<std::int64_t>(0, 1LL << 59);
    record.bytes = *rc::gen::inRange<std::int64_t>(0, 1LL << 54);
    record.name =
        *rc::gen::inRange<std::uint32_t>(0, static_cast<std::uint32_t>(timeline.names.size()));
    record.link = any_id();
    record.bucket = any_id();
    record.sequence = any_id();
    record.rank = *rc::gen::inRange(0U, 8U);
    record.step = *rc::gen::arbitrary<bool>() ? kNoId : *rc::gen::inRange(0U, 1U << 31);
    record.kind = any_enum<RecordKind>(12);
    record.lane = any_enum<Lane>(4);
    record.collective = any_enum<Collective>(11);
    if (imported) {
      record.device = any_id();
      record.stream = any_id();
      record.call = *rc::gen::arbitrary<bool>() ? kNoId : 0U;
    }
    record.algorithm = any_enum<Algorithm>(3);
    timeline.records.push_back(record);
  }
  return timeline;
}

inline Summary any_summary() {
  const auto time = [] { return Seconds(*any_time_s()); };
  const auto maybe = [&]() -> std::optional<Seconds> {
    return *rc::gen::arbitrary<bool>() ? std::optional(time()) : std::nullopt;
  };
  Summary summary;
  summary.steps = *rc::gen::arbitrary<std::uint32_t>();
  summary.ranks = *rc::gen::arbitrary<std::uint32_t>();
  summary.step = time();
  summary.step_p10 = time();
  summary.step_p90 = time();
  summary.compute = time();
  summary.communication = time();
  summary.exposed = time();
  summary.first_launch = maybe();
  summary.communication_end = maybe();
  summary.launches = *any_time_s();
  summary.bound = maybe();
  if (*rc::gen::arbitrary<bool>()) {
    summary.samples_per_s = *any_time_s();
    summary.scaling_efficiency = *any_time_s();
  }
  BucketSummary bucket;
  bucket.bucket = 7;
  bucket.collective = any_enum<Collective>(11);
  bucket.bytes = Bytes(*rc::gen::inRange<std::int64_t>(0, 1LL << 62));
  bucket.ready = maybe();
  bucket.launched = time();
  bucket.started = time();
  bucket.ended = time();
  bucket.exposed = time();
  bucket.exposed_share = time();
  bucket.transfer = time();
  bucket.compute_left = maybe();
  bucket.waited_for = any_enum<WaitedFor>(4);
  summary.buckets.push_back(bucket);
  summary.per_rank.push_back({3, time(), time(), time(), time()});
  summary.codecs.push_back({"topk:0.01", 2.5, Bytes(4096), time(), time(), time(), time()});
  return summary;
}

}  // namespace stretto::testing
