// SPDX-License-Identifier: Apache-2.0
#include "tune_program.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "flags.hpp"
#include "job.hpp"
#include "output.hpp"
#include "stretto/base/text.hpp"
#include "stretto/run/child_process.hpp"

namespace stretto::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Flags of replay and train whose place a trial's own take, and what they go with.
constexpr std::array<std::string_view, 5> kOfOutput = {
    "--output", "-o", "--timeline", "--save-plan", "--baseline"};

/// `words` without a flag and its value.
void remove_flag(std::vector<std::string>& words, std::string_view name) {
  for (std::size_t i = 0; i < words.size();) {
    if (words[i] == name) {
      const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
      words.erase(at, at + (i + 1 < words.size() ? 2 : 1));
    } else if (words[i].starts_with(name) && name.starts_with("--") &&
               words[i].substr(name.size()).starts_with('=')) {
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

/// A file descriptor that is closed with this.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) {
      throw Error(ErrorCode::kUnavailable,
                  {"a file for a trial's output cannot be written",
                   path.string(),
                   std::generic_category().message(errno),
                   "",
                   "Set TMPDIR to a folder that you may write to"});
    }
  }
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

/// The last line of a text with something in it.
std::string last_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = text.find_last_not_of(" \t\r\n");
    if (end == std::string_view::npos) {
      break;
    }
    text = text.substr(0, end + 1);
    const std::size_t begin = text.find_last_of('\n');
    return std::string(text.substr(begin == std::string_view::npos ? 0 : begin + 1));
  }
  return {};
}

}  // namespace

InterruptWatch::InterruptWatch() {
  sigemptyset(&ours_);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&ours_, number);
  }
  pthread_sigmask(SIG_BLOCK, &ours_, &before_);
}

InterruptWatch::~InterruptWatch() {
  // One that came meanwhile was answered by what this process says and returns.
  const timespec now{};
  while (sigtimedwait(&ours_, nullptr, &now) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool InterruptWatch::wait(std::chrono::milliseconds timeout) noexcept {
  const timespec time{.tv_sec = timeout.count() / 1000,
                      .tv_nsec = timeout.count() % 1000 * 1'000'000};
  const int got = sigtimedwait(&ours_, nullptr, &time);
  if (signal_ == 0 && got > 0 && got != SIGCHLD) {
    signal_ = got;
  }
  return signal_ == 0;
}

TunedProgram::TunedProgram(std::vector<std::string> words,
                           std::uint32_t steps,
                           std::optional<std::uint32_t> warmup,
                           Seconds time_limit)
    : words_(std::move(words)), steps_(steps), warmup_(warmup), time_limit_(time_limit) {
  if (!words_.empty() && std::filesystem::path(words_[0]).filename() == "stretto") {
    words_.erase(words_.begin());
  }
  constexpr std::array<std::string_view, 3> kKinds = {"replay", "train", "run"};
  if (words_.empty() || std::find(kKinds.begin(), kKinds.end(), words_[0]) == kKinds.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                {words_.empty() ? "there is no program to tune" : "this program cannot be tuned",
                 "",
                 words_.empty() ? "" : quote(words_[0]),
                 "-- and then replay, train, or run -n RANKS -- PROGRAM",
                 "Example: stretto tune -- run -n 2 -- python3 train.py"});
  }
  folder_ = directory_.path() / "trial";
  std::filesystem::create_directory(folder_);
}

std::optional<std::string> TunedProgram::flag(std::string_view name) const {
  std::optional<std::string> value;
  for (std::size_t i = 1; i < words_.size() && words_[i] != "--"; ++i) {
    if (words_[i] == name && i + 1 < words_.size()) {
      value = words_[i + 1];
    } else if (words_[i].starts_with(name) && words_[i].substr(name.size()).starts_with('=')) {
      value = words_[i].substr(name.size() + 1);
    }
  }
  return value;
}

std::vector<std::string> TunedProgram::variables(const TrialRequest& request,
                                                 const std::string& plan) {
  std::vector<std::string> set = request.environment;
  if (request.plan) {
    set.push_back("STRETTO_PLAN=" + plan);
  }
  if (!request.schedule.empty()) {
    set.push_back("STRETTO_SCHEDULE=" + request.schedule);
  }
  if (!request.streams.empty()) {
    set.push_back("STRETTO_STREAMS=" + request.streams);
  }
  return set;
}

std::vector<std::string> TunedProgram::arguments(const TrialRequest& request,
                                                 const std::string& plan) const {
  std::vector<std::string> words = words_;
  if (launches()) {
    return words;
  }
  const auto set = [&words](const char* flag, const std::string& value) {
    if (!value.empty()) {
      remove_flag(words, flag);
      words.insert(words.end(), {flag, value});
    }
  };
  if (request.plan) {
    remove_flag(words, "--buckets");
    remove_flag(words, "--compress");  // the plan has the codecs
    set("--plan", plan);
  }
  set("--schedule", request.schedule);
  set("--algorithm", request.algorithm);
  set("--streams", request.streams);
  if (request.places_in_order) {
    remove_flag(words, "--rank-map");
  }
  return words;
}

std::string TunedProgram::command(const TrialRequest& request, const std::string& plan) const {
  std::string text;
  for (const std::string& variable : launches() ? variables(request, plan) : request.environment) {
    text += variable + " ";
  }
  return text + command_line(arguments(request, plan));
}

TrialReport TunedProgram::run(const TrialRequest& request, bool record, InterruptWatch& watch) {
  for (const auto& old : std::filesystem::directory_iterator(folder_)) {
    std::filesystem::remove_all(old);
  }
  const std::string plan = (folder_ / "request.json").string();
  if (request.plan) {
    write_file(plan, to_json(*request.plan));
  }
  ChildCommand command;
  command.arguments = arguments(request, plan);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    command.environment.emplace_back(*variable);
  }
  std::vector<std::string> set = request.environment;
  if (launches()) {
    set = variables(request, plan);
    set.push_back("STRETTO_TRIAL=" + folder_.string());
    set.push_back(fmt::format("STRETTO_TRIAL_STEPS={}", steps_));
    if (warmup_) {
      set.push_back(fmt::format("STRETTO_TRIAL_WARMUP={}", *warmup_));
    }
  } else {
    for (const std::string_view flag : kOfOutput) {
      remove_flag(command.arguments, flag);
    }
    remove_flag(command.arguments, "--epochs");
    remove_flag(command.arguments, "--steps");
    command.arguments.insert(command.arguments.end(),
                             {"--json", "--steps", std::to_string(steps_)});
    if (warmup_) {
      remove_flag(command.arguments, "--warmup");
      command.arguments.insert(command.arguments.end(), {"--warmup", std::to_string(*warmup_)});
    }
    if (record) {
      command.arguments.insert(command.arguments.end(),
                               {"--timeline",
                                (folder_ / "timeline.json").string(),
                                "--save-plan",
                                (folder_ / "plan.json").string()});
    }
  }
  command.arguments.insert(command.arguments.begin(), own_program());
  for (std::string& variable : set) {
    std::erase_if(command.environment, [&](const std::string& old) {
      return old.starts_with(variable.substr(0, variable.find('=') + 1));
    });
    command.environment.push_back(std::move(variable));
  }
  const OpenFile output(folder_ / "stdout");
  const OpenFile errors(folder_ / "stderr");
  command.signal_mask = watch.mask_before();
  command.own_group = true;
  command.null_input = true;
  command.output = output.descriptor();
  command.errors = errors.descriptor();

  TrialReport report;
  const auto begin = Clock::now();
  const auto elapsed = [begin] { return Seconds(Clock::now() - begin); };
  ChildProcess child(command);
  const std::filesystem::path done = folder_ / "done";
  std::optional<int> status;
  std::optional<Seconds> ended;  // when it was told to
  while (!(status = child.reap())) {
    std::error_code none;
    const bool finished = launches() && std::filesystem::exists(done, none);
    if (!watch.wait(std::chrono::milliseconds(50))) {
      report.interrupted = true;
    }
    const bool late = elapsed() > time_limit_;
    if (!ended && (finished || report.interrupted || late)) {
      ended = elapsed();
      child.signal(SIGTERM);
      if (late && !finished && !report.interrupted) {
        report.error = fmt::format("took longer than {}", format(time_limit_));
      }
    } else if (ended && elapsed() > *ended + Seconds(5.0)) {
      child.signal(SIGKILL);
    }
  }
  report.wall = elapsed();
  if (!report.interrupted && report.error.empty()) {
    read_result(report, record, *status);
  }
  return report;
}

void TunedProgram::read_result(TrialReport& report, bool record, int status) const {
  const auto read = [this](const char* name) {
    return read_file(folder_ / name, "the trial's result");
  };
  try {
    if (launches()) {
      if (!std::filesystem::exists(folder_ / "done")) {
        report.error = why(status);
        return;
      }
      report.summary = summary_from_json(read("summary.json"), "the trial's summary");
    } else {
      const auto document = nlohmann::json::parse(read("stdout"), nullptr, false);
      if (status != 0 || !document.is_object() || !document.contains("runs")) {
        report.error = why(status);
        return;
      }
      const auto& run = document.at("runs").at(0);
      report.schedule = run.at("schedule").get<std::string>();
      report.summary = summary_from_json(run.at("summary").dump(), "the trial's summary");
    }
    if (record) {
      report.plan = plan_from_json(read("plan.json"), "the trial's plan");
      report.timeline = timeline_from_json(read("timeline.json"), "the trial's timeline");
    }
  } catch (const Error& error) {
    report.error = error.what();
  } catch (const nlohmann::json::exception& error) {
    report.error = error.what();
  }
}

std::string TunedProgram::why(int status) const {
  const std::string output = read_file(folder_ / "stdout", "a trial's output");
  const auto document = nlohmann::json::parse(output, nullptr, false);
  if (document.is_object() && document.contains("error") && document["error"].is_object()) {
    const auto& error = document["error"];
    const auto part = [&](const char* key) {
      return error.contains(key) && error[key].is_string() ? error[key].get<std::string>()
                                                           : std::string();
    };
    return Error(ErrorCode::kBackend,
                 {part("message"), part("where"), part("found"), part("expected"), part("help")})
        .what();
  }
  const std::string last = last_line(read_file(folder_ / "stderr", "a trial's output"));
  const std::string how = WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                                              : fmt::format("exit code {}", WEXITSTATUS(status));
  if (status == 0) {
    return "it ended without a result; it must train with stretto.torch.DDP for the steps asked "
           "for" +
           (last.empty() ? std::string() : ": " + last);
  }
  return how + (last.empty() ? std::string() : ": " + last);
}

}  // namespace stretto::cli
