// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/redact.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/analyze/telling_words.hpp"
#include "stretto/base/error.hpp"
#include "stretto/data/codec_records.hpp"

namespace stretto {
namespace {

bool all_of_chars(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kWordCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

/// Names that tell nothing about whose program it is.
bool is_common(std::string_view name) {
  constexpr std::string_view kStep = "ProfilerStep#";
  if (name.empty() || name == kWholeRecording) {
    return true;
  }
  if (name.starts_with(kStep)) {
    return all_of_chars(name.substr(kStep.size()), "0123456789");
  }
  constexpr std::array<std::string_view, 8> kLibraries = {"aten::",
                                                          "c10d::",
                                                          "gloo:",
                                                          "nccl:",
                                                          "ncclDevKernel_",
                                                          "ncclKernel_",
                                                          "torch::distributed::reducer::",
                                                          "reducer::"};
  for (const std::string_view library : kLibraries) {
    if (name.starts_with(library)) {
      return all_of_chars(name.substr(library.size()), kWordCharacters);
    }
  }
  return false;
}

/// `encode int8`: by its name the analysis knows which codec was at work.
bool names_codec(std::string_view name) {
  for (const std::string_view stage : {kEncodeRecord, kDecodeRecord}) {
    if (const auto codec = codec_of_record(name, stage)) {
      try {
        (void)parse_codec(*codec);
        return true;
      } catch (const Error&) {
        return false;
      }
    }
  }
  return false;
}

std::string_view kind_of(const Record& record) {
  switch (record.kind) {
    case RecordKind::kReady:
      return "tensor";
    case RecordKind::kCommunication:
    case RecordKind::kLaunched:
      return "communication";
    case RecordKind::kCopy:
      return "copy";
    case RecordKind::kEnqueue:
      return "call";
    case RecordKind::kStep:
    case RecordKind::kAnnotation:
      return "range";
    case RecordKind::kForward:
    case RecordKind::kBackward:
    case RecordKind::kOptimizer:
      return "layer";
    case RecordKind::kWait:
      return "wait";
    case RecordKind::kCompute:
      break;
  }
  return "kernel";
}

}  // namespace

std::string Redactor::replaced(std::string_view kind, std::string_view name) {
  std::string& known = known_[{std::string(kind), std::string(name)}];
  if (known.empty()) {
    known = std::string(kind) + " " + std::to_string(++counts_[std::string(kind)]);
  }
  return known;
}

/// A kernel keeps the words by which it is judged.
std::string Redactor::replaced_kernel(std::string_view name) {
  std::string kernel = replaced("kernel", name);
  std::string words;
  for (const std::string_view word : {detail::telling_word(name, detail::kExchangeWords),
                                      detail::telling_word(name, detail::kMovingWords)}) {
    if (!word.empty()) {
      words += (words.empty() ? "" : ", ") + std::string(word);
    }
  }
  return words.empty() ? kernel : kernel + " (" + words + ")";
}

/// A range of FSDP keeps its form, from which the analysis takes the module.
std::string Redactor::replaced_range(std::string_view name) {
  constexpr std::string_view kFsdp1 = "FullyShardedDataParallel.";
  if (name.starts_with(kFsdp1)) {
    return std::string(kFsdp1) + replaced("range", name);
  }
  if (name.starts_with("FSDP::")) {
    constexpr std::string_view kFor = " for ";
    const std::size_t end = name.find_first_not_of(kWordCharacters, 6);
    const std::string_view verb = name.substr(0, end);
    const std::size_t open = name.find(" (");
    const std::size_t close = name.rfind(')');
    if (open != std::string_view::npos && close != std::string_view::npos && close > open + 2) {
      return std::string(verb) + " (" +
             replaced("module", name.substr(open + 2, close - open - 2)) + ")";
    }
    const std::size_t at = name.find(kFor);
    if (at != std::string_view::npos) {
      return std::string(verb) + std::string(kFor) +
             replaced("module", name.substr(at + kFor.size()));
    }
    return std::string(verb);
  }
  return replaced("range", name);
}

Timeline Redactor::operator()(Timeline timeline) {
  const std::vector<std::string> names = std::move(timeline.names);
  timeline.names.assign(names.size(), std::string());
  // A name may serve records of several kinds: the first decides.
  std::vector<bool> done(names.size(), false);
  const auto replace = [&](std::uint32_t id, std::string_view kind) {
    if (id >= names.size() || done[id]) {
      return;
    }
    done[id] = true;
    const std::string& name = names[id];
    timeline.names[id] = is_common(name) || names_codec(name) ? name
                         : kind == "range"                    ? replaced_range(name)
                         : kind == "kernel"                   ? replaced_kernel(name)
                                                              : replaced(kind, name);
  };
  for (const CollectiveCall& call : timeline.calls) {
    replace(call.group, "group");
    // Numbers of ranks, in some form; anything else is a name.
    if (call.members < names.size() && all_of_chars(names[call.members], "0123456789,[]- ")) {
      timeline.names[call.members] = names[call.members];
      done[call.members] = true;
    } else {
      replace(call.members, "group");
    }
  }
  for (const Record& record : timeline.records) {
    replace(record.name, kind_of(record));
  }
  for (RankSetup& setup : timeline.setups) {
    if (!setup.host.empty()) {
      setup.host = replaced("host", setup.host);
    }
  }
  return timeline;
}

Machine Redactor::operator()(Machine machine) {
  machine.name = replaced("machine", machine.name);
  machine.source.clear();
  for (Level& level : machine.levels) {
    level.name = replaced("level", level.name);
  }
  return machine;
}

Plan Redactor::operator()(Plan plan) {
  for (TensorSpec& tensor : plan.tensors) {
    tensor.name = replaced("tensor", tensor.name);
  }
  plan.origin.clear();
  return plan;
}

}  // namespace stretto
