// SPDX-License-Identifier: Apache-2.0
#include "output.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace stretto::cli {
namespace {

std::string reason() {
  return std::error_code(errno, std::generic_category()).message();
}

bool is_terminal(int descriptor) {
  // Read once, before any thread is started.
  const char* term = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): see above
  return isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

/// A file without a name in that directory: gone with this process, however that ends. Where the
/// file system or /proc cannot do it, there is none.
class Unnamed {
 public:
  explicit Unnamed(const std::filesystem::path& directory)
      : descriptor_(open(  // NOLINT(cppcoreguidelines-pro-type-vararg): POSIX
            directory.empty() ? "." : directory.c_str(),
            O_TMPFILE | O_RDWR | O_CLOEXEC,
            0666)),
        path_(fmt::format("/proc/self/fd/{}", descriptor_)) {
    if (descriptor_ >= 0 && access(path_.c_str(), W_OK) != 0) {
      close(descriptor_);
      descriptor_ = -1;
    }
  }
  Unnamed(const Unnamed&) = delete;
  Unnamed& operator=(const Unnamed&) = delete;
  ~Unnamed() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  [[nodiscard]] bool exists() const noexcept { return descriptor_ >= 0; }
  /// By which it can be opened.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Whether it has that name now.
  [[nodiscard]] bool link(const std::filesystem::path& name) const {
    return linkat(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace

int exit_code(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 2;
    case ErrorCode::kParse:
      return 3;
    case ErrorCode::kMismatch:
      return 4;
    case ErrorCode::kUnavailable:
      return 5;
    case ErrorCode::kTimeout:
      return 124;
    case ErrorCode::kBackend:
    case ErrorCode::kPeerLost:
    case ErrorCode::kNeverReady:
    case ErrorCode::kReadyTwice:
      return 1;
  }
  return 1;
}

nlohmann::ordered_json error_document(const Error& error) {
  const ErrorDetail& detail = error.detail();
  return {{"schema", "stretto.error/1"},
          {"error",
           {{"code", to_string(error.code())},
            {"message", detail.message},
            {"where", detail.where},
            {"found", detail.found},
            {"expected", detail.expected},
            {"help", detail.help}}}};
}

nlohmann::ordered_json interrupted_document(std::string_view help) {
  return {{"schema", "stretto.error/1"},
          {"error",
           {{"code", "interrupted"},
            {"message", "interrupted before there was a result"},
            {"where", ""},
            {"found", ""},
            {"expected", ""},
            {"help", help}}}};
}

std::string error_text(const Error& error) {
  const ErrorDetail& detail = error.detail();
  std::string text = fmt::format("error[{}]: {}\n", to_string(error.code()), detail.message);
  const auto line = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("  {:<9} {}\n", fmt::format("{}:", name), value);
    }
  };
  line("where", detail.where);
  line("found", detail.found);
  line("expected", detail.expected);
  line("help", detail.help);
  return text;
}

void write_stdout(std::string_view text) {
  // Not at start: programs that `stretto run` starts would inherit it.
  std::signal(SIGPIPE, SIG_IGN);  // NOLINT(cert-err33-c): it cannot fail for SIGPIPE
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EPIPE) {
      return;
    } else if (errno != EINTR) {
      throw Error(ErrorCode::kUnavailable, {"stdout cannot be written", "", reason(), "", ""});
    }
  }
}

void write_pieces(const std::filesystem::path& path,
                  const std::function<void(const TextSink&)>& write) {
  namespace fs = std::filesystem;
  const auto refuse = [&path](const std::string& why) {
    throw Error(ErrorCode::kUnavailable,
                {"a file cannot be written",
                 path.string(),
                 why,
                 "a place where files can be made",
                 "Check that the directory exists, is yours, and has room"});
  };
  // 0, or why it is not whole.
  const auto written = [&write](const fs::path& file) {
    errno = 0;
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    if (!out) {
      return errno;
    }
    int failed = 0;
    write([&out, &failed](std::string_view piece) {
      out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
      failed = failed == 0 && !out ? errno : failed;
    });
    errno = 0;
    out.close();
    return failed != 0 ? failed : out ? 0 : errno != 0 ? errno : EIO;
  };
  const auto words = [](int error) {
    return std::error_code(error, std::generic_category()).message();
  };
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    if (const int error = written(path); error != 0) {
      refuse(words(error));
    }
    return;
  }
  // Through a link: it stays one. Beside the file: a rename from another file system would copy.
  const fs::path target =
      fs::is_symlink(fs::symlink_status(path, failed)) ? fs::weakly_canonical(path, failed) : path;
  const fs::path fresh = target.string() + fmt::format(".{}.tmp", getpid());
  const Unnamed unnamed(target.parent_path());
  int error = 0;
  try {
    error = written(unnamed.exists() ? fs::path(unnamed.path()) : fresh);
    if (error == 0 && unnamed.exists()) {
      fs::remove(fresh, failed);  // of one with this number that was killed long ago
      if (!unnamed.link(fresh)) {
        error = written(fresh);
      }
    }
  } catch (...) {
    fs::remove(fresh, failed);
    throw;
  }
  if (error != 0) {
    fs::remove(fresh, failed);
    // A file of one's own where no other can be made.
    if (error == EACCES && fs::exists(status) && written(path) == 0) {
      return;
    }
    refuse(words(error));
  }
  if (fs::exists(status)) {
    fs::permissions(fresh, status.permissions(), failed);
  }
  fs::rename(fresh, target, failed);
  if (failed) {
    const std::string why = failed.message();
    fs::remove(fresh, failed);
    refuse(why);
  }
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  write_pieces(path, [content](const TextSink& sink) { sink(content); });
}

std::string read_file(const std::filesystem::path& path, std::string_view named_by) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  // Streaming an empty file sets failbit on `content`; that is not a failure to read.
  if (in && in.peek() != std::ifstream::traits_type::eof()) {
    content << in.rdbuf();
  }
  if (errno != 0 || !in.is_open() || in.bad()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"a file cannot be read",
                 fmt::format("{} {}", named_by, path.string()),
                 reason(),
                 "a file",
                 ""});
  }
  return std::move(content).str();
}

std::string command_line(const std::vector<std::string>& arguments) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  std::string line = "stretto";
  for (const std::string& argument : arguments) {
    if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos) {
      line += " " + argument;
      continue;
    }
    line += " '";
    for (const char c : argument) {
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    line += "'";
  }
  return line;
}

bool use_color() {
  const char* no_color = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe): as above
  return is_terminal(STDOUT_FILENO) && (no_color == nullptr || *no_color == '\0');
}

bool show_progress() {
  return is_terminal(STDERR_FILENO);
}

}  // namespace stretto::cli
