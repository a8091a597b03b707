// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace stretto {

/// How to start a program.
struct ChildCommand {
  std::vector<std::string> arguments;    ///< The program, looked up on PATH, and its arguments.
  std::vector<std::string> environment;  ///< All of it, as `NAME=value`.
  sigset_t signal_mask{};
  bool own_group = false;   ///< A process group of its own, which signal() reaches as a whole.
  bool null_input = false;  ///< Reads /dev/null.
  int output = -1;          ///< File descriptors that become its stdout
  int errors = -1;          ///< and stderr; -1: those of this process.
};

/// A running program. It is killed when its parent thread dies or this object is destroyed,
/// whichever comes first, and never left a zombie.
class ChildProcess {
 public:
  /// Returns once the program runs.
  /// @throws Error kUnavailable when it cannot be started, with the system's reason.
  explicit ChildProcess(const ChildCommand& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] bool running() const noexcept { return running_; }

  /// To the program, and to all it started if it has a group of its own. Nothing once it has ended.
  void signal(int number) const noexcept;

  /// Its wait status, once it has ended. If it failed, what is left of its group is killed first.
  [[nodiscard]] std::optional<int> reap() noexcept;

 private:
  pid_t pid_ = -1;
  bool own_group_ = false;
  bool running_ = false;
};

}  // namespace stretto
