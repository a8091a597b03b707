// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/classify.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "stretto/base/error.hpp"
#include "stretto/trace/pattern.hpp"

namespace stretto {
namespace {

struct Rule {
  std::string_view part;  // lower case
  std::string_view library;
};

// First match wins, so that the more special ones come first. Sources of the names: those
// libraries' own sources and public traces.
constexpr std::array kRules = {
    Rule{"rccl", "RCCL"},
    Rule{"nccl", "NCCL"},
    Rule{"hccl", "HCCL"},
    Rule{"hcom_", "HCCL"},
    Rule{"oneccl", "oneCCL"},
    Rule{"msccl", "MSCCL"},
    Rule{"nvshmem", "NVSHMEM"},
    Rule{"deep_ep", "DeepEP"},
    Rule{"ep::internode", "DeepEP"},
    Rule{"ep::intranode", "DeepEP"},
    Rule{"cross_device_reduce", "custom all-reduce"},
    Rule{"multimem_all_reduce", "symmetric memory"},
    Rule{"multimem_one_shot", "symmetric memory"},
    Rule{"multimem_all_gather", "symmetric memory"},
    Rule{"one_shot_all_reduce", "symmetric memory"},
    Rule{"two_shot_all_reduce", "symmetric memory"},
    Rule{"lamport_allreduce", "custom all-reduce"},
    Rule{"allreduce_fusion_kernel", "custom all-reduce"},
};

constexpr std::array<std::string_view, 7> kHostBackends = {
    "gloo:", "nccl:", "mpi:", "ucc:", "hccl:", "xccl:", "ccl:"};

// Names that were made to be long must not make matching long.
constexpr std::size_t kLongestMatched = 4096;

std::string lower(std::string_view text) {
  std::string result(text.substr(0, kLongestMatched));
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  return result;
}

struct Expression {
  std::string text;
  detail::Pattern pattern;
};

}  // namespace

struct CommunicationRules::Expressions {
  std::vector<Expression> list;
};

CommunicationRules::CommunicationRules() : expressions_(std::make_shared<Expressions>()) {}

void CommunicationRules::add_expression(const std::string& expression) {
  auto grown = std::make_shared<Expressions>(*expressions_);
  grown->list.push_back({expression, detail::Pattern(expression, true)});
  expressions_ = std::move(grown);
}

void CommunicationRules::add_file(std::string_view text, std::string_view where) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(std::min(newline + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
      line.remove_suffix(1);
    }
    if (line.empty() || line.front() == '#') {
      continue;
    }
    try {
      add_expression(std::string(line));
    } catch (const Error& error) {
      ErrorDetail detail = error.detail();
      detail.where = std::string(where) + ":" + std::to_string(number);
      throw Error(ErrorCode::kParse, std::move(detail));
    }
  }
}

KernelClass CommunicationRules::classify(std::string_view kernel) const {
  const std::string name = lower(kernel);
  for (const Expression& expression : expressions_->list) {
    if (expression.pattern.is_in(kernel)) {
      return {true, "given by the user", expression.text, collective_of_name(kernel)};
    }
  }
  for (const Rule& rule : kRules) {
    if (name.find(rule.part) != std::string::npos) {
      return {true, std::string(rule.library), std::string(rule.part), collective_of_name(kernel)};
    }
  }
  return {};
}

bool CommunicationRules::is_host_communication(std::string_view name) noexcept {
  return std::any_of(kHostBackends.begin(), kHostBackends.end(), [&](std::string_view backend) {
    return name.size() >= backend.size() &&
           std::equal(backend.begin(), backend.end(), name.begin(), [](char a, char b) {
             return a == std::tolower(static_cast<unsigned char>(b));
           });
  });
}

std::string CommunicationRules::looked_for() {
  std::string text = "device kernels with";
  for (const Rule& rule : kRules) {
    text += std::string(" ") + std::string(rule.part) + ",";
  }
  text += " or host rows that begin with";
  for (const std::string_view backend : kHostBackends) {
    text += std::string(" ") + std::string(backend);
  }
  return text;
}

Collective collective_of_name(std::string_view name) {
  struct Word {
    std::string_view part;
    Collective collective;
  };
  // Names with their underscores taken out; first match wins, so that reducescatter is no reduce.
  constexpr std::array kWords = {
      Word{"allreduce", Collective::kAllReduce},
      Word{"crossdevicereduce", Collective::kAllReduce},
      Word{"multimemoneshot", Collective::kAllReduce},
      Word{"reducescatter", Collective::kReduceScatter},
      Word{"allgather", Collective::kAllGather},
      Word{"alltoall", Collective::kAllToAll},
      Word{"dispatch", Collective::kAllToAll},
      Word{"combine", Collective::kAllToAll},
      Word{"broadcast", Collective::kBroadcast},
      Word{"bcast", Collective::kBroadcast},
      Word{"barrier", Collective::kBarrier},
      Word{"sendrecv", Collective::kSendRecv},
      Word{"reduce", Collective::kReduce},
      Word{"send", Collective::kSend},
      Word{"recv", Collective::kRecv},
  };
  std::string plain = lower(name);
  std::erase(plain, '_');
  // Arguments say nothing of the operation: ncclKernel_X(ncclDevComm*, ...). An anonymous namespace
  // is none of them.
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  for (std::size_t at = plain.find(kAnonymous); at != std::string::npos;
       at = plain.find(kAnonymous, at)) {
    plain.erase(at, kAnonymous.size());
  }
  plain.resize(std::min(plain.find('('), plain.size()));
  for (const Word& word : kWords) {
    if (plain.find(word.part) != std::string::npos) {
      return word.collective;
    }
  }
  return Collective::kNone;
}

std::uint32_t element_bytes_of(std::string_view dtype) noexcept {
  struct Type {
    std::string_view name;  // lower case
    std::uint32_t bytes;
  };
  constexpr std::array kTypes = {
      Type{"float", 4},        Type{"float32", 4},        Type{"int", 4},
      Type{"int32", 4},        Type{"uint32", 4},         Type{"half", 2},
      Type{"float16", 2},      Type{"bfloat16", 2},       Type{"short", 2},
      Type{"int16", 2},        Type{"uint16", 2},         Type{"byte", 1},
      Type{"char", 1},         Type{"int8", 1},           Type{"uint8", 1},
      Type{"bool", 1},         Type{"double", 8},         Type{"float64", 8},
      Type{"long", 8},         Type{"int64", 8},          Type{"uint64", 8},
      Type{"complexfloat", 8}, Type{"complexdouble", 16}, Type{"quint8", 1},
      Type{"qint8", 1},        Type{"qint32", 4},         Type{"long int", 8},
      Type{"signed char", 1},  Type{"unsigned char", 1},
  };
  if (dtype.size() > 32) {
    return 0;
  }
  std::array<char, 32> buffer{};
  std::transform(dtype.begin(), dtype.end(), buffer.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  std::string_view name(buffer.data(), dtype.size());
  for (const std::string_view prefix : {"nccl", "c10::", "torch."}) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
    }
  }
  if (name.starts_with("float8")) {
    return 1;
  }
  const auto* const known = std::find_if(
      kTypes.begin(), kTypes.end(), [&](const Type& type) { return type.name == name; });
  return known == kTypes.end() ? 0 : known->bytes;
}

}  // namespace stretto
