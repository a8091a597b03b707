// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/engine.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "stretto/comm/algorithm/algorithms.hpp"
#include "stretto/comm/operation_code.hpp"

namespace stretto::detail {
namespace {

// How long a communicator that is destroyed tries to hand over what it has sent.
constexpr auto kFlush = std::chrono::seconds(1);
constexpr std::uint32_t kAutomaticSlot = 1U << 24;
constexpr std::uint32_t kPointToPointSlot = 1U << 25;

// A stream holds an operation back until its predecessor is over or a peer has begun it. That
// cannot block anybody only if beginning an operation is seen by every peer. Of those in which some
// rank sends nothing to another at first, large ones tell it (tell_and_carry_out()); what is too
// small for all ranks to have a part, and a broadcast, begins at once instead.
bool keeps_to_stream(const Call& call, int ranks) {
  switch (call.kind) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather: {
      const Part last = part_of(call.data.count, ranks, ranks - 1);
      return last.begin < last.end;
    }
    default:
      return false;
  }
}

bool tells_every_peer(const Call& call) {
  return call.options.algorithm == Algorithm::kAuto ||
         call.options.algorithm == Algorithm::kDirect || call.options.algorithm == Algorithm::kRing;
}

// Lets every peer know that this rank has begun, by an empty message.
Task tell_and_carry_out(Exchange& exchange, const Call& call, BufferView stage) {
  constexpr std::uint32_t kTelling = 0xffffffffU;
  const std::size_t peers = static_cast<std::size_t>(exchange.size) - 1;
  Group sent(exchange.resumer);
  Group told(exchange.resumer);
  PeerArray<Message> out(peers);
  PeerArray<Message> in(peers);
  for (std::size_t i = 0; i < peers; ++i) {
    const int peer = (exchange.rank + 1 + static_cast<int>(i)) % exchange.size;
    exchange.send(out[i], sent, peer, kTelling, {});
    exchange.receive(in[i], told, peer, kTelling, 0);
  }
  if (stage.data != nullptr) {
    co_await staged(exchange, call, stage);
  } else {
    co_await carry_out(exchange, call);
  }
  co_await told;
  for (std::size_t i = 0; i < peers; ++i) {
    exchange.transport.release(in[i]);
  }
  co_await sent;
}

}  // namespace

struct Engine::Operation final : WorkState, Group::Resumer {
  Operation(Engine& owner, Call what)
      : engine(owner),
        call(std::move(what)),
        exchange{*owner.transport_, *this, owner.options_.rank, owner.options_.size} {
    exchange.divisor = owner.options_.size;
    exchange.groups = &owner.options_.groups;
  }

  void resume_later(std::coroutine_handle<> handle) override;

  Engine& engine;
  Call call;
  Exchange exchange;
  Task task;
  std::unique_ptr<Arena> stage;
  std::shared_ptr<Operation> self;  // from start() until the driver takes it into active_
  Operation* older = nullptr;       // in the inbox
  std::uint64_t sequence = 0;
  std::uint64_t key = 0;     // operations with one key run one after the other
  ModelTime not_before = 0;  // end of the operation before it with the same key
  Nanoseconds deadline{};    // set by the first heartbeat after it last moved
  bool begun = false;
};

// The most urgent first; among equals the operation started first, so that a breath gives way to
// urgency only.
bool Engine::Ready::operator<(const Ready& other) const {
  if (priority != other.priority) {
    return priority < other.priority;
  }
  return sequence != other.sequence ? sequence > other.sequence : order > other.order;
}

void Engine::Operation::resume_later(std::coroutine_handle<> handle) {
  engine.ready_.push_back({exchange.priority, sequence, engine.next_ready_++, this, handle});
  std::push_heap(engine.ready_.begin(), engine.ready_.end());
}

Engine::Engine(std::unique_ptr<Transport> transport, Options options)
    : transport_(std::move(transport)), options_(std::move(options)), stages_(*transport_) {
  transport_->on_unexpected = [this] { admit_ = true; };
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Engine::~Engine() {
  thread_.request_stop();
  transport_->wake();
  thread_.join();
  const std::scoped_lock lock(mutex_);
  // What is on its way out belongs to operations that are over here, but not on the peers.
  const Nanoseconds give_up = now() + kFlush;
  while (busy_with_backlog() && now() < give_up) {
    guarded([this] {
      transport_->poll();
      transport_->check_peers();
    });
  }
  if (failure_) {
    drain_inbox();
  } else {
    if (!active_.empty() || inbox_.load(std::memory_order_acquire) != nullptr) {
      transport_->abort(ErrorCode::kBackend, kNoStep, kNoStep);
    }
    fail_all(Error(ErrorCode::kBackend, "the communicator was destroyed while this was in flight"));
  }
}

// Only the driver writes it. Release is enough: whoever must not miss a change reads it after the
// driver has given up the lock or left `callers_`.
void Engine::count_in_flight() noexcept {
  in_flight_.store(static_cast<int>(active_.size()), std::memory_order_release);
}

Work Engine::start(const Call& call) {
  auto operation = std::make_shared<Operation>(*this, call);
  operation->waiter = this;
  const bool pair = call.kind == Collective::kSend || call.kind == Collective::kRecv;
  std::uint32_t slot = 0;
  if (call.options.slot) {
    slot = *call.options.slot;
  } else if (!pair) {
    slot = kAutomaticSlot | (next_slot_.fetch_add(1, std::memory_order_relaxed) & kMaxSlot);
  }
  if (pair) {
    slot |= kPointToPointSlot | (call.options.slot ? 0 : kAutomaticSlot);
  }
  if (operation->call.options.stream && !keeps_to_stream(call, options_.size)) {
    operation->call.options.stream.reset();
  }
  operation->exchange.slot = slot;
  operation->exchange.what = code_of(call);
  operation->exchange.priority = call.options.priority;
  operation->key = slot;
  if (pair) {
    operation->key |=
        (static_cast<std::uint64_t>(call.peer) * 2 + (call.kind == Collective::kSend ? 2U : 3U))
        << 32;
  }
  const bool background = call.options.progress == Progress::kBackground || options_.emulated;
  if (background) {
    operation->times.launched = now();
  }
  operation->self = operation;
  if (options_.size == 1 && !failed_.load(std::memory_order_acquire)) {
    // Alone, every collective is over before it begins.
    operation->self.reset();
    if (call.kind == Collective::kAllToAll && call.data.count != 0) {
      std::memcpy(call.in[0].data, call.data.data, call.data.size_bytes());
    }
    operation->times.started = operation->times.ended = operation->times.launched;
    operation->complete();
    return Work(std::move(operation));
  }
  Operation* const raw = operation.get();
  // Release: the driver that takes it sees all of the operation.
  raw->older = inbox_.load(std::memory_order_relaxed);
  while (!inbox_.compare_exchange_weak(
      raw->older, raw, std::memory_order_release, std::memory_order_relaxed)) {
  }
  if (background) {
    background_posted_.store(true, std::memory_order_seq_cst);
    transport_->wake();
  }
  return Work(std::move(operation));
}

bool Engine::drain_inbox() {
  // First the flag, then the inbox: who sets the flag has put the operation there before. Callers
  // that drive what they started themselves never set it.
  if (background_posted_.load(std::memory_order_relaxed)) {
    background_posted_.exchange(false, std::memory_order_seq_cst);
  }
  Operation* newest = inbox_.exchange(nullptr, std::memory_order_acquire);
  Operation* oldest = nullptr;
  while (newest != nullptr) {  // reverse
    Operation* const next = newest->older;
    newest->older = oldest;
    oldest = newest;
    newest = next;
  }
  const bool any = oldest != nullptr;
  while (oldest != nullptr) {
    Operation& operation = *oldest;
    oldest = operation.older;
    if (failure_) {
      const std::shared_ptr<Operation> self = std::move(operation.self);
      operation.fail(*failure_);
      continue;
    }
    if (active_.empty()) {
      transport_->became_busy();
    }
    operation.sequence = next_sequence_++;
    active_.push_back(std::move(operation.self));
    count_in_flight();
    if (admissible(operation)) {
      guarded([&] { begin(operation); });
    } else {
      waiting_.push_back(&operation);
    }
  }
  return any;
}

bool Engine::key_in_use(std::uint64_t key) const {
  // Mostly answered by a counter; a scan only when keys share one.
  return keys_in_use_[key % kKeyBuckets] != 0 &&
         std::any_of(active_.begin(), active_.end(), [key](const auto& operation) {
           return operation->begun && operation->key == key;
         });
}

bool Engine::admissible(const Operation& operation) {
  if (key_in_use(operation.key)) {
    return false;
  }
  if (!operation.call.options.stream) {
    return true;
  }
  const Stream& stream = streams_[*operation.call.options.stream];
  const bool more_urgent =
      std::all_of(stream.running.begin(), stream.running.end(), [&](const Operation* other) {
        return other->exchange.priority < operation.exchange.priority;
      });
  return more_urgent || transport_->has_unexpected(operation.exchange.slot);
}

bool Engine::admit_waiting() {
  bool any = false;
  // In order of start, the most urgent first where it matters: a stream that falls free goes to the
  // operation with the highest priority.
  std::stable_sort(waiting_.begin(), waiting_.end(), [](const Operation* a, const Operation* b) {
    return a->exchange.priority > b->exchange.priority;
  });
  for (std::size_t i = 0; i < waiting_.size();) {
    Operation& operation = *waiting_[i];
    if (admissible(operation)) {
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      begin(operation);
      any = true;
    } else {
      ++i;
    }
  }
  return any;
}

void Engine::begin(Operation& operation) {
  const Call& call = operation.call;
  Exchange& exchange = operation.exchange;
  operation.begun = true;
  ++keys_in_use_[operation.key % kKeyBuckets];
  if (options_.emulated) {
    exchange.now = std::max<ModelTime>(operation.times.launched.count(), operation.not_before);
  }
  if (call.options.stream) {
    Stream& stream = streams_[*call.options.stream];
    if (stream.running.empty()) {
      exchange.now = std::max(exchange.now, stream.last_end);
    }
    stream.running.push_back(&operation);
  }
  if (operation.times.launched.count() != 0) {
    operation.times.started = now();
  }
  if (exchange.size > 1) {
    BufferView stage;
    if (lends(exchange, call) && !transport_->can_lend(call.data.data, call.data.size_bytes())) {
      operation.stage = stages_.take(call.data.size_bytes());
      const std::span<std::byte> bytes = operation.stage->bytes();
      stage = {bytes.data(), bytes.size() / size_of(call.data.dtype), call.data.dtype, {}};
    }
    if (call.options.stream && !tells_every_peer(call)) {
      operation.task = tell_and_carry_out(exchange, call, stage);
    } else {
      operation.task =
          stage.data != nullptr ? staged(exchange, call, stage) : carry_out(exchange, call);
    }
    operation.task.handle().resume();
  }
  if (operation.task.done()) {
    finish(operation);
  }
}

bool Engine::resume_ready() {
  // A few at a time, so that input and urgent operations are seen in between.
  bool any = false;
  for (int i = 0; i < 4 && !ready_.empty(); ++i) {
    std::pop_heap(ready_.begin(), ready_.end());
    const Ready next = ready_.back();
    ready_.pop_back();
    next.operation->deadline = {};
    next.handle.resume();
    any = true;
    if (next.operation->task.done()) {
      finish(*next.operation);
    }
  }
  return any;
}

void Engine::finish(Operation& operation) {
  operation.task.rethrow();
  if (transport_->aborted()) {
    // What a failed rank had lent may have been taken back under our hands: nothing that ends after
    // the abort is a result.
    transport_->check_peers();
  }
  if (options_.emulated) {
    // Arrivals are handed over ahead of their time, so this may have ended before its own.
    const ModelTime until = std::max(operation.exchange.now, operation.latest);
    if (until > now().count()) {
      held_.push({until, &operation});
      return;
    }
  }
  retire(operation);
}

bool Engine::release_held() {
  bool any = false;
  while (!held_.empty() && held_.top().until <= now().count()) {
    const Held held = held_.top();
    held_.pop();
    transport_->noticed(held.until);
    retire(*held.operation);
    any = true;
  }
  return any;
}

// Completes an operation and lets those go that waited for it.
void Engine::retire(Operation& operation) {
  if (operation.times.launched.count() != 0) {
    operation.times.ended = now();
  }
  if (options_.emulated) {
    operation.times.emulated_end = Nanoseconds(operation.exchange.now);
  }
  --keys_in_use_[operation.key % kKeyBuckets];
  if (operation.call.options.stream) {
    Stream& stream = streams_[*operation.call.options.stream];
    std::erase(stream.running, &operation);
    stream.last_end = std::max(stream.last_end, operation.exchange.now);
  }
  if (operation.stage) {
    stages_.give_back(std::move(operation.stage));
  }
  for (Operation* const other : waiting_) {
    if (other->key == operation.key) {
      other->not_before = operation.exchange.now;
    }
  }
  const auto position = std::find_if(
      active_.begin(), active_.end(), [&](const auto& other) { return other.get() == &operation; });
  const std::shared_ptr<Operation> self = std::move(*position);
  *position = std::move(active_.back());
  active_.pop_back();
  operation.task = Task();
  count_in_flight();
  operation.complete();
  admit_ = true;
}

void Engine::check_deadlines() {
  const Nanoseconds at = now();
  std::uint64_t moving = 0;
  for (const auto& operation : active_) {
    moving += operation->begun ? operation->call.data.size_bytes() : 0;
  }
  for (const auto& operation : active_) {
    if (!operation->begun) {
      continue;  // held back by another one, whose time runs
    }
    if (operation->deadline.count() == 0) {
      operation->deadline = at + options_.timeout + transport_->least_time(moving);
    } else if (at > operation->deadline && at > transport_->last_movement() + options_.timeout) {
      const std::string what = std::string(to_string(operation->call.kind)) +
                               (operation->call.options.slot
                                    ? " on slot " + std::to_string(*operation->call.options.slot)
                                    : "");
      transport_->abort(ErrorCode::kTimeout, kNoStep, kNoStep);
      throw Error(ErrorCode::kTimeout,
                  {what + " did not finish in time",
                   "rank " + std::to_string(options_.rank),
                   "nothing from " + transport_->waiting_for() + " after " +
                       format(Seconds(options_.timeout)),
                   "all ranks to start the same operation",
                   "Look at what the silent rank is doing, or raise the time-out."});
    }
  }
}

void Engine::fail_job(const std::exception& reason) noexcept {
  const auto* const typed = dynamic_cast<const Error*>(&reason);
  const Error error = typed != nullptr ? *typed : Error(ErrorCode::kBackend, reason.what());
  // Before memory that peers may be reading goes.
  transport_->abort(error.code(), kNoStep, kNoStep);
  fail_all(error);
}

void Engine::fail_all(const Error& reason) noexcept {
  failure_.emplace(reason);
  failed_.store(true, std::memory_order_release);
  ready_.clear();
  held_ = {};
  waiting_.clear();
  streams_.clear();
  keys_in_use_.fill(0);
  if (transport_->aborted()) {
    transport_->withdraw();
  }
  std::vector<std::shared_ptr<Operation>> failing;
  failing.swap(active_);
  count_in_flight();
  for (const auto& operation : failing) {
    operation->task =
        Task();  // with it go the messages the transport knows: it is not polled again
    operation->stage.reset();
    operation->fail(reason);
  }
  if (inbox_.load(std::memory_order_relaxed) != nullptr) {
    drain_inbox();
  }
}

void Engine::abort(const Error& reason, std::uint32_t step, std::uint32_t bucket) noexcept {
  transport_->explain(reason.detail());
  transport_->abort(reason.code(), step, bucket);
  callers_.fetch_add(1, std::memory_order_seq_cst);
  {
    const std::scoped_lock lock(mutex_);
    if (!failure_) {
      fail_all(reason);
    }
  }
  callers_.fetch_sub(1, std::memory_order_seq_cst);
  transport_->wake();
}

EmulationStatistics Engine::emulation_statistics() const {
  return transport_->emulation_statistics();
}

}  // namespace stretto::detail
