// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/owned_directory.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/comm/rank_environment.hpp"

namespace stretto {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPattern = "XXXXXX";  // mkdtemp's
constexpr const char* kOwner = "owner";

bool is_own_directory(const fs::path& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid();
}

/// Whoever has no `owner` is being made this moment, or is where files cannot be locked: it stays.
void remove_if_abandoned(const fs::path& directory) {
  const int owner = open((directory / kOwner).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (owner < 0) {
    return;
  }
  if (flock(owner, LOCK_EX | LOCK_NB) == 0) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
  }
  close(owner);
}

void remove_abandoned(const fs::path& parent, std::string_view prefix) {
  std::error_code none;
  for (fs::directory_iterator entry(parent, none), end; !none && entry != end;
       entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    if (name.size() == prefix.size() + kPattern.size() && name.starts_with(prefix) &&
        is_own_directory(entry->path())) {
      remove_if_abandoned(entry->path());
    }
  }
}

/// The locked file of a new directory. It gets its name once it is locked, so that nobody who finds
/// it takes a directory that was made just now for an abandoned one.
int lock_owner(const fs::path& directory) {
  const fs::path nameless = directory / "owner.new";
  const int owner = open(nameless.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (owner >= 0 && flock(owner, LOCK_EX | LOCK_NB) == 0 &&
      rename(nameless.c_str(), (directory / kOwner).c_str()) == 0) {
    return owner;
  }
  unlink(nameless.c_str());
  if (owner >= 0) {
    close(owner);
  }
  return -1;
}

}  // namespace

OwnedDirectory::OwnedDirectory(std::string_view prefix) {
  const std::string given = process_environment()("TMPDIR").value_or("");
  const fs::path parent = given.empty() ? "/tmp" : given;
  remove_abandoned(parent, prefix);
  std::string name = (parent / prefix).string() + std::string(kPattern);
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                {"a private directory cannot be made",
                 name,
                 std::generic_category().message(errno),
                 "a place where directories can be made",
                 "Set TMPDIR to a folder that you may write to"});
  }
  path_ = name;
  owner_ = lock_owner(path_);
}

OwnedDirectory::~OwnedDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (owner_ >= 0) {
    close(owner_);
  }
}

}  // namespace stretto
