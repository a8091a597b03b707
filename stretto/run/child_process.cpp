// SPDX-License-Identifier: Apache-2.0
#include "stretto/run/child_process.hpp"

#include <array>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// What exec wants: pointers to the texts, then null. The texts must stay where they are.
std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    result.push_back(const_cast<char*>(text.c_str()));
  }
  result.push_back(nullptr);
  return result;
}

/// Everything the new process needs, made before fork(): between fork and exec nothing may allocate
/// or lock, as another thread may have held the lock.
struct Prepared {
  const ChildCommand& command;
  std::vector<char*> arguments;
  std::vector<char*> environment;
  pid_t parent;
  int report;  ///< Where to write errno; closed by a successful exec.
};

[[noreturn]] void become(const Prepared& prepared) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.parent) {
    _exit(127);  // It died before it could be watched.
  }
  if (prepared.command.own_group) {
    setpgid(0, 0);
  }
  if (prepared.command.null_input) {
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
  }
  if (prepared.command.output >= 0) {
    dup2(prepared.command.output, STDOUT_FILENO);
  }
  if (prepared.command.errors >= 0) {
    dup2(prepared.command.errors, STDERR_FILENO);
  }
  pthread_sigmask(SIG_SETMASK, &prepared.command.signal_mask, nullptr);
  execvpe(prepared.arguments[0], prepared.arguments.data(), prepared.environment.data());
  const int error = errno;
  const ssize_t written = write(prepared.report, &error, sizeof(error));
  _exit(written == sizeof(error) ? 127 : 126);
}

/// 0 if exec succeeded and so closed the other end, else its errno.
int exec_error(int report) noexcept {
  int error = 0;
  ssize_t size = 0;
  do {
    size = read(report, &error, sizeof(error));
  } while (size < 0 && errno == EINTR);
  return size == sizeof(error) ? error : 0;
}

}  // namespace

ChildProcess::ChildProcess(const ChildCommand& command) : own_group_(command.own_group) {
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    throw Error(ErrorCode::kUnavailable, "no pipe for a new process: " + reason(errno));
  }
  const Prepared prepared{
      command, pointers(command.arguments), pointers(command.environment), getpid(), report[1]};
  pid_ = fork();
  if (pid_ == 0) {
    become(prepared);
  }
  const int fork_error = errno;
  close(report[1]);
  const int error = pid_ < 0 ? fork_error : exec_error(report[0]);
  close(report[0]);
  if (error != 0) {
    if (pid_ > 0) {
      waitpid(pid_, nullptr, 0);
    }
    throw Error(
        ErrorCode::kUnavailable,
        {.message = pid_ < 0 ? "no process can be started" : "the program cannot be started",
         .where = command.arguments[0],
         .found = reason(error),
         .help = pid_ < 0 ? "The limit on processes may be too low: see ulimit -u"
                          : "Check its name and that it may be executed; a name without a "
                            "slash is looked up on PATH"});
  }
  running_ = true;
}

ChildProcess::~ChildProcess() {
  if (running_) {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

void ChildProcess::signal(int number) const noexcept {
  if (running_) {
    kill(own_group_ ? -pid_ : pid_, number);
  }
}

std::optional<int> ChildProcess::reap() noexcept {
  siginfo_t info{};
  // Looks without reaping: as long as the zombie is there, nobody else can get its process id.
  if (!running_ ||
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  if (own_group_ && (info.si_code != CLD_EXITED || info.si_status != 0)) {
    kill(-pid_, SIGKILL);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  running_ = false;
  return status;
}

}  // namespace stretto
