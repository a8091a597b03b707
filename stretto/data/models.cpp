// SPDX-License-Identifier: Apache-2.0
#include "stretto/data/models.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/data/models_table.hpp"

namespace stretto {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const detail::EmbeddedModel& model : detail::embedded_models()) {
    names.emplace_back(model.name);
  }
  return names;
}

std::string_view model_json(std::string_view name) {
  std::vector<std::string_view> known;
  for (const detail::EmbeddedModel& model : detail::embedded_models()) {
    if (model.name == name) {
      return model.json;
    }
    known.push_back(model.name);
  }
  throw Error(ErrorCode::kInvalidArgument,
              {"no such model", {}, quote(name), {}, suggest(name, known)});
}

}  // namespace stretto
