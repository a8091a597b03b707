// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/tensorboard.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "stretto/analyze/analyze.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

constexpr double kMillisecond = 1e-3;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t kCastagnoli = 0x82f63b78U;  // bits reversed
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kCastagnoli : 0U);
    }
    table[byte] = crc;
  }
  return table;
}

/// So that a checksum of something that holds checksums does not come out as a constant.
std::uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_crc_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char c : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xffU] ^ (crc >> 8U);
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

/// Little-endian, whatever the machine is.
template <typename Unsigned>
void put_fixed(std::string& out, Unsigned value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    out += static_cast<char>((value >> (8 * i)) & 0xffU);
  }
}

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out += static_cast<char>((value & 0x7fU) | 0x80U);
    value >>= 7U;
  }
  out += static_cast<char>(value);
}

// Wire types of protocol buffers.
enum : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_tag(std::string& out, std::uint32_t field, std::uint32_t wire_type) {
  put_varint(out, (field << 3U) | wire_type);
}

void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_tag(out, field, kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

/// Event.wall_time = 1
std::string event_at(double wall_time_s) {
  std::string event;
  put_tag(event, 1, kFixed64);
  put_fixed(event, std::bit_cast<std::uint64_t>(wall_time_s));
  return event;
}

/// Summary.value = 1, of Value.tag = 1 and Value.simple_value = 2.
void put_value(std::string& summary, std::string_view tag, double number) {
  std::string value;
  put_bytes(value, 1, tag);
  put_tag(value, 2, kFixed32);
  put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(number)));
  put_bytes(summary, 1, value);
}

void put_record(std::string& out, std::string_view payload) {
  std::string length;
  put_fixed(length, std::uint64_t{payload.size()});
  out += length;
  put_fixed(out, masked_crc(length));
  out += payload;
  put_fixed(out, masked_crc(payload));
}

struct StepMean {
  std::uint32_t step = 0;
  double begin_s = 0.0;  // of the first rank, from the timeline's origin
  double ranks = 0.0;
  Seconds length{};
  Seconds compute{};
  Seconds communication{};
  Seconds exposed{};
};

std::vector<StepMean> means(const std::vector<StepNumbers>& numbers) {
  std::vector<StepMean> steps;
  for (const StepNumbers& rank : numbers) {
    if (steps.empty() || steps.back().step != rank.step) {
      steps.push_back({.step = rank.step, .begin_s = rank.begin.count()});
    }
    StepMean& step = steps.back();
    step.begin_s = std::min(step.begin_s, rank.begin.count());
    step.ranks += 1.0;
    step.length += rank.length;
    step.compute += rank.compute;
    step.communication += rank.communication;
    step.exposed += rank.exposed;
  }
  return steps;
}

}  // namespace

std::string tensorboard_events(const Timeline& timeline) {
  const std::vector<StepMean> steps = means(step_numbers(timeline));
  if (steps.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "there is no step to plot",
                 .where = timeline.source,
                 .found = "no step that every rank recorded whole",
                 .expected = "one or more",
                 .help = {}});
  }
  const double origin_s = static_cast<double>(timeline.origin_unix_ns) * 1e-9;
  std::string file;
  std::string head = event_at(origin_s + steps.front().begin_s);
  put_bytes(head, 3, "brain.Event:2");  // Event.file_version
  put_record(file, head);
  for (const StepMean& step : steps) {
    std::string summary;
    const auto put_ms = [&](std::string_view tag, Seconds sum) {
      put_value(summary, tag, sum.count() / step.ranks / kMillisecond);
    };
    put_ms("stretto/step_ms", step.length);
    put_ms("stretto/compute_ms", step.compute);
    put_ms("stretto/communication_ms", step.communication);
    if (step.communication > Seconds(0)) {  // without it nothing could be exposed, or hidden
      put_ms("stretto/exposed_ms", step.exposed);
      put_value(summary, "stretto/hidden_ratio", 1.0 - step.exposed / step.communication);
    }
    std::string event = event_at(origin_s + step.begin_s);
    put_tag(event, 2, kVarint);  // Event.step
    put_varint(event, step.step);
    put_bytes(event, 5, summary);  // Event.summary
    put_record(file, event);
  }
  return file;
}

std::string tensorboard_file_name() {
  std::array<char, 256> host{};
  const bool known = gethostname(host.data(), host.size() - 1) == 0;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return fmt::format("events.out.tfevents.{:010}.{}.{}.stretto",
                     now.count(),
                     known ? host.data() : "host",
                     getpid());
}

}  // namespace stretto
