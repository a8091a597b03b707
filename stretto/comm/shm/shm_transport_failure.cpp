// SPDX-License-Identifier: Apache-2.0
// How ShmTransport learns that ranks are gone or have given up, and tells them.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <poll.h>

#include "stretto/comm/shm/shm_transport.hpp"

namespace stretto::detail {
namespace {

// The abort word: code + 1, rank, bucket and step.
constexpr std::uint64_t kNoBucket16 = 0xffff;
std::uint64_t pack_abort(ErrorCode code, int rank, std::uint32_t step, std::uint32_t bucket) {
  return (static_cast<std::uint64_t>(code) + 1) << 56 |
         static_cast<std::uint64_t>(rank & 0xff) << 48 |
         std::min<std::uint64_t>(bucket, kNoBucket16) << 32 | step;
}

using AbortText = decltype(ControlPage::abort_text);

// As much as there is room for.
void pack_text(const ErrorDetail& reason, AbortText& text) noexcept {
  std::size_t at = 0;
  for (const std::string* part : {&reason.message, &reason.found, &reason.expected, &reason.help}) {
    const std::size_t most = text.size() - 1 - at;
    const std::size_t length = std::min(part->size(), most);
    std::copy_n(part->data(), length, text.data() + at);
    at = std::min(at + length + 1, text.size() - 1);
  }
}

ErrorDetail unpack_text(const AbortText& text) {
  ErrorDetail detail;
  std::size_t at = 0;
  for (std::string* part : {&detail.message, &detail.found, &detail.expected, &detail.help}) {
    const std::string_view rest(text.data() + at, text.size() - at);
    *part = rest.substr(0, rest.find('\0'));
    at = std::min(at + part->size() + 1, text.size() - 1);
  }
  return detail;
}

}  // namespace

std::string ShmTransport::name_of(int rank) const {
  std::string name = "rank " + std::to_string(rank);
  if (!world_.pids.empty()) {
    name += " (pid " + std::to_string(world_.pids[static_cast<std::size_t>(rank)]) + ")";
  }
  return name;
}

void ShmTransport::check_peers() {
  if (const std::uint64_t word =
          (*world_.segments)[0].control().abort_word.load(std::memory_order_acquire);
      word != 0) {
    const auto code = static_cast<ErrorCode>((word >> 56) - 1);
    const int rank = static_cast<int>((word >> 48) & 0xff);
    const auto bucket = (word >> 32) & kNoBucket16;
    const auto step = static_cast<std::uint32_t>(word);
    std::string where = name_of(rank);
    if (step != kNoStep) {
      where += ", step " + std::to_string(step);
    }
    if (bucket != kNoBucket16) {
      where += ", bucket " + std::to_string(bucket);
    }
    // Of a rank that is lost, others speak; of one that gave up, itself.
    ErrorDetail detail;
    if (code == ErrorCode::kPeerLost) {
      detail.message = "a rank is lost";
    } else {
      detail = unpack_text((*world_.segments)[rank].control().abort_text);
      if (detail.message.empty()) {
        detail.message = "another rank stopped the job";
        detail.help = "Its own message says why.";
      }
    }
    detail.where = std::move(where);
    throw Error(code, std::move(detail));
  }
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    Peer& other = peer(rank);
    if (rank == world_.rank || other.gone) {
      continue;
    }
    const bool left = (*world_.segments)[rank].control().left.load(std::memory_order_acquire) != 0;
    bool hung_up = false;
    if (!world_.sockets.empty()) {
      pollfd watched{world_.sockets[static_cast<std::size_t>(rank)].get(), POLLRDHUP, 0};
      hung_up =
          ::poll(&watched, 1, 0) > 0 && (watched.revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0;
    }
    if (left || hung_up) {
      other.gone = true;
      other.closed = left;
      ++gone_;
      // Nobody is left to be told that its memory is free again.
      const auto dropped = std::erase_if(other.backlog, [](const Outgoing& packet) {
        return packet.kind == PacketKind::kRelease;
      });
      backlogged_.fetch_sub(static_cast<int>(dropped), std::memory_order_seq_cst);
    }
  }
}

// A peer that is gone matters once something is still expected from it. What it sent before has
// been read by now: poll() calls this only when there was no input.
void ShmTransport::check_gone() {
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& other = peer(rank);
    if (other.gone && (other.receives != nullptr || other.readable != nullptr || other.lent > 0 ||
                       !other.backlog.empty())) {
      std::uint64_t expected = 0;
      (*world_.segments)[0].control().abort_word.compare_exchange_strong(
          expected,
          pack_abort(ErrorCode::kPeerLost, rank, kNoStep, kNoStep),
          std::memory_order_seq_cst);
      for (int awake = 0; awake < static_cast<int>(peers_.size()); ++awake) {
        ring(awake);
      }
      throw Error(ErrorCode::kPeerLost,
                  {other.closed ? "a rank closed its communicator while others still needed it"
                                : "a rank died",
                   name_of(rank),
                   other.closed ? "" : "its connection closed",
                   "",
                   other.closed ? "Every rank must run the same operations."
                                : "Look at that rank's own output and exit status."});
    }
  }
}

std::string ShmTransport::waiting_for() const {
  std::string ranks;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    if (peers_[rank].receives != nullptr || peers_[rank].readable != nullptr ||
        peers_[rank].lent > 0) {
      ranks += (ranks.empty() ? "rank " : ", ") + std::to_string(rank);
    }
  }
  return ranks.empty() ? "any rank" : ranks;
}

void ShmTransport::explain(const ErrorDetail& reason) noexcept {
  ControlPage& control = (*world_.segments)[world_.rank].control();
  if (control.abort_text_taken.exchange(1, std::memory_order_relaxed) == 0) {
    pack_text(reason, control.abort_text);
  }
}

void ShmTransport::abort(ErrorCode code, std::uint32_t step, std::uint32_t bucket) noexcept {
  std::uint64_t expected = 0;
  (*world_.segments)[0].control().abort_word.compare_exchange_strong(
      expected, pack_abort(code, world_.rank, step, bucket), std::memory_order_seq_cst);
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != world_.rank) {
      ring(rank);
    }
  }
}

}  // namespace stretto::detail
