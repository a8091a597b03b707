// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "commands.hpp"
#include "output.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

struct Command {
  std::string_view name;
  Action (*add)(CLI::App&);
};
constexpr std::array kCommands = {
    Command{"analyze", add_analyze},
    Command{"plan", add_plan},
    Command{"simulate", add_simulate},
    Command{"measure", add_measure},
    Command{"doctor", add_doctor},
    Command{"diff", add_diff},
    Command{"report", add_report},
    Command{"convert", add_convert},
    Command{"demo", add_demo},
    Command{"train", add_train},
    Command{"replay", add_replay},
    Command{"run", add_run},
    Command{"tune", add_tune},
};

[[noreturn]] void fail_usage(std::string message, std::string where, std::string help) {
  throw Error(ErrorCode::kInvalidArgument,
              {std::move(message), std::move(where), "", "", std::move(help)});
}

void check_command(const std::vector<std::string>& arguments) {
  std::vector<std::string_view> names;
  names.reserve(kCommands.size());
  for (const Command& command : kCommands) {
    names.push_back(command.name);
  }
  const bool known =
      !arguments.empty() && (arguments[0].starts_with('-') ||
                             std::find(names.begin(), names.end(), arguments[0]) != names.end());
  if (known) {
    return;
  }
  if (arguments.empty()) {
    fail_usage("no command", "", fmt::format("Commands: {}. See stretto --help", join(names)));
  }
  fail_usage(fmt::format("no command {}", quote(arguments[0])), "", suggest(arguments[0], names));
}

/// What CLI11 did not know: it has no suggestions of its own.
void check_rest(const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining();
  if (rest.empty()) {
    return;
  }
  const std::string word = rest[0].substr(0, rest[0].find('='));
  const std::string help = fmt::format("See stretto {} --help", command.get_name());
  if (!word.starts_with('-')) {
    fail_usage(fmt::format("unexpected argument {}", quote(word)), command.get_name(), help);
  }
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  const std::vector<std::string_view> known(flags.begin(), flags.end());
  const std::string_view near = nearest(word, known);
  fail_usage(fmt::format("no flag {}", quote(word)),
             command.get_name(),
             near.empty() ? help : fmt::format("Did you mean '{}'? {}", near, help));
}

/// CLI11's messages, in our form: `--steps: Value 0 not in range...`.
[[noreturn]] void fail_parse(const CLI::App& app, const CLI::ParseError& error) {
  const auto parsed = app.get_subcommands();
  const std::string command = parsed.empty() ? "" : parsed[0]->get_name();
  fail_usage(error.what(),
             command,
             fmt::format("See stretto {}{}--help", command, command.empty() ? "" : " "));
}

/// Results must not replace what they were made from, nor each other. `tune --log` goes on with a
/// file, and `measure -o` puts more into a machine: those are both.
void check_outputs(const CLI::App& command) {
  constexpr std::array<std::string_view, 4> kOutputs = {
      "--output", "--save-plan", "--timeline", "--prometheus"};
  struct Named {
    std::string flag;
    std::string file;
  };
  std::vector<Named> outputs;
  std::vector<Named> inputs;
  for (const CLI::Option* option : command.get_options()) {
    const bool is_output =
        std::find(kOutputs.begin(), kOutputs.end(), option->get_name()) != kOutputs.end();
    for (const std::string& value : option->results()) {
      (is_output ? outputs : inputs).push_back({option->get_name(), value});
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto same_file = [&](const Named& other) {
      std::error_code failed;  // what is no file is not the same file
      return std::filesystem::is_regular_file(outputs[i].file, failed) &&
             std::filesystem::equivalent(outputs[i].file, other.file, failed);
    };
    const auto end = outputs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto input = std::find_if(inputs.begin(), inputs.end(), same_file);
    const auto output = std::find_if(outputs.begin(), end, [&](const Named& other) {
      return other.file == outputs[i].file || same_file(other);
    });
    if (input != inputs.end() || output != end) {
      const Named& other = input != inputs.end() ? *input : *output;
      throw Error(ErrorCode::kInvalidArgument,
                  {input != inputs.end() ? "the result would replace what it is made from"
                                         : "two results cannot go into one file",
                   outputs[i].flag + " " + outputs[i].file,
                   fmt::format("the file of {}", other.flag),
                   "another file",
                   ""});
    }
  }
}

int run(Context context) {
  CLI::App app("Stretto hides gradient communication behind compute", "stretto");
  app.footer(
      "Examples:\n"
      "  stretto analyze trace_rank0.json.gz\n"
      "  stretto plan resnet50 --machine 8@5Gbit/s,50us\n"
      "  stretto demo\n"
      "  stretto train -n 2 --epochs 5\n"
      "  stretto replay resnet50 --emulate 8@2Gbit/s,50us");
  // A flag given again replaces the one before, as users of scripts and aliases expect.
  app.option_defaults()->take_last();
  app.set_version_flag("--version", fmt::format("stretto {}", kVersion));
  std::map<const CLI::App*, Action> actions;
  for (const Command& command : kCommands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name));
    sub->allow_extras();
    actions[sub] = command.add(*sub);
  }

  check_command(context.arguments);
  try {
    std::vector<std::string> reversed(context.arguments.rbegin(), context.arguments.rend());
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    write_stdout(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    for (const CLI::App* command : app.get_subcommands()) {
      check_rest(*command);
    }
    fail_parse(app, error);
  }
  const auto parsed = app.get_subcommands();
  if (parsed.empty()) {
    check_command({});
  }
  check_rest(*parsed[0]);
  check_outputs(*parsed[0]);
  const std::string name = parsed[0]->get_name();
  if (!context.program.empty() && name != "run" && name != "tune" && name != "doctor") {
    fail_usage("only 'run', 'tune' and 'doctor --nccl-dump' start a program",
               name,
               "Remove what follows --, or use stretto run -n RANKS -- PROGRAM ARGS");
  }
  return actions[parsed[0]](context);
}

int report_failure(const Error& error, bool json) noexcept {
  try {
    if (json) {
      write_stdout(error_document(error).dump(
                       2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                   "\n");
    } else {
      std::fputs(error_text(error).c_str(), stderr);
    }
  } catch (const std::exception& second) {
    std::fputs(second.what(), stderr);
    std::fputs("\n", stderr);
  }
  return exit_code(error.code());
}

}  // namespace
}  // namespace stretto::cli

int main(int argc, char** argv) {
  using stretto::Error;
  using stretto::ErrorCode;
  // A file that is opened later would get the number of a standard stream that is closed, and
  // results would go into it. Of this one nothing can be written: that is an error, as it should.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) {
      (void)open("/dev/null", O_RDONLY);
    }
  }
  bool json = false;
  try {
    stretto::cli::Context context;
    const std::vector<std::string> all(argv + 1, argv + argc);
    const auto dashes = std::find(all.begin(), all.end(), "--");
    context.arguments.assign(all.begin(), dashes);
    if (dashes != all.end()) {
      context.program.assign(dashes + 1, all.end());
    }
    json = std::find(context.arguments.begin(), context.arguments.end(), "--json") !=
           context.arguments.end();
    return stretto::cli::run(std::move(context));
  } catch (const Error& error) {
    return stretto::cli::report_failure(error, json);
  } catch (const std::bad_alloc&) {
    return stretto::cli::report_failure(Error(ErrorCode::kUnavailable, "out of memory"), json);
  } catch (const std::exception& error) {
    return stretto::cli::report_failure(Error(ErrorCode::kBackend, error.what()), json);
  }
}
