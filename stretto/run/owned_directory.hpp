// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace stretto {

/// A directory under $TMPDIR (else /tmp) for this process and those it starts, gone with all in it
/// when this object is. A process that is killed cannot remove its own: the next one that makes a
/// directory of the same prefix does. That a directory's owner lives is said by its lock on the
/// file `owner` in it, which the system takes away from the dead, and which no number can be
/// mistaken for, as a process id can.
class OwnedDirectory {
 public:
  /// `prefix` as in `stretto-run-`.
  /// @throws Error kUnavailable where none can be made.
  explicit OwnedDirectory(std::string_view prefix);
  ~OwnedDirectory();
  OwnedDirectory(const OwnedDirectory&) = delete;
  OwnedDirectory& operator=(const OwnedDirectory&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  int owner_ = -1;  ///< The locked file; -1 where files cannot be locked.
};

}  // namespace stretto
