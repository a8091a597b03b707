// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "stretto/base/error.hpp"
#include "stretto/data/write_timeline.hpp"

/// What goes to the user: results on stdout, everything else on stderr.
namespace stretto::cli {

/// 1 run failed, 2 usage, 3 bad input data, 4 check failed, 5 environment lacks something, 124
/// time-out.
[[nodiscard]] int exit_code(ErrorCode code) noexcept;
/// Of a command that this signal ended, as shells have it: 130 after SIGINT, 143 after SIGTERM.
[[nodiscard]] constexpr int exit_code_of_signal(int number) noexcept {
  return 128 + number;
}

/// `{"schema": "stretto.error/1", "error": {...}}`
[[nodiscard]] nlohmann::ordered_json error_document(const Error& error);
/// The same of a command that SIGINT, SIGTERM or SIGHUP ended; `help` may be empty.
[[nodiscard]] nlohmann::ordered_json interrupted_document(std::string_view help);
/// `error[parse]: message`, and a line each for where, found, expected, help.
[[nodiscard]] std::string error_text(const Error& error);

/// Writes all of `text` to stdout. A reader that has gone (`| head`) is not an error.
/// @throws Error kUnavailable when it cannot be written.
void write_stdout(std::string_view text);
/// All of it or nothing: who reads the file, also after this failed, sees all of the old or all of
/// the new content. A pipe or a device is written to.
/// @throws Error kUnavailable naming the file.
void write_file(const std::filesystem::path& path, std::string_view content);
/// The same of a text that is never whole in memory; `write` may be called twice, where the first
/// place did not do.
void write_pieces(const std::filesystem::path& path,
                  const std::function<void(const TextSink&)>& write);
/// @throws Error kInvalidArgument naming the flag or argument that named the file.
[[nodiscard]] std::string read_file(const std::filesystem::path& path, std::string_view named_by);

/// The command that gives these arguments to this program, quoted for a shell.
[[nodiscard]] std::string command_line(const std::vector<std::string>& arguments);

/// Colours on stdout: a terminal, and the user did not ask for none (NO_COLOR, TERM=dumb).
[[nodiscard]] bool use_color();
/// A progress line on stderr is seen by somebody.
[[nodiscard]] bool show_progress();

}  // namespace stretto::cli
