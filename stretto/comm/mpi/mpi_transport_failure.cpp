// SPDX-License-Identifier: Apache-2.0
// How MpiTransport learns that ranks are gone or have given up, and tells them.
#include <algorithm>
#include <ctime>
#include <string>
#include <thread>

#include "stretto/comm/mpi/loader.hpp"
#include "stretto/comm/mpi/mpi_transport.hpp"

namespace stretto::detail {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank that leaves in good order waits for the others to have heard everything.
constexpr auto kFarewell = std::chrono::seconds(1);
// How long a failed rank waits for transfers that have begun, whose memory is about to go.
constexpr auto kWithdraw = std::chrono::milliseconds(200);

ModelTime monotonic_ns() {
  return std::chrono::duration_cast<Nanoseconds>(Clock::now().time_since_epoch()).count();
}

}  // namespace

MpiTransport::~MpiTransport() {
  if (!aborted() && !problem_) {
    say_farewell();
  }
  const bool failed = aborted() || problem_.has_value();
  if (failed) {
    mpi_.leave_unfinalized();
    withdraw();
  } else {
    requests_.cancel_receives();
    MpiRequest ignored;
    bool any = false;
    const Clock::time_point give_up = Clock::now() + kWithdraw;
    while (requests_.in_flight() > 0 && Clock::now() < give_up &&
           requests_.test(world_.communicator, ignored, any, [](const MpiRequest&) {}) == 0) {
    }
    if (requests_.in_flight() == 0) {
      mpi_.free_communicator(world_.communicator);
    }
  }
  if (requests_.in_flight() > 0) {
    // MPI may still write into what is posted: such memory is never used again.
    for (HeaderPlace& place : headers_) {
      (void)place.buffer.data.release();
    }
  }
}

// Waits until no rank will send this one anything any more, and every rank has got all from it: MPI
// may not be finalised before (MPICH over UCX then hangs), nor may it hold what others wait for.
void MpiTransport::say_farewell() {
  leaving_ = true;
  std::vector<int> told;
  for (int to = 0; to < world_.size; ++to) {
    if (to != world_.rank && !peer(to).closed) {
      post(to, {.kind = HeaderKind::kFarewell}, nullptr, 0);
      told.push_back(to);
    }
  }
  const Clock::time_point give_up = Clock::now() + kFarewell;
  const auto everybody = [this, &told] {
    return headers_out_.load(std::memory_order_relaxed) == 0 &&
           std::all_of(told.begin(), told.end(), [this](int to) {
             return peer(to).closed || peer(to).let_us_go;
           });
  };
  while (!everybody() && !aborted() && !problem_ && Clock::now() < give_up) {
    if (!progress()) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

void MpiTransport::mpi_failed(int code, const MpiRequest& request, const char* doing) {
  if (code == 0 || problem_) {
    return;
  }
  const std::string text = mpi_error_text(mpi_, code);
  if (request.peer < 0) {
    problem_.emplace(ErrorCode::kBackend,
                     ErrorDetail{std::string("MPI could not ") + doing + " other ranks",
                                 "rank " + std::to_string(world_.rank),
                                 text,
                                 "",
                                 "Look at the other ranks' output."});
    return;
  }
  lost_ = request.peer;
  problem_.emplace(ErrorCode::kPeerLost,
                   ErrorDetail{std::string("MPI could not ") + doing + " a rank",
                               name_of(request.peer),
                               text,
                               "",
                               "Look at that rank's own output and exit status."});
}

bool MpiTransport::expects(const Peer& other) noexcept {
  return !other.unannounced.empty() || other.arriving > 0 || !other.offered.empty() ||
         !other.sending.empty();
}

void MpiTransport::check_peers() {
  if (aborted()) {
    throw abort_error();
  }
  const ModelTime now = monotonic_ns();
  for (int rank = 0; rank < world_.size; ++rank) {
    Peer& other = peer(rank);
    if (rank == world_.rank) {
      continue;
    }
    if (!expects(other)) {
      other.waiting_since = 0;
      continue;
    }
    if (other.waiting_since == 0) {
      other.waiting_since = now;
    }
    const ModelTime silent = now - std::max(other.heard_at, other.waiting_since);
    if (silent > silence_.count()) {
      lost_ = rank;
      throw Error(ErrorCode::kPeerLost,
                  {"a rank is silent",
                   name_of(rank),
                   "no sign of life for " + format(Seconds(Nanoseconds(silent))),
                   "an answer within " + format(Seconds(silence_)),
                   "It died, is stopped, or its network is down: look at its own output and exit "
                   "status. A longer time-out waits longer."});
    }
    if (silent > silence_.count() / 4 && now - other.pinged_at > silence_.count() / 4) {
      other.pinged_at = now;
      post(rank, {.kind = HeaderKind::kPing}, nullptr, 0);
    }
  }
}

// A peer that has left matters once something is expected that it had not announced before. What
// it sent before its farewell has been read.
void MpiTransport::check_gone() {
  for (int rank = 0; rank < world_.size; ++rank) {
    const Peer& other = peer(rank);
    if (other.closed && (!other.unannounced.empty() || !other.offered.empty())) {
      lost_ = rank;
      throw Error(ErrorCode::kPeerLost,
                  {"a rank closed its communicator while others still needed it",
                   name_of(rank),
                   "",
                   "",
                   "Every rank must run the same operations."});
    }
  }
}

Error MpiTransport::abort_error() const {
  const std::scoped_lock lock(abort_mutex_);
  const bool lost = notice_->code == ErrorCode::kPeerLost;
  std::string where = name_of(notice_->about);
  if (notice_->step != kNoStep) {
    where += ", step " + std::to_string(notice_->step);
  }
  if (notice_->bucket != kNoStep) {
    where += ", bucket " + std::to_string(notice_->bucket);
  }
  return {notice_->code,
          {lost ? "a rank is lost" : "another rank stopped the job",
           where,
           lost && notice_->about != notice_->rank
               ? "rank " + std::to_string(notice_->rank) + " says so"
               : "",
           "",
           lost ? "Look at that rank's own output and exit status." : "Its own message says why.",
           true}};
}

std::string MpiTransport::waiting_for() const {
  std::string ranks;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (expects(peers_[rank])) {
      ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(rank);
    }
  }
  return ranks.empty() ? "any rank" : ranks;
}

// From any thread, and at once: MPI is called beside whoever drives.
void MpiTransport::abort(ErrorCode code, std::uint32_t step, std::uint32_t bucket) noexcept {
  const std::scoped_lock lock(abort_mutex_);
  if (notice_) {
    return;
  }
  const int about = code == ErrorCode::kPeerLost ? lost_.value_or(world_.rank) : world_.rank;
  notice_ = {code, world_.rank, about, step, bucket};
  aborted_.store(true, std::memory_order_release);
  abort_header_ = {.kind = HeaderKind::kAbort,
                   .from = world_.rank,
                   .address = static_cast<Address>(step) << 32 | bucket,
                   .tag = static_cast<std::int32_t>(code),
                   .about = about};
  for (int to = 0; to < world_.size; ++to) {
    if (to != world_.rank) {
      void* const request = abort_requests_.add({MpiRequest::Kind::kHeaderSend, to, 0, nullptr});
      (void)mpi_.send(
          world_.communicator, &abort_header_, sizeof abort_header_, to, kHeaderTag, request);
    }
  }
}

// MPI cannot take back a transfer that has begun, and writes when somebody lets it make progress.
// So receives that have not begun are cancelled, the others are given a moment; and then MPI is
// left alone for ever.
void MpiTransport::withdraw() noexcept {
  if (withdrawn_) {
    return;
  }
  withdrawn_ = true;
  mpi_.leave_unfinalized();
  const std::scoped_lock lock(abort_mutex_);
  requests_.cancel_receives();
  const auto nothing = [](const MpiRequest&) {};
  MpiRequest ignored;
  bool any = false;
  bool well = true;
  const Clock::time_point give_up = Clock::now() + kWithdraw;
  while (well && (requests_.in_flight() > 0 || abort_requests_.in_flight() > 0) &&
         Clock::now() < give_up) {
    well = requests_.test(world_.communicator, ignored, any, nothing) == 0 &&
           abort_requests_.test(world_.communicator, ignored, any, nothing) == 0;
    std::this_thread::yield();
  }
}

}  // namespace stretto::detail
