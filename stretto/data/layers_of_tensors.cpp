// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/data/step_profile.hpp"

namespace stretto {
namespace {

/// The layer whose backward pass, as long a part of backward as its forward pass is of forward,
/// ends at `ready` or later.
std::size_t layer_by_time(const StepProfile& profile, Seconds ready) {
  const Seconds backward = profile.backward_end - profile.forward_end;
  if (profile.forward.empty() || backward <= Seconds(0)) {
    return 0;
  }
  const double done = std::clamp((ready - profile.forward_end) / backward, 0.0, 1.0);
  Seconds whole{};
  for (const LayerTime& layer : profile.forward) {
    whole += layer.forward;
  }
  Seconds from_the_end{};
  for (std::size_t l = profile.forward.size(); l-- > 0;) {
    from_the_end += profile.forward[l].forward;
    if (from_the_end >= done * whole * (1.0 - 1e-9)) {
      return l;
    }
  }
  return 0;
}

}  // namespace

std::vector<std::size_t> layers_of_tensors(const StepProfile& profile) {
  std::map<std::string_view, std::size_t> layers;
  for (std::size_t l = profile.forward.size(); l-- > 0;) {
    layers[profile.forward[l].name] = l;  // of two of one name, the first
  }
  std::vector<std::size_t> result;
  result.reserve(profile.tensors.size());
  for (const ProfileTensor& tensor : profile.tensors) {
    std::string_view module = tensor.name;
    auto found = layers.find(module);
    while (found == layers.end() && module.find('.') != std::string_view::npos) {
      module = module.substr(0, module.rfind('.'));
      found = layers.find(module);
    }
    result.push_back(found != layers.end() ? found->second : layer_by_time(profile, tensor.ready));
  }
  return result;
}

}  // namespace stretto
