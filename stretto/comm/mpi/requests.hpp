// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stretto/comm/mpi/module/module.hpp"

namespace stretto::detail {

/// What an MPI request in flight is for.
struct MpiRequest {
  enum class Kind : std::uint8_t {
    kFree,
    kHeaderReceive,   ///< `what`: the header's place in the ring.
    kHeaderSend,      ///< `what`: its buffer.
    kSegmentSend,     ///< `what`: the Sending it is part of.
    kSegmentReceive,  ///< `what`: the Receiving.
  };
  Kind kind = Kind::kFree;
  int peer = kMpiAnyRank;
  std::size_t bytes = 0;
  void* what = nullptr;
};

/// Requests side by side, as MPI_Testsome wants them. The memory of requests that are over is used
/// again.
class MpiRequests {
 public:
  explicit MpiRequests(const MpiModule& mpi) : mpi_(mpi) {}

  /// A place for one more; what it points to is valid until the next add().
  [[nodiscard]] void* add(const MpiRequest& request) {
    std::size_t at = 0;
    if (free_.empty()) {
      at = entries_.size();
      entries_.emplace_back();
      handles_.resize(entries_.size() * mpi_.request_bytes);
      finished_.resize(entries_.size());
    } else {
      at = free_.back();
      free_.pop_back();
    }
    entries_[at] = request;
    void* const handle = handles_.data() + at * mpi_.request_bytes;
    mpi_.clear(handle);
    ++in_flight_;
    return handle;
  }

  /// Makes progress and calls `over(request)` for each that is over; it may add others.
  /// Returns an MPI error code; then `failed` is what failed, if that is known.
  template <typename Over>
  int test(void* communicator, MpiRequest& failed, bool& any, Over&& over) {
    int count = 0;
    int failed_at = -1;
    const int code = mpi_.test_some(communicator,
                                    handles_.data(),
                                    static_cast<int>(entries_.size()),
                                    finished_.data(),
                                    &count,
                                    &failed_at);
    if (code != 0) {
      failed = failed_at < 0 ? MpiRequest{} : entries_[static_cast<std::size_t>(failed_at)];
      return code;
    }
    any = count > 0;
    batch_.assign(finished_.begin(), finished_.begin() + count);
    for (const int at : batch_) {
      const auto index = static_cast<std::size_t>(at);
      const MpiRequest request = entries_[index];
      entries_[index] = {};
      free_.push_back(index);
      --in_flight_;
      over(request);
    }
    return 0;
  }

  /// Gives up all receives that have not begun. They are over only when test() says so.
  void cancel_receives() {
    for (std::size_t at = 0; at < entries_.size(); ++at) {
      const MpiRequest::Kind kind = entries_[at].kind;
      if (kind == MpiRequest::Kind::kHeaderReceive || kind == MpiRequest::Kind::kSegmentReceive) {
        mpi_.cancel(handles_.data() + at * mpi_.request_bytes);
      }
    }
  }

  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

 private:
  const MpiModule& mpi_;
  std::vector<MpiRequest> entries_;
  std::vector<std::byte> handles_;  // as many, request_bytes each
  std::vector<std::size_t> free_;
  std::vector<int> finished_;
  std::vector<int> batch_;
  std::size_t in_flight_ = 0;
};

}  // namespace stretto::detail
