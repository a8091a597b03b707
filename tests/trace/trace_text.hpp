// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stretto::testing {

/// Writes a trace as PyTorch's profiler does, event by event. Times in microseconds, as text: what
/// stands in the file is what a test is about.
class KinetoText {
 public:
  KinetoText& event(std::string text) {
    events_.push_back(std::move(text));
    return *this;
  }
  KinetoText& slice(std::string_view category,
                    std::string_view name,
                    std::string_view ts,
                    std::string_view dur,
                    std::string_view thread,
                    std::string_view args = "") {
    return event(R"({"ph": "X", "cat": ")" + std::string(category) + R"(", "name": ")" +
                 std::string(name) + R"(", "pid": 0, "tid": )" + std::string(thread) +
                 R"(, "ts": )" + std::string(ts) + R"(, "dur": )" + std::string(dur) +
                 R"(, "args": {)" + std::string(args) + "}}");
  }
  KinetoText& kernel(std::string_view name,
                     std::int64_t ts,
                     std::int64_t dur,
                     int stream,
                     int correlation,
                     std::string_view more = "") {
    return slice("kernel",
                 name,
                 std::to_string(ts),
                 std::to_string(dur),
                 std::to_string(stream),
                 R"("device": 0, "stream": )" + std::to_string(stream) + R"(, "correlation": )" +
                     std::to_string(correlation) + std::string(more));
  }
  KinetoText& launch(std::int64_t ts, std::int64_t dur, int thread, int correlation) {
    return slice("cuda_runtime",
                 "cudaLaunchKernel",
                 std::to_string(ts),
                 std::to_string(dur),
                 std::to_string(thread),
                 R"("correlation": )" + std::to_string(correlation));
  }
  KinetoText& annotation(std::string_view name, std::int64_t ts, std::int64_t dur, int thread = 1) {
    return slice(
        "user_annotation", name, std::to_string(ts), std::to_string(dur), std::to_string(thread));
  }
  /// A member of the top level, before the events.
  KinetoText& member(std::string text) {
    members_.push_back(std::move(text));
    return *this;
  }

  [[nodiscard]] std::string text() const {
    std::string text = "{\n";
    for (const std::string& member : members_) {
      text += "  " + member + ",\n";
    }
    text += "  \"traceEvents\": [";
    for (std::size_t i = 0; i < events_.size(); ++i) {
      text += (i == 0 ? "\n  " : ",\n  ") + events_[i];
    }
    return text + "\n  ]\n}";
  }

 private:
  std::vector<std::string> members_;
  std::vector<std::string> events_;
};

}  // namespace stretto::testing
