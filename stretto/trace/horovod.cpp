// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stretto/base/text.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/event_scanner.hpp"

// Format facts: Horovod's timeline.cc and common.h, 2017 to 2023. An array of Chrome events that is
// often never closed. Each tensor is a process; its phases are B and E events, an E without a name:
//
//   NEGOTIATE_ALLREDUCE                        until all ranks have the tensor
//   ALLREDUCE                                  then, within it:
//     QUEUE  MEMCPY_IN_FUSION_BUFFER  NCCL_ALLREDUCE  MEMCPY_OUT_FUSION_BUFFER
//
// ts is whole microseconds since the start, whose Unix time stands in the first event of newer
// files. The E of ALLREDUCE says type and shape.
namespace stretto::detail {
namespace {

bool is_transfer(std::string_view phase) {
  constexpr std::array<std::string_view, 6> kBackends = {
      "NCCL_", "MPI_", "GLOO_", "CCL_", "DDL_", "MLSL_"};
  return std::any_of(kBackends.begin(),
                     kBackends.end(),
                     [&](std::string_view backend) { return phase.starts_with(backend); }) &&
         collective_of_name(phase) != Collective::kNone;
}

bool is_copy(std::string_view phase) {
  return phase.starts_with("MEMCPY_") || phase.starts_with("COPY_");
}

/// Bytes of `[64, 3, 7, 7]` elements of `float32`; 0 if it is not known.
std::int64_t bytes_of(std::string_view dtype, std::string_view shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 16U;
  std::int64_t bytes = element_bytes_of(dtype);
  if (!shape.starts_with('[') || !shape.ends_with(']')) {
    return 0;
  }
  shape = shape.substr(1, shape.size() - 2);
  while (!shape.empty()) {
    const std::size_t comma = std::min(shape.find(','), shape.size());
    std::string_view number = shape.substr(0, comma);
    while (number.starts_with(' ')) {
      number.remove_prefix(1);
    }
    std::int64_t size = 0;
    if (!parse_integer(number, size) || size < 0 || (size > 0 && bytes > kMost / size)) {
      return 0;
    }
    bytes *= size;
    shape.remove_prefix(std::min(comma + 1, shape.size()));
  }
  return bytes;
}

class HorovodReader {
 public:
  HorovodReader(Input& input, TraceBuilder& builder)
      : scanner_(input), builder_(builder), file_(builder.file()) {}

  void read() {
    EventText event;
    const bool salvage = builder_.options().salvage;
    while (scanner_.next(event, salvage)) {
      if (event.ph == "B") {
        begin(event);
      } else if (event.ph == "E") {
        end(event);
      } else if (event.ph == "X") {
        mark_ready(event);
      } else if (event.ph == "M") {
        read_start(event);
      }
    }
    file_.bytes = scanner_.offset();
    file_.events = scanner_.events();
    file_.lost += scanner_.lost();
    if (scanner_.fault() && !scanner_.is_unclosed()) {
      builder_.fail({scanner_.fault()->offset, scanner_.fault()->what});
    }
    add_transfers();
    say_what_is_known();
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  /// One exchange on the wire, of all tensors that were fused for it.
  struct Transfer {
    Interval when;
    std::uint32_t name = 0;
    std::uint32_t open = 0;  // tensors in which it has not ended
    std::uint32_t tensors = 0;
    std::int64_t bytes = 0;
  };
  struct Phase {
    std::int64_t begin_ns = 0;
    bool negotiates = false;
    bool copies = false;
    std::size_t transfer = kNone;
  };
  struct Tensor {
    std::vector<Phase> phases;           // open ones, outermost first
    std::vector<std::size_t> transfers;  // since the outermost began
  };

  [[nodiscard]] bool read_time(const EventText& event, std::int64_t& at_ns) {
    if (parse_microseconds(event.ts, at_ns)) {
      return true;
    }
    builder_.fail({scanner_.offset(), "an event before here has the time " + quote(event.ts)});
    ++file_.lost;
    return false;
  }

  Tensor& tensor_of(const EventText& event) {
    const auto found = tensors_.find(event.pid);
    return found != tensors_.end() ? found->second
                                   : tensors_.emplace(event.pid, Tensor{}).first->second;
  }

  void begin(const EventText& event) {
    Phase phase;
    if (!read_time(event, phase.begin_ns)) {
      return;
    }
    constexpr std::size_t kDeepest = 64;
    Tensor& tensor = tensor_of(event);
    if (tensor.phases.size() >= kDeepest) {
      ++unmatched_;
      return;
    }
    phase.negotiates = event.name.starts_with("NEGOTIATE_");
    phase.copies = is_copy(event.name);
    if (is_transfer(event.name)) {
      const std::uint32_t name = builder_.name_of_json(event.name);
      // Horovod begins a phase of all tensors that it fused in one go: nothing lies between.
      if (in_one_go_ != kNone && transfers_[in_one_go_].name == name) {
        phase.transfer = in_one_go_;
      } else {
        phase.transfer = transfers_.size();
        transfers_.push_back({{phase.begin_ns, phase.begin_ns}, name});
      }
      ++transfers_[phase.transfer].open;
      ++transfers_[phase.transfer].tensors;
      tensor.transfers.push_back(phase.transfer);
    }
    in_one_go_ = phase.transfer;
    tensor.phases.push_back(phase);
  }

  void end(const EventText& event) {
    in_one_go_ = kNone;
    Tensor& tensor = tensor_of(event);
    std::int64_t at_ns = 0;
    if (!read_time(event, at_ns)) {
      return;
    }
    if (tensor.phases.empty()) {
      ++unmatched_;  // the timeline was switched on in the middle
      return;
    }
    const Phase phase = tensor.phases.back();
    tensor.phases.pop_back();
    if (at_ns < phase.begin_ns) {
      ++file_.negative;
      at_ns = phase.begin_ns;
    }
    if (phase.negotiates) {
      negotiation_.add({phase.begin_ns, at_ns});
    } else if (phase.copies) {
      copies_.add({phase.begin_ns, at_ns});
    } else if (phase.transfer != kNone) {
      Transfer& transfer = transfers_[phase.transfer];
      transfer.when.end_ns = std::max(transfer.when.end_ns, at_ns);
      --transfer.open;
    }
    if (tensor.phases.empty()) {
      add_bytes(tensor, event.args);
      tensor.transfers.clear();
    }
  }

  void add_bytes(const Tensor& tensor, std::string_view args) {
    if (tensor.transfers.empty() || args.empty()) {
      return;
    }
    std::string_view dtype;
    std::string_view shape;
    for_each_member(args, [&](std::string_view key, const ValueText& value) {
      if (key == "dtype") {
        dtype = value.text;
      } else if (key == "shape") {
        shape = value.text;
      }
    });
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 8U;
    for (const std::size_t index : tensor.transfers) {
      std::int64_t& bytes = transfers_[index].bytes;
      bytes = std::min(kMost, bytes + bytes_of(dtype, shape));
    }
  }

  /// The coordinator marks which rank has the tensor: its name is the rank's number.
  void mark_ready(const EventText& event) {
    in_one_go_ = kNone;
    std::int64_t rank = 0;
    constexpr std::int64_t kMostRanks = 1 << 24;
    if (parse_integer(event.name, rank) && rank >= 0 && rank < kMostRanks) {
      file_.world_size = std::max(file_.world_size, static_cast<std::uint32_t>(rank) + 1);
    }
  }

  void read_start(const EventText& event) {
    if (event.args.empty()) {
      return;
    }
    for_each_member(event.args, [&](std::string_view key, const ValueText& value) {
      std::int64_t start_us = 0;
      if (key == "start_time_since_epoch_in_micros" && parse_integer(value.text, start_us) &&
          start_us > 0 && start_us < kLatestTraceNs / 1000) {
        file_.base_ns = start_us * 1000;
      }
    });
  }

  void add_transfers() {
    builder_.expect(builder_.first_record() + transfers_.size());
    for (const Transfer& transfer : transfers_) {
      if (transfer.open > 0) {
        ++open_;
        continue;
      }
      Record record;
      record.begin_ns = transfer.when.begin_ns;
      record.end_ns = transfer.when.end_ns;
      record.bytes = transfer.bytes;
      record.name = transfer.name;
      builder_.add_host_communication(record);
      ++added_;
      tensors_moved_ += transfer.tensors;
    }
    if (!transfers_.empty()) {
      const std::string& name = builder_.timeline().names[transfers_.front().name];
      for (const char c : name.substr(0, name.find('_'))) {
        file_.backend += static_cast<char>(c - 'A' + 'a');
      }
    }
  }

  void say_what_is_known() {
    const auto milliseconds = [](std::int64_t ns) {
      std::string text = std::to_string(ns / 1000000) + ".";
      const std::string digits = std::to_string(ns / 1000 % 1000);
      return text + std::string(3 - digits.size(), '0') + digits + " ms";
    };
    builder_.note(
        "Horovod's timeline holds no compute: what of its communication is exposed cannot be told "
        "from it alone; record a profiler's trace of the same run");
    builder_.note(std::to_string(added_) + " exchanges of " + std::to_string(tensors_moved_) +
                  " tensors; some tensor was being negotiated during " +
                  milliseconds(negotiation_.take().measure_ns()) +
                  " and was copied into or out of a buffer during " +
                  milliseconds(copies_.take().measure_ns()));
    if (open_ > 0) {
      builder_.note(std::to_string(open_) +
                    " exchanges had not ended when the timeline did; they are left out");
    }
    if (unmatched_ > 0) {
      builder_.note(std::to_string(unmatched_) +
                    " phases have no begin, or too many of them lie in each other; they are left "
                    "out");
    }
    if (scanner_.is_unclosed()) {
      builder_.note("the array of events is not closed, as Horovod leaves it");
    }
    if (file_.negative > 0) {
      builder_.note(std::to_string(file_.negative) +
                    " phases have a negative duration; they count as 0");
    }
  }

  EventScanner scanner_;
  TraceBuilder& builder_;
  TraceFile& file_;
  std::unordered_map<std::string, Tensor, TextHash, std::equal_to<>> tensors_;  // by pid
  std::vector<Transfer> transfers_;
  std::size_t in_one_go_ = kNone;  // what the event before began
  GrowingUnion negotiation_;
  GrowingUnion copies_;
  std::uint64_t unmatched_ = 0;
  std::uint64_t open_ = 0;
  std::uint64_t added_ = 0;
  std::uint64_t tensors_moved_ = 0;
};

}  // namespace

bool is_horovod(std::string_view head) {
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && head[first] == '[' &&
         (head.find("\"start_time_since_epoch_in_micros\"") != std::string_view::npos ||
          head.find("\"NEGOTIATE_") != std::string_view::npos);
}

void read_horovod(Input& input, TraceBuilder& builder) {
  HorovodReader(input, builder).read();
}

}  // namespace stretto::detail
