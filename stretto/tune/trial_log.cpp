// SPDX-License-Identifier: Apache-2.0
#include "stretto/tune/trial_log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto {
namespace {

constexpr std::string_view kHeader =
    "time_unix_s,program,setting,repeat,step_s,step_p10_s,step_p90_s,exposed_s,samples_per_s,"
    "wall_s,error\n";
constexpr std::size_t kColumns = 11;

std::string text_field(std::string_view text) {
  std::string field = "\"";
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    field += control ? ' ' : c;
    if (c == '"') {
      field += c;
    }
  }
  return field + "\"";
}

std::string number_field(std::optional<double> value) {
  return value ? fmt::format("{}", *value) : std::string();
}

std::string number_field(const std::optional<Seconds>& time) {
  return time ? number_field(time->count()) : std::string();
}

/// Reads one line's fields and complains about where they are.
class LineReader {
 public:
  LineReader(std::string_view line, std::string_view where, std::size_t number)
      : line_(line), where_(where), number_(number) {
    while (split_one()) {
    }
    if (fields_.size() != kColumns) {
      fail("a line of the log has other columns",
           std::to_string(fields_.size()),
           std::to_string(kColumns) + " columns");
    }
  }

  [[noreturn]] void fail(std::string message, std::string found, std::string expected) const {
    throw Error(ErrorCode::kParse,
                {std::move(message),
                 fmt::format("{}, line {}", where_, number_),
                 std::move(found),
                 std::move(expected),
                 "Use another file for --log, or remove this one"});
  }

  std::string text() { return std::move(fields_[next_++]); }

  std::optional<double> number() {
    const std::string& field = fields_[next_++];
    if (field.empty()) {
      return std::nullopt;
    }
    double value = 0.0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || !(value >= 0.0) ||
        !std::isfinite(value)) {
      fail("this is no number of the log", quote(field), "a number of 0 or more");
    }
    return value;
  }

  std::optional<Seconds> time() {
    const auto value = number();
    return value ? std::optional(Seconds(*value)) : std::nullopt;
  }

  std::int64_t whole() {
    const std::string& field = fields_[next_++];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size() || value < 0) {
      fail("this is no whole number of the log", quote(field), "a whole number of 0 or more");
    }
    return value;
  }

 private:
  /// Takes the next field; true if a comma after it promises another.
  bool split_one() {
    std::string field;
    if (!line_.empty() && line_.front() == '"') {
      line_.remove_prefix(1);
      while (true) {
        const std::size_t end = line_.find('"');
        if (end == std::string_view::npos) {
          fail("a quote is not closed", quote(line_), "a second quote in the same line");
        }
        field += line_.substr(0, end);
        line_.remove_prefix(end + 1);
        if (line_.empty() || line_.front() != '"') {
          break;
        }
        field += '"';
        line_.remove_prefix(1);
      }
      if (!line_.empty() && line_.front() != ',') {
        fail("something stands between a quote and the comma", quote(line_), "a comma");
      }
    } else {
      const std::size_t comma = std::min(line_.find(','), line_.size());
      field = line_.substr(0, comma);
      line_.remove_prefix(comma);
    }
    fields_.push_back(std::move(field));
    if (line_.empty()) {
      return false;
    }
    line_.remove_prefix(1);
    return true;
  }

  std::string_view line_;
  std::string_view where_;
  std::size_t number_;
  std::vector<std::string> fields_;
  std::size_t next_ = 0;
};

}  // namespace

std::string trial_log_header() {
  return std::string(kHeader);
}

std::string to_csv(const TrialRecord& record) {
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n",
                     record.time_unix_s,
                     text_field(record.program),
                     text_field(record.setting),
                     record.repeat,
                     number_field(record.step),
                     number_field(record.step_p10),
                     number_field(record.step_p90),
                     number_field(record.exposed),
                     number_field(record.samples_per_s),
                     record.wall.count(),
                     text_field(record.error));
}

std::vector<TrialRecord> trials_from_csv(std::string_view text, std::string_view where) {
  if (!text.starts_with(kHeader)) {
    throw Error(ErrorCode::kParse,
                {"this is no log of trials",
                 std::string(where),
                 quote(text.substr(0, text.find('\n'))),
                 std::string(kHeader.substr(0, kHeader.size() - 1)),
                 "Use another file for --log"});
  }
  text.remove_prefix(kHeader.size());
  std::vector<TrialRecord> records;
  for (std::size_t number = 2; text.find('\n') != std::string_view::npos; ++number) {
    const std::size_t end = text.find('\n');
    LineReader line(text.substr(0, end), where, number);
    text.remove_prefix(end + 1);
    TrialRecord record;
    record.time_unix_s = line.whole();
    record.program = line.text();
    record.setting = line.text();
    record.repeat = static_cast<std::size_t>(line.whole());
    record.step = line.time();
    record.step_p10 = line.time();
    record.step_p90 = line.time();
    record.exposed = line.time();
    record.samples_per_s = line.number();
    record.wall = line.time().value_or(Seconds{});
    record.error = line.text();
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace stretto
