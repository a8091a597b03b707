// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/nsys_nccl.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>

#include "stretto/trace/classify.hpp"

namespace stretto::detail {
namespace {

// A payload in NVTX_EVENTS.binaryData is a head of 32 bytes and the data. The head, little-endian,
// as exports of nsys 2026 have it: domain, unused, schema, unused (4 bytes each), size of the data,
// size of it all (8 bytes each).
constexpr std::size_t kHeadBytes = 32;
constexpr std::size_t kSchemaAt = 8;
constexpr std::size_t kSizeAt = 16;

// More is no size of a message and no number of ranks. Their product must fit.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
constexpr std::uint64_t kMostRanks = std::uint64_t{1} << 20;

std::uint64_t little_endian(std::string_view bytes, std::size_t at, std::size_t width) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return value;
}

std::optional<std::uint64_t> field(std::string_view data,
                                   std::optional<std::uint32_t> offset,
                                   std::size_t width) noexcept {
  if (!offset || *offset > data.size() || data.size() - *offset < width) {
    return std::nullopt;
  }
  return little_endian(data, *offset, width);
}

std::string hexadecimal(std::uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 0xfU]);
    value >>= 4U;
  } while (value != 0);
  return "0x" + text;
}

}  // namespace

NcclRanges::NcclRanges(const Database& database) {
  constexpr std::string_view kTable = "NVTX_PAYLOAD_SCHEMA_ENTRIES";
  if (!database.has(kTable)) {
    return;
  }
  Query entries = database.select(kTable, {"domainId", "schemaId", "name", "offset"});
  while (entries.next()) {
    const std::int64_t offset = entries.integer(3).value_or(0);  // the first has none
    if (offset < 0 || offset > std::numeric_limits<std::uint16_t>::max()) {
      continue;
    }
    Fields& fields = schemas_[{entries.integer(0).value_or(0), entries.integer(1).value_or(0)}];
    const auto place = static_cast<std::uint32_t>(offset);
    const std::string_view name = entries.text(2);
    if (name.starts_with("Message size")) {
      fields.bytes = place;
    } else if (name == "NCCL communicator ID") {
      fields.communicator = place;
    } else if (name == "No. of ranks") {
      fields.ranks = place;
    } else if (name == "Peer rank") {
      fields.peer = place;
    }
  }
  // Payloads only add to what is known: a fault here costs bytes, no time.
}

void NcclRanges::add(std::uint32_t rank,
                     std::uint32_t thread,
                     Interval when,
                     std::string_view name,
                     std::string_view payload) {
  Call call;
  call.when = when;
  call.rank = rank;
  call.thread = thread;
  if (name == "ncclGroupStart") {
    call.kind = Kind::kGroupStart;
  } else if (name == "ncclGroupEnd") {
    call.kind = Kind::kGroupEnd;
  } else {
    call.collective = collective_of_name(name);
  }
  if (payload.size() >= kHeadBytes) {
    const auto domain = static_cast<std::int64_t>(little_endian(payload, 0, 4));
    const auto schema = static_cast<std::int64_t>(little_endian(payload, kSchemaAt, 4));
    const std::uint64_t size = little_endian(payload, kSizeAt, 8);
    const auto known = schemas_.find({domain, schema});
    const std::string_view data = payload.substr(kHeadBytes);
    if (known != schemas_.end() && size <= data.size()) {
      const Fields& fields = known->second;
      const auto communicator = field(data, fields.communicator, 8);
      call.communicator = communicator.value_or(0);
      const auto bytes = field(data, fields.bytes, 8);
      if (bytes && *bytes <= static_cast<std::uint64_t>(kMostBytes)) {
        call.bytes = static_cast<std::int64_t>(*bytes);
      }
      const auto peer = field(data, fields.peer, 4);
      if (peer && *peer <= static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max())) {
        call.peer = static_cast<std::int32_t>(*peer);
      }
      const auto ranks = field(data, fields.ranks, 4);
      if (ranks && *ranks <= kMostRanks) {
        ranks_of_[call.communicator] = static_cast<std::uint32_t>(*ranks);
        world_size_ = std::max(world_size_, static_cast<std::uint32_t>(*ranks));
      }
    }
  }
  if (call.kind != Kind::kOperation || call.collective != Collective::kNone) {
    calls_.push_back(call);
  }
}

/// A group is launched at its end, as one kernel if it can be.
NcclRanges::Call NcclRanges::combined(const std::vector<Call>& group, const Call& end) {
  Call result = group.size() == 1 ? group.front() : Call{};
  if (group.size() > 1) {
    std::int64_t sent = 0;
    std::int64_t received = 0;
    bool known = true;
    bool only_pairs = true;
    result.communicator = group.front().communicator;
    result.collective = group.front().collective;
    for (const Call& call : group) {
      known = known && call.bytes >= 0 && call.communicator == result.communicator;
      only_pairs = only_pairs &&
                   (call.collective == Collective::kSend || call.collective == Collective::kRecv);
      result.collective =
          call.collective == result.collective ? result.collective : Collective::kNone;
      std::int64_t& sum = call.collective == Collective::kSend ? sent : received;
      sum = std::min(sum + std::max<std::int64_t>(0, call.bytes), kMostBytes);
    }
    if (only_pairs) {
      result.collective = Collective::kSendRecv;
    }
    if (known && (only_pairs || result.collective != Collective::kNone)) {
      // Both directions at once: the payload of a rank is the larger.
      result.bytes = std::max(sent, received);
    }
  }
  result.when = end.when;
  result.rank = end.rank;
  result.thread = end.thread;
  return result;
}

/// The ranges in which kernels are launched, with what they launch, by rank, thread and time.
std::vector<NcclRanges::Call> NcclRanges::launches() {
  std::sort(calls_.begin(), calls_.end(), [](const Call& a, const Call& b) {
    return std::tuple(a.rank, a.thread, a.when.begin_ns) <
           std::tuple(b.rank, b.thread, b.when.begin_ns);
  });
  std::vector<Call> result;
  std::vector<Call> group;
  int depth = 0;
  const Call* before = nullptr;
  for (const Call& call : calls_) {
    if (before == nullptr || before->rank != call.rank || before->thread != call.thread) {
      depth = 0;
    }
    before = &call;
    if (call.kind == Kind::kGroupStart) {
      if (depth++ == 0) {
        group.clear();
      }
    } else if (call.kind == Kind::kGroupEnd) {
      // One too many: the recording began inside of the group.
      depth = std::max(0, depth - 1);
      if (depth == 0) {
        result.push_back(combined(group, call));
        group.clear();
      }
    } else if (depth > 0) {
      group.push_back(call);
    } else {
      result.push_back(call);
    }
  }
  return result;
}

void NcclRanges::set_call(TraceBuilder& builder, Record& record, const Call& call) const {
  CollectiveCall known;
  known.element_bytes = 1;
  known.peer = call.peer;
  if (call.communicator != 0) {
    known.group = builder.name(hexadecimal(call.communicator));
  }
  const auto ranks = ranks_of_.find(call.communicator);
  known.group_size = ranks == ranks_of_.end() ? 0 : ranks->second;
  if (record.collective == Collective::kNone || record.collective == Collective::kSendRecv) {
    record.collective = call.collective == Collective::kNone ? record.collective : call.collective;
  }
  // NCCL counts what one rank gives (all_gather) or gets (reduce_scatter); the payload is all.
  const bool gathers = call.collective == Collective::kAllGather;
  const bool scatters = call.collective == Collective::kReduceScatter;
  std::int64_t all = call.bytes;
  if (gathers || scatters || call.collective == Collective::kAllToAll) {
    all = known.group_size == 0 ? -1 : call.bytes * known.group_size;
  }
  known.in_elements = gathers ? call.bytes : all;
  known.out_elements = scatters ? call.bytes : all;
  record.bytes = std::max<std::int64_t>(0, all);
  record.call = builder.add_call(known);
}

void NcclRanges::attach(TraceBuilder& builder, std::size_t links) {
  const std::vector<Call> windows = launches();
  if (windows.empty()) {
    return;
  }
  std::vector<std::uint32_t> window_of(links, kNoId);
  std::vector<Record>& records = builder.timeline().records;
  for (std::size_t i = builder.first_record(); i < records.size(); ++i) {
    const Record& record = records[i];
    if (record.kind != RecordKind::kEnqueue || record.link >= links) {
      continue;
    }
    const auto after = std::upper_bound(
        windows.begin(),
        windows.end(),
        std::tuple(record.rank, record.stream, record.begin_ns),
        [](const std::tuple<std::uint32_t, std::uint32_t, std::int64_t>& place, const Call& call) {
          return place < std::tuple(call.rank, call.thread, call.when.begin_ns);
        });
    if (after == windows.begin()) {
      continue;
    }
    const Call& call = *std::prev(after);
    if (call.rank == record.rank && call.thread == record.stream &&
        call.when.end_ns >= record.begin_ns) {
      window_of[record.link] = static_cast<std::uint32_t>(&call - windows.data());
    }
  }
  const auto window_at = [&](const Record& record) {
    return record.kind == RecordKind::kCommunication && record.link < links ? window_of[record.link]
                                                                            : kNoId;
  };
  std::vector<std::uint32_t> kernels(windows.size());
  for (std::size_t i = builder.first_record(); i < records.size(); ++i) {
    if (const std::uint32_t window = window_at(records[i]); window != kNoId) {
      ++kernels[window];
    }
  }
  for (std::size_t i = builder.first_record(); i < records.size(); ++i) {
    const std::uint32_t window = window_at(records[i]);
    // Several kernels of one range: which of them moved what, nothing says.
    if (window != kNoId && kernels[window] == 1 && windows[window].bytes >= 0) {
      set_call(builder, records[i], windows[window]);
    }
  }
}

}  // namespace stretto::detail
