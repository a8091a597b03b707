// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "stretto/data/machine.hpp"
#include "stretto/data/plan.hpp"
#include "stretto/data/timeline.hpp"

namespace stretto {

/// Takes names out of what is to be shown to others: `tensor 3` for a tensor, and the same for the
/// same name wherever this object meets it. Done before anything is analyzed, so that no sentence
/// about it can hold a name either.
class Redactor {
 public:
  /// Names of tensors, kernels, ranges, modules, groups and hosts. What a library calls its own
  /// work (`aten::add`, `ncclDevKernel_...`), numbers of steps and versions stay, and so does what
  /// the analysis goes by: the word `elementwise` in the name of a kernel, the codec of `encode
  /// int8`.
  [[nodiscard]] Timeline operator()(Timeline timeline);
  /// Names of tensors; and the origin, which may name a file.
  [[nodiscard]] Plan operator()(Plan plan);
  /// Its name and that of each level; and the source, which is a command or a file.
  [[nodiscard]] Machine operator()(Machine machine);
  /// `file 2`, for any name of one.
  [[nodiscard]] std::string file(std::string_view name) { return replaced("file", name); }

 private:
  std::string replaced(std::string_view kind, std::string_view name);
  std::string replaced_kernel(std::string_view name);
  std::string replaced_range(std::string_view name);

  std::map<std::pair<std::string, std::string>, std::string> known_;
  std::map<std::string, std::size_t, std::less<>> counts_;
};

}  // namespace stretto
