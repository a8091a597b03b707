// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stretto/base/intervals.hpp"
#include "stretto/data/collective.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/database.hpp"

/// What NCCL itself tells Nsight Systems about its calls: NVTX ranges `ncclAllReduce`... whose
/// payload holds the bytes. Private to trace/: not installed.
namespace stretto::detail {

class NcclRanges {
 public:
  /// Reads where in a payload its fields lie.
  explicit NcclRanges(const Database& database);

  /// `ncclAllReduce`; not `nccl:all_reduce`, which is PyTorch's range around it.
  [[nodiscard]] static bool is_nccl(std::string_view name) noexcept {
    return name.starts_with("nccl") && name.size() > 4 && name[4] >= 'A' && name[4] <= 'Z';
  }

  void add(std::uint32_t rank,
           std::uint32_t thread,
           Interval when,
           std::string_view name,
           std::string_view payload);

  /// Gives each communication kernel the call in which it was launched. Enqueues must have their
  /// rank, thread and link, and links must be small numbers. A range itself becomes no record: the
  /// kernel is there already.
  void attach(TraceBuilder& builder, std::size_t links);

  /// Ranks of the largest communicator that was made in the recording; 0 if none.
  [[nodiscard]] std::uint32_t world_size() const noexcept { return world_size_; }

 private:
  enum class Kind : std::uint8_t { kOperation, kGroupStart, kGroupEnd };
  struct Call {
    Interval when;
    std::uint32_t rank = 0;
    std::uint32_t thread = 0;
    Kind kind = Kind::kOperation;
    Collective collective = Collective::kNone;
    std::int32_t peer = -1;
    std::int64_t bytes = -1;  // as the payload has them; -1 unknown
    std::uint64_t communicator = 0;
  };
  struct Fields {
    std::optional<std::uint32_t> bytes, communicator, ranks, peer;  // offsets
  };

  [[nodiscard]] std::vector<Call> launches();
  [[nodiscard]] static Call combined(const std::vector<Call>& group, const Call& end);
  void set_call(TraceBuilder& builder, Record& record, const Call& call) const;

  std::map<std::pair<std::int64_t, std::int64_t>, Fields> schemas_;  // domain, schema
  std::map<std::uint64_t, std::uint32_t> ranks_of_;                  // communicator
  std::vector<Call> calls_;
  std::uint32_t world_size_ = 0;
};

}  // namespace stretto::detail
