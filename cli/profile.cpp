// SPDX-License-Identifier: Apache-2.0
#include "profile.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "flags.hpp"
#include "output.hpp"
#include "stretto/data/models.hpp"

namespace stretto::cli {
namespace {

bool is_model(const std::string& argument) {
  const std::vector<std::string> names = model_names();
  return std::find(names.begin(), names.end(), argument) != names.end();
}

}  // namespace

StepProfile load_profile(const std::string& argument, const AssumedDevice& device) {
  if (is_model(argument)) {
    return profile_from_model_json(model_json(argument), argument, device);
  }
  if (!std::filesystem::exists(argument) && argument.find_first_of("./") == std::string::npos) {
    // Not a file, and not meant as one: says which models there are.
    return from_flag(
        "PROFILE", [&] { return profile_from_model_json(model_json(argument), argument, device); });
  }
  const std::string text = read_file(argument, "PROFILE");
  return from_file(argument, [&] {
    return text.find("\"stretto.step_profile/") != std::string::npos
               ? step_profile_from_json(text, argument)
               : profile_from_model_json(text, argument, device);
  });
}

bool names_profile(const std::string& argument) {
  if (is_model(argument)) {
    return true;
  }
  if (std::filesystem::is_directory(argument)) {
    return false;
  }
  std::ifstream file(argument, std::ios::binary);
  if (!file) {
    return argument.find_first_of("./") == std::string::npos;
  }
  // Profiles and model tables say what they are before anything long; no trace says this.
  std::array<char, 4096> head{};
  file.read(head.data(), head.size());
  const std::string_view text(head.data(), static_cast<std::size_t>(file.gcount()));
  return text.find("\"stretto.step_profile/") != std::string_view::npos ||
         text.find("\"params\"") != std::string_view::npos ||
         (text.find("\"model\"") != std::string_view::npos &&
          text.find("traceEvents") == std::string_view::npos &&
          text.find("\"stretto.timeline/") == std::string_view::npos);
}

bool names_model(const std::string& argument) {
  return is_model(argument) || !std::filesystem::exists(argument) ||
         read_file(argument, "PROFILE").find("\"stretto.step_profile/") == std::string::npos;
}

std::string model_list() {
  std::string names;
  for (const std::string& name : model_names()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

}  // namespace stretto::cli
