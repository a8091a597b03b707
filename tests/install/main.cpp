// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "stretto/base/error.hpp"
#include "stretto/comm/rank_environment.hpp"

// One rank, if nobody started more; linked and run to see that the installed library is whole.
int main() try {
  const auto nothing_set = [](const std::string& /*name*/) -> std::optional<std::string> {
    return std::nullopt;
  };
  const stretto::RankEnvironment environment = stretto::detect_rank_environment(nothing_set);
  std::printf("%s %d\n", environment.launcher.c_str(), environment.world_size);
  return environment.world_size == 1 ? 0 : 1;
} catch (const stretto::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
