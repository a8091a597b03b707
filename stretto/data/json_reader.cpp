// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/json_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"

namespace stretto::detail {
namespace {

using nlohmann::json;

/// What stands in the file, short enough for an error.
std::string describe(const json& value) {
  switch (value.type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array of " + std::to_string(value.size());
    case json::value_t::string:
      return quote(value.get_ref<const std::string&>());
    default:
      return value.dump();
  }
}

/// The keys of an object, as many as are easily read.
std::string describe_keys(const json& object) {
  constexpr std::size_t kMost = 8;
  std::string keys;
  std::size_t count = 0;
  for (const auto& member : object.items()) {
    if (count++ == kMost) {
      keys += "...";
      break;
    }
    keys += quote(member.key()) + (count < object.size() ? ", " : "");
  }
  return object.empty() ? "an object without keys" : "only " + keys;
}

/// Escapes `key` as RFC 6901 asks.
std::string child(const std::string& pointer, std::string_view key) {
  std::string path = pointer + "/";
  for (const char c : key) {
    if (c == '~') {
      path += "~0";
    } else if (c == '/') {
      path += "~1";
    } else {
      path += c;
    }
  }
  return path;
}

/// Accepts everything and keeps the first error: nlohmann's own exception for a number out of range
/// has no position.
class ErrorPosition : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*elements*/) override { return true; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position,
                   const std::string& last_token,
                   const json::exception& error) override {
    position_ = position;
    last_token_ = last_token;
    number_too_large_ = dynamic_cast<const json::out_of_range*>(&error) != nullptr;
    return false;
  }

  [[nodiscard]] std::size_t position() const { return position_; }
  [[nodiscard]] const std::string& last_token() const { return last_token_; }
  [[nodiscard]] bool number_too_large() const { return number_too_large_; }

 private:
  std::size_t position_ = 0;
  std::string last_token_;
  bool number_too_large_ = false;
};

std::string dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool holds_containers(const nlohmann::ordered_json& value) {
  return std::any_of(
      value.begin(), value.end(), [](const auto& element) { return element.is_structured(); });
}

void write_lines(const nlohmann::ordered_json& value, std::size_t depth, std::string& out) {
  constexpr std::size_t kDeepest = 2;
  if (!value.is_structured() || depth >= kDeepest || (depth > 0 && !holds_containers(value))) {
    out += dump(value);
    return;
  }
  const std::string indent(depth + 1, ' ');
  const bool object = value.is_object();
  out += object ? "{\n" : "[\n";
  bool first = true;
  for (const auto& [key, element] : value.items()) {
    out += first ? "" : ",\n";
    first = false;
    out += indent;
    if (object) {
      out += dump(nlohmann::ordered_json(key)) + ": ";
    }
    write_lines(element, depth + 1, out);
  }
  out += "\n" + std::string(depth, ' ') + (object ? "}" : "]");
}

}  // namespace

void JsonValue::fail(ErrorDetail detail) const {
  const std::string inner = detail.where.empty() ? "" : ", " + detail.where;
  detail.where = std::string(file_) + (pointer_.empty() ? "" : " at " + pointer_) + inner;
  throw Error(ErrorCode::kParse, std::move(detail));
}

void JsonValue::fail_type(std::string expected) const {
  fail({"wrong value in JSON", {}, describe(*json_), std::move(expected), {}});
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!json_->is_object()) {
    fail_type("an object");
  }
  const auto member = json_->find(key);
  if (member == json_->end()) {
    return std::nullopt;
  }
  return JsonValue(*member, file_, child(pointer_, key));
}

JsonValue JsonValue::at(std::string_view key) const {
  const auto member = find(key);
  if (!member) {
    fail({"key '" + std::string(key) + "' is missing",
          {},
          describe_keys(*json_),
          "the key '" + std::string(key) + "'",
          {}});
  }
  return *member;
}

void JsonValue::allow_only(std::initializer_list<std::string_view> known) const {
  if (!json_->is_object()) {
    fail_type("an object");
  }
  const std::span<const std::string_view> keys(known.begin(), known.size());
  for (const auto& [key, value] : json_->items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail({"unknown key " + quote(key), {}, {}, {}, suggest(key, keys)});
    }
  }
}

void JsonValue::check_schema(std::string_view noun) const {
  const std::string expected = "stretto." + std::string(noun) + "/1";
  const JsonValue schema = at("schema");
  if (schema.text() != expected) {
    schema.fail({"this file is something else, or of another version",
                 {},
                 quote(schema.text()),
                 "'" + expected + "'",
                 {}});
  }
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!json_->is_array()) {
    fail_type("an array");
  }
  std::vector<JsonValue> values;
  values.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) {
    values.emplace_back((*json_)[i], file_, child(pointer_, std::to_string(i)));
  }
  return values;
}

const std::string& JsonValue::text() const {
  if (!json_->is_string()) {
    fail_type("a string");
  }
  return json_->get_ref<const std::string&>();
}

bool JsonValue::boolean() const {
  if (!json_->is_boolean()) {
    fail_type("true or false");
  }
  return json_->get<bool>();
}

std::int64_t JsonValue::integer(std::int64_t least, std::int64_t most) const {
  // An unsigned number that does not fit int64 wraps to a negative one; get<double> tells.
  const bool fits = json_->is_number_integer() && json_->get<double>() < 0x1p63;
  const std::int64_t value = fits ? json_->get<std::int64_t>() : 0;
  if (!fits || value < least || value > most) {
    fail_type("a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::vector<std::int64_t> JsonValue::integers(std::int64_t least, std::int64_t most) const {
  if (!json_->is_array()) {
    fail_type("an array");
  }
  std::vector<std::int64_t> values;
  values.reserve(json_->size());
  for (std::size_t i = 0; i < json_->size(); ++i) {
    const json& element = (*json_)[i];
    if (!element.is_number_integer() || element.get<double>() >= 0x1p63 ||
        element.get<std::int64_t>() < least || element.get<std::int64_t>() > most) {
      (void)JsonValue(element, file_, child(pointer_, std::to_string(i))).integer(least, most);
    }
    values.push_back(element.get<std::int64_t>());
  }
  return values;
}

double JsonValue::number() const {
  const double value = json_->is_number() ? json_->get<double>() : -1.0;
  if (!(value >= 0.0) || !std::isfinite(value)) {
    fail_type("a number of zero or more");
  }
  return value;
}

json parse_json(std::string_view text, std::string_view file) {
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded()) {
    ErrorPosition error;
    json::sax_parse(text, &error);
    // nlohmann counts the characters read; the last one is where it went wrong.
    const std::size_t byte = error.position() == 0 ? 0 : error.position() - 1;
    const bool ended = byte >= text.size();
    throw Error(ErrorCode::kParse,
                {error.number_too_large() ? "number too large in JSON" : "not valid JSON",
                 std::string(file) + " at byte " + std::to_string(ended ? text.size() : byte),
                 ended ? "the end of the text" : quote(error.last_token()),
                 {},
                 ended ? "The file may have been cut off while it was written" : ""});
  }
  return document;
}

std::string write_json(const nlohmann::ordered_json& document) {
  std::string out;
  write_lines(document, 0, out);
  return out + "\n";
}

}  // namespace stretto::detail
