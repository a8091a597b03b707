// SPDX-License-Identifier: Apache-2.0
#include "root_cause.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "output.hpp"

namespace stretto::cli {
namespace {

std::string name_ranks(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// What the ranks other than `cause` did, in one line. Ranks that failed in the same way as the
/// cause are not worth it.
std::string others(const Error& cause, int cause_rank, const std::vector<RankError>& errors) {
  std::string text;
  std::vector<std::string_view> codes;
  for (const RankError& failed : errors) {
    const std::string_view code = to_string(failed.error.code());
    const bool same = failed.error.code() == cause.code() &&
                      failed.error.detail().message == cause.detail().message;
    if (failed.rank == cause_rank || same ||
        std::find(codes.begin(), codes.end(), code) != codes.end()) {
      continue;
    }
    codes.push_back(code);
    std::vector<int> ranks;
    for (const RankError& other : errors) {
      if (other.rank != cause_rank && other.error.code() == failed.error.code()) {
        ranks.push_back(other.rank);
      }
    }
    text += fmt::format("{}{} failed with {}", text.empty() ? "" : "; ", name_ranks(ranks), code);
  }
  return text;
}

Error killed(const RankExit& exit, const std::vector<RankError>& errors) {
  // The survivors know how far the job was.
  std::string where;
  for (const RankError& survivor : errors) {
    if (survivor.error.code() == ErrorCode::kPeerLost && where.empty()) {
      where = survivor.error.detail().where;
    }
  }
  const char* name = sigabbrev_np(exit.signal);
  std::string help = "See what the rank printed above";
  if (exit.signal == SIGKILL) {
    help = "Somebody killed it, or the system was out of memory (see dmesg)";
  }
  return {ErrorCode::kPeerLost,
          {fmt::format("rank {} (pid {}) was killed by signal {} (SIG{})",
                       exit.rank,
                       exit.pid,
                       exit.signal,
                       name == nullptr ? "?" : name),
           where,
           "",
           "",
           help}};
}

}  // namespace

Failure root_cause(const LaunchResult& result, const std::vector<RankError>& errors) {
  for (const RankExit& exit : result.exits) {
    if (exit.signal != 0 && !exit.ended_by_us) {
      Error error = killed(exit, errors);
      std::string consequences = others(error, exit.rank, errors);
      return {std::move(error), std::move(consequences), exit_code(ErrorCode::kPeerLost)};
    }
  }
  const auto is_cause = [](const RankError& failed) {
    return failed.error.code() != ErrorCode::kPeerLost;
  };
  auto cause = std::find_if(errors.begin(), errors.end(), is_cause);
  cause = cause == errors.end() ? errors.begin() : cause;
  if (cause != errors.end()) {
    return {
        cause->error, others(cause->error, cause->rank, errors), exit_code(cause->error.code())};
  }
  const auto exit = std::find_if(result.exits.begin(), result.exits.end(), [](const RankExit& one) {
    return one.exit_code != 0;
  });
  const int rank = exit == result.exits.end() ? 0 : exit->rank;
  return {Error(ErrorCode::kBackend,
                {fmt::format("rank {} ended without saying why", rank),
                 "",
                 fmt::format("exit code {}", result.exit_code),
                 "0",
                 "See what the rank printed above"}),
          "",
          1};
}

}  // namespace stretto::cli
