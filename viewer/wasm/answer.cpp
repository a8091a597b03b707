// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <nlohmann/json.hpp>

#include "page.hpp"
#include "stretto/base/error.hpp"

namespace stretto::page {
namespace {

Json answered(const std::string& kind, const Json& question) {
  if (kind == "what_if") {
    return what_if(question);
  }
  if (kind == "collective_times") {
    return collective_times(question);
  }
  if (kind == "ring") {
    return ring(question);
  }
  if (kind == "layout") {
    return layout(question);
  }
  if (kind == "compress") {
    return compress(question);
  }
  if (kind == "names") {
    return names();
  }
  throw Error(ErrorCode::kInvalidArgument, "no such question: " + kind);
}

}  // namespace
}  // namespace stretto::page

/// @param question JSON with a member `ask`, ended by a zero, allocated by the page.
/// @return JSON, ended by a zero; valid until the next call.
extern "C" __attribute__((export_name("answer"))) const char* answer(const char* question) {
  static std::string text;
  const auto json = stretto::page::Json::parse(question);
  text = stretto::page::answered(json.at("ask").get<std::string>(), json)
             .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return text.c_str();
}
