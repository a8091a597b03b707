// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/chrome_arguments.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "stretto/trace/builder.hpp"
#include "stretto/trace/classify.hpp"
#include "stretto/trace/json_text.hpp"

namespace stretto::detail {
namespace {

/// Calls `element(value)` for each element of an array (whole, with its brackets) until it returns
/// false or something is wrong. 16 bytes beyond it must be readable.
template <typename Element>
void for_each_element(std::string_view array, Element element) {
  if (!array.starts_with('[')) {
    return;
  }
  const char* at = array.data() + 1;
  const char* const end = array.data() + array.size();
  ValueText value;
  bool none = false;
  while (read_element(at, end, value, none) == Scan::kOk && !none && element(value)) {
  }
}

/// Elements of a tensor of these dimensions, -1 if they are not plain numbers or too many.
std::int64_t elements_of(std::string_view dims) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 10U;
  std::int64_t elements = dims.starts_with('[') ? 1 : -1;
  for_each_element(dims, [&](const ValueText& value) {
    const std::int64_t length = value.kind == ValueKind::kPlain ? to_count(value.text) : -1;
    elements = length < 0 || (length != 0 && elements > kMost / length) ? -1 : elements * length;
    return elements >= 0;
  });
  return elements;
}

}  // namespace

std::uint32_t to_id(std::string_view text) noexcept {
  std::int64_t value = 0;
  return parse_integer(text, value) && value >= 0 && value < std::int64_t{kNoId}
             ? static_cast<std::uint32_t>(value)
             : kNoId;
}
std::int64_t to_count(std::string_view text) noexcept {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 10U;
  std::int64_t value = 0;
  return parse_integer(text, value) && value >= 0 && value <= kMost ? value : -1;
}
Arguments read_arguments(std::string_view args) {
  Arguments result;
  if (args.empty()) {
    return result;
  }
  for_each_member(args, [&](std::string_view key, const ValueText& value) {
    const std::string_view text = value.text;
    switch (key.size()) {
      case 3:
        if (key == "Seq") {
          result.call.sequence = to_count(text);
        }
        break;
      case 4:
        if (key == "grid") {
          result.grid = text;
        } else if (key == "size" && result.bytes.empty()) {
          result.bytes = text;  // of MTIA's copies
        }
        break;
      case 5:
        if (key == "bytes") {
          result.bytes = text;
        } else if (key == "dtype") {
          result.dtype = text;
        }
        break;
      case 6:
        if (key == "device") {
          result.device = text;
        } else if (key == "stream") {
          result.stream = text;
        }
        break;
      case 8:
        if (key == "Src Rank" || key == "Dst Rank") {
          result.peer = text;
        }
        break;
      case 9:
        if (key == "Task Type" || key == "task type") {
          result.task_type = text;
        }
        break;
      case 10:
        if (key == "Group size") {
          result.call.group_size = to_id(text) == kNoId ? 0 : to_id(text);
        } else if (key == "Input Dims") {
          result.input_dims = text;
        } else if (key == "Input type") {
          result.input_types = text;
        }
        break;
      case 11:
        if (key == "correlation") {
          result.correlation = text;
        }
        break;
      default:
        if (key == "Collective name") {
          result.collective = text;
        } else if (key == "In msg nelems") {
          result.call.in_elements = to_count(text);
        } else if (key == "Out msg nelems") {
          result.call.out_elements = to_count(text);
        } else if (key == "Process Group Name") {
          result.group = text;
        } else if (key == "Process Group Ranks") {
          result.members = text;
        }
        break;
    }
  });
  return result;
}

bool is_sized_by_input(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduce:
    case Collective::kBroadcast:
    case Collective::kAllToAll:
    case Collective::kSend:
      return true;
    default:
      return false;
  }
}

bool set_size_from_shapes(const Arguments& arguments, CollectiveCall& call) {
  std::int64_t sum = 0;
  std::size_t tensors = 0;
  for_each_element(arguments.input_dims, [&](const ValueText& dims) {
    const std::int64_t elements = elements_of(dims.text);
    sum = elements < 0 || sum < 0 || sum + elements < 0 ? -1 : sum + elements;
    ++tensors;
    return sum >= 0;
  });
  std::uint32_t element_bytes = 0;
  std::size_t types = 0;
  for_each_element(arguments.input_types, [&](const ValueText& type) {
    const std::uint32_t bytes = element_bytes_of(type.text);
    element_bytes = types == 0 || bytes == element_bytes ? bytes : 0;
    ++types;
    return element_bytes != 0;
  });
  if (sum < 0 || tensors == 0 || types != tensors || element_bytes == 0) {
    return false;
  }
  call.in_elements = sum;
  call.element_bytes = element_bytes;
  return true;
}

std::uint32_t shape_of(std::string_view grid) noexcept {
  std::uint32_t hash = 2166136261U;
  for (const char c : grid) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return grid.empty() ? kNoId : hash & 0x7fffffffU;
}

std::int64_t payload_bytes(const CollectiveCall& call) {
  const std::int64_t elements = std::max(call.in_elements, call.out_elements);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() >> 8U;
  return elements <= 0 || call.element_bytes == 0 || elements > most / call.element_bytes
             ? 0
             : elements * call.element_bytes;
}

}  // namespace stretto::detail
