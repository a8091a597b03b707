// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "stretto/base/error.hpp"
#include "stretto/base/units.hpp"

/// Typed access to JSON whose every error says file, JSON pointer, found and expected. Private to
/// data/: not installed.
namespace stretto::detail {

/// One value of a document and its place in it. Refers to the document, which must outlive it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, std::string_view file, std::string pointer)
      : json_(&json), file_(file), pointer_(std::move(pointer)) {}

  /// Members of an object. at() throws if there is none, find() does not.
  [[nodiscard]] JsonValue at(std::string_view key) const;
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;
  /// @throws Error if this object has a key that is not in `known`, with the nearest that is.
  void allow_only(std::initializer_list<std::string_view> known) const;
  /// @throws Error unless member `schema` is `stretto.NOUN/1`.
  void check_schema(std::string_view noun) const;

  /// Elements of an array.
  [[nodiscard]] std::vector<JsonValue> elements() const;

  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] bool boolean() const;
  /// Whole and in [least, most]. Exact: 1.0 and 1e3 are not whole numbers here.
  [[nodiscard]] std::int64_t integer(std::int64_t least, std::int64_t most) const;
  /// Array of integers: as elements() with integer(), without a place kept for each.
  [[nodiscard]] std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;
  /// Zero or more.
  [[nodiscard]] double number() const;
  [[nodiscard]] Seconds seconds() const { return Seconds(number()); }
  [[nodiscard]] bool is_null() const noexcept { return json_->is_null(); }
  [[nodiscard]] bool is_object() const noexcept { return json_->is_object(); }

  /// Runs `read` and says of an Error kInvalidArgument where in the file it happened.
  template <typename Read>
  [[nodiscard]] auto located(Read read) const {
    try {
      return read();
    } catch (const Error& error) {
      fail(error.detail());
    }
  }
  /// @throws Error kParse with `detail` at this place.
  [[noreturn]] void fail(ErrorDetail detail) const;
  [[noreturn]] void fail_type(std::string expected) const;

 private:
  const nlohmann::json* json_;
  std::string_view file_;
  std::string pointer_;
};

/// @throws Error kParse with the byte offset. Time and memory are linear in the text.
[[nodiscard]] nlohmann::json parse_json(std::string_view text, std::string_view file);

/// The document's own members one per line, and so the elements of arrays and objects that hold
/// containers; all else compact. Text that is not UTF-8 is replaced by U+FFFD.
[[nodiscard]] std::string write_json(const nlohmann::ordered_json& document);

}  // namespace stretto::detail
