// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stretto/base/buffer.hpp"
#include "stretto/comm/communicator.hpp"
#include "stretto/compress/compressed_bucket.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/timeline.hpp"
#include "stretto/run/recorder.hpp"

namespace stretto {

struct SessionOptions {
  ReduceOp op = ReduceOp::kMean;
  Schedule schedule = Schedule::kOverlap;
  /// Buckets on the wire at once (see CallOptions::stream). One is what the planner's model
  /// assumes; more hide latency, and 0 means all.
  int streams = 1;
  /// Every `verify_every` steps one bucket, another one each time, is reduced a second time by a
  /// blocking call and compared: bit for bit under Algorithm::kDirect. 0 = never. A difference is
  /// kMismatch in finish().
  std::uint32_t verify_every = 0;
  /// Steps kept for timeline(); 0 records nothing.
  std::size_t record_steps = 50;
  /// Under Schedule::kPriority: all reductions go before what gathers their results. For steps that
  /// need gradient_norm() before the first update; without it, what the next forward pass reads
  /// first goes first.
  bool reduce_first = false;
  /// So many steps travel as they are, before the plan's codecs begin. Counted from the first step
  /// of training: restore_compression() goes on where the older job was.
  std::uint32_t codec_start = 0;
  /// What the optimizer multiplies its memory of gradients by, of buckets without a codec with
  /// momentum; from 0 to below 1. Where a codec with momentum comes or goes, residuals and
  /// velocities are brought into the unit in which they move weights as far as they would have.
  double optimizer_momentum = 0.0;
  /// Each rank updates its own part of every bucket only, part_of(bucket's elements, ranks, rank),
  /// and needs optimizer state for no more (ZeRO stage 1: Rajbhandari et al. 2020,
  /// arXiv:1910.02054, section 5.1). Parameters live in parameter(i); a bucket's are gathered after
  /// its callback. The same bytes travel as without it. No codecs, no verify_every, and no
  /// communicator under Ordering::kTotal. Peers wait for this rank's updates: under kPriority, once
  /// in wait() a rank sees to all of them, but between two calls it does not.
  bool shard_optimizer = false;
};

/// Reduces a model's gradients over all ranks while backward is still computing them.
///
/// Per step: write gradient i to gradient(i), call ready(i), for all i in any order and from any
/// thread; then finish(). Gradients live in one flat arena per dtype for the Session's life;
/// addresses never change, not even by replan(). Between finish() (kPriority: wait(i)) and the next
/// ready(i) the caller may do anything with gradient(i).
///
/// Under Schedule::kPriority finish() waits for nothing: communication goes on under the next
/// forward pass, in which wait(i) comes before the first use of parameter i, so that on_bucket()
/// has updated it. Per step: forward with wait(i) before each layer; backward with ready(i);
/// finish(). Before anything else reads parameters or gradients (evaluation, a checkpoint, the end)
/// comes drain(). Weights are those of the other schedules, bit for bit under Algorithm::kDirect:
/// nothing is stale. A bucket travels as two operations, a reduce_scatter when its gradients are
/// ready and an all_gather after it; both of a bucket that is needed earlier overtake those of one
/// that is needed later. Needed earlier is what stands later in the plan: forward is taken to be
/// backward reversed. Buckets with a codec, with an algorithm that has no halves, and those of a
/// communicator under Ordering::kTotal travel whole.
class Session {
 public:
  /// Collective: every rank calls it with an equal plan and equal options.
  /// @throws Error kMismatch on every rank, naming the first tensor or bucket that differs;
  ///         kInvalidArgument if the plan is not valid, or asks for the mean of integers, or its
  ///         codecs go with neither op nor verify_every, or optimizer_momentum is none;
  ///         kUnavailable if the communicator cannot run an algorithm or codec.
  Session(Communicator& communicator, Plan plan, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Where tensor i's gradient is to be written.
  [[nodiscard]] BufferView gradient(std::size_t i) const;
  /// With shard_optimizer: where tensor i's parameter is, of the gradient's type and shape; zeroed.
  /// Without it empty. The arenas are as those of the gradients.
  [[nodiscard]] BufferView parameter(std::size_t i) const;
  [[nodiscard]] std::size_t tensors() const noexcept;
  [[nodiscard]] const Plan& plan() const noexcept;

  /// Gradient i is complete on this rank. Any thread, any order. Lock-free unless it completes a
  /// bucket; waits for no rank. Must have returned, or be running, for every tensor when finish()
  /// is called. A second call in one step is reported by finish() as kReadyTwice and has no other
  /// effect.
  void ready(std::size_t i) noexcept;

  /// Blocks until gradient i, reported ready in the open step, is reduced; returns at once if it
  /// was not reported, because then the last finish() has reduced it. With shard_optimizer, this
  /// rank's part of it.
  /// Under kPriority: blocks until gradient i of the last finished step is reduced here and its
  /// buckets' callbacks have run; other buckets that have arrived are seen to meanwhile. Returns at
  /// once if that is so already. On the thread that calls finish().
  /// @throws Error kInvalidArgument if it cannot travel before others are ready, or under kPriority
  ///         was reported ready in the open step; else as finish().
  void wait(std::size_t i);
  /// wait() for all that is left of the last finished step, what is needed first first. Nothing
  /// unless the schedule is kPriority.
  void drain();

  /// Called once per bucket and step, as buckets arrive, on the thread that is in
  /// finish() (kPriority: in wait(), drain() or replan()): a place for the optimizer's work on that
  /// bucket's tensors, beside the communication of the others. With shard_optimizer `ranges` are
  /// those of this rank's part, and may be empty; gradients elsewhere are unspecified.
  using BucketCallback =
      std::function<void(std::size_t bucket, const std::vector<TensorRange>& ranges)>;
  void on_bucket(BucketCallback callback);

  /// Returns when every gradient is reduced (kPriority: at once), and opens the next step.
  /// @throws Error kNeverReady naming the tensors (the job is aborted: peers fail with the same);
  ///         kReadyTwice (likewise); kPeerLost, kTimeout, kMismatch naming rank, step and bucket;
  ///         under kPriority kInvalidArgument (likewise) when a gradient was ready before all of
  ///         the step before had been waited for.
  ///         What a callback throws goes through, and stops the job. After a throw the Session can
  ///         only be destroyed.
  void finish();

  /// Euclidean norm of all gradients of the step that was just finished, equal on all ranks: the
  /// root of the squares' sum, in fp64, over each rank's parts of the buckets, then over the ranks.
  /// So its last bits depend on the plan. Between finish() and the next ready(); under kPriority it
  /// waits for the reductions, not for what gathers their results. Of gradients as on_bucket() and
  /// the caller have left them; with on_bucket() under kPriority, before the first wait().
  /// Collective.
  /// @throws Error kInvalidArgument: nothing finished, a step open, gradients that are no floating
  ///         numbers, or on_bucket() has had some under kPriority; else as finish().
  [[nodiscard]] double gradient_norm();

  /// The bucket that finish(), wait() or drain() is waiting for right now, for a thread that
  /// watches. Any thread.
  [[nodiscard]] std::optional<std::size_t> awaited() const noexcept;

  /// While it lives, ready() communicates nothing: gradients of several micro-batches add up where
  /// they are. The last micro-batch runs without it.
  class [[nodiscard]] Hold {
   public:
    explicit Hold(Session& session);
    ~Hold();
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Session& session_;
  };
  [[nodiscard]] Hold accumulate() { return Hold(*this); }

  /// What the codecs of the plan's buckets have done on this rank since reset_recording(), of
  /// finished steps (kPriority: drained ones; so both are for then); zeros without codecs.
  struct Compression {
    CodecCounters counters;
    double residual_norm = 0.0;  ///< Euclidean, of what has not been sent yet.
  };
  [[nodiscard]] Compression compression() const;
  /// The optimizer leaves the step that was just finished out, as loss scaling does after an
  /// overflow: what was sent in it counts as not sent, bit by bit. Buckets in which some rank had
  /// gradients that are not finite have kept their residual anyway. On every rank, before the next
  /// ready(), once. Nothing without codecs.
  /// @throws Error kInvalidArgument: a step is open or not drained, none was finished, or it was
  ///         undone before.
  void undo_compression();

  /// The gradients of steps from now on are `factor` times as large as those before, because the
  /// loss is scaled by another number; so is then what is not sent yet. On every rank, between
  /// steps, drained; before or after undo_compression(). Exact for powers of two, which loss scales
  /// are, but for what leaves the range of fp32. Nothing without codecs.
  /// @throws Error kInvalidArgument: a step is open or not drained, or the factor is not finite and
  ///         above 0.
  void rescale_compression(double factor);

  /// What codecs have not sent yet on this rank, for restore_compression() of a later Session:
  /// every rank saves its own. Empty if no codec was ever installed. Between steps, drained.
  /// @throws Error kInvalidArgument: a step is open or not drained.
  [[nodiscard]] std::vector<std::byte> compression_state() const;
  /// Takes up what an older job with the same tensors has saved, in place of what is there; the
  /// next step is then, bit by bit, what it would have been there. `states`: at least this rank's
  /// own; after a change of the number of ranks those of all older ranks (residual_state.hpp says
  /// what becomes of them). Other buckets and other codecs may be installed. Nothing if they are
  /// all empty. On every rank, between steps, drained.
  /// @throws Error kParse: damaged; kMismatch: missing, or of other tensors; kInvalidArgument: a
  /// step
  ///         is open or not drained.
  void restore_compression(std::span<const std::vector<std::byte>> states);

  /// Another way to cut the same tensors. What codecs have not sent yet is kept; what belongs to
  /// elements without a codec now is added to their next gradients. Collective, between steps only;
  /// drains first.
  /// @throws Error kInvalidArgument if the tensors differ or a step is open; kMismatch as the
  ///         constructor; kUnavailable with shard_optimizer, whose parts would move.
  void replan(Plan plan);

  /// Number of the open step, from 0.
  [[nodiscard]] std::uint32_t step() const noexcept;

  /// To add compute intervals; already filled with ready, launched, communication, wait and step.
  /// A step begins with the end of the one before (the first, with the constructor or
  /// reset_recording()).
  [[nodiscard]] Recorder& recorder() noexcept;
  /// Forgets what was recorded and lets the open step begin now: call after warm-up.
  void reset_recording();
  /// This rank's records. Under kPriority a step's exchanges are there once it was drained, and
  /// reach into the next step.
  [[nodiscard]] Timeline timeline() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// All ranks' timelines as one, on rank 0; on the others, empty. Collective.
[[nodiscard]] Timeline gather_timelines(Communicator& communicator, const Timeline& mine);

}  // namespace stretto
