// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/tensorboard.hpp"

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "analyze/timeline_builder.hpp"
#include "stretto/base/error.hpp"

namespace stretto {
namespace {

/// Reads protocol buffers and frames, by their public descriptions.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  [[nodiscard]] bool done() const { return left_.empty(); }
  [[nodiscard]] std::string_view take(std::size_t count) {
    const std::string_view part = left_.substr(0, count);
    left_.remove_prefix(part.size());
    EXPECT_EQ(part.size(), count) << "it ends too early";
    return part;
  }
  [[nodiscard]] std::uint64_t fixed(std::size_t bytes) {
    std::uint64_t value = 0;
    const std::string_view part = take(bytes);
    for (std::size_t i = part.size(); i > 0; --i) {
      value = (value << 8U) | static_cast<unsigned char>(part[i - 1]);
    }
    return value;
  }
  [[nodiscard]] std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !done(); shift += 7) {
      const std::uint64_t byte = fixed(1);
      value |= (byte & 0x7fU) << shift;
      if (byte < 0x80U) {
        break;
      }
    }
    return value;
  }

 private:
  std::string_view left_;
};

struct Event {
  double wall_time = 0.0;
  std::uint64_t step = 0;
  std::string version;
  std::map<std::string, float> values;
};

void read_value(Reader reader, Event& event) {
  std::string tag;
  while (!reader.done()) {
    const std::uint64_t key = reader.varint();
    if (key == ((1U << 3U) | 2U)) {
      tag = reader.take(reader.varint());
    } else {
      ASSERT_EQ(key, (2U << 3U) | 5U);
      event.values[tag] = std::bit_cast<float>(static_cast<std::uint32_t>(reader.fixed(4)));
    }
  }
}

Event read_event(Reader reader) {
  Event event;
  while (!reader.done()) {
    switch (reader.varint()) {
      case (1U << 3U) | 1U:
        event.wall_time = std::bit_cast<double>(reader.fixed(8));
        break;
      case 2U << 3U:
        event.step = reader.varint();
        break;
      case (3U << 3U) | 2U:
        event.version = reader.take(reader.varint());
        break;
      case (5U << 3U) | 2U: {
        Reader summary(reader.take(reader.varint()));
        while (!summary.done()) {
          EXPECT_EQ(summary.varint(), (1U << 3U) | 2U);
          read_value(Reader(summary.take(summary.varint())), event);
        }
        break;
      }
      default:
        ADD_FAILURE() << "a field that no event has";
        return event;
    }
  }
  return event;
}

std::vector<Event> read(std::string_view file) {
  std::vector<Event> events;
  Reader reader(file);
  while (!reader.done()) {
    const std::uint64_t size = reader.fixed(8);
    (void)reader.fixed(4);
    events.push_back(read_event(Reader(reader.take(size))));
    (void)reader.fixed(4);
  }
  return events;
}

/// Two ranks; step 3 communicates from 6 to 10 ms beside compute until 8, step 4 not at all.
Timeline two_steps() {
  testing::TimelineBuilder builder(2);
  for (const std::uint32_t rank : {0U, 1U}) {
    builder.step(3, rank, 100.0, 12.0);
    builder.compute(RecordKind::kBackward, "backward", 0.0, 8.0);
    builder.bucket(0, 4096, 6.0, 6.0, rank == 0 ? 10.0 : 12.0);
    builder.step(4, rank, 200.0, 20.0);
    builder.compute(RecordKind::kBackward, "backward", 0.0, 18.0);
  }
  Timeline timeline = builder.timeline();
  timeline.origin_unix_ns = 1'700'000'000'000'000'000;
  return timeline;
}

TEST(TensorBoard, EveryStepHasItsNumbers) {
  const std::vector<Event> events = read(tensorboard_events(two_steps()));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[1].step, 3U);
  EXPECT_NEAR(events[1].wall_time, 1.7e9 + 0.1, 1e-5);
  EXPECT_NEAR(events[1].values.at("stretto/step_ms"), 12.0, 1e-5);
  EXPECT_NEAR(events[1].values.at("stretto/compute_ms"), 8.0, 1e-5);
  EXPECT_NEAR(events[1].values.at("stretto/communication_ms"), 5.0, 1e-5);  // 4 and 6
  EXPECT_NEAR(events[1].values.at("stretto/exposed_ms"), 3.0, 1e-5);        // 2 and 4
  EXPECT_NEAR(events[1].values.at("stretto/hidden_ratio"), 0.4, 1e-5);
  EXPECT_EQ(events[2].step, 4U);
  EXPECT_FALSE(events[2].values.contains("stretto/exposed_ms")) << "undefined, and not zero";
}

TEST(TensorBoard, FramesHaveTheChecksumsThatTensorBoardWants) {
  const std::string file = tensorboard_events(two_steps());
  // How every event file begins: 24 bytes, and the checksum of that.
  EXPECT_EQ(file.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
}

TEST(TensorBoard, WithoutAStepItIsRefused) {
  EXPECT_THROW((void)tensorboard_events(Timeline{}), Error);
}

TEST(TensorBoard, TensorBoardKnowsTheFileByItsName) {
  EXPECT_NE(tensorboard_file_name().find("tfevents"), std::string::npos);
}

}  // namespace
}  // namespace stretto
