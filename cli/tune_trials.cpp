// SPDX-License-Identifier: Apache-2.0
#include "tune_trials.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "flags.hpp"
#include "output.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/text.hpp"

namespace stretto::cli {

Trials::Trials(TunedProgram& program, TuneSpace& space, InterruptWatch& watch, Options options)
    : program_(program), space_(space), watch_(watch), options_(std::move(options)) {
  if (!options_.log.empty()) {
    read_log();
  }
}

void Trials::read_log() {
  std::error_code none;
  std::string text = trial_log_header();
  if (std::filesystem::exists(options_.log, none)) {
    const std::string found = read_file(options_.log, "--log");
    if (!found.empty()) {
      for (const TrialRecord& record : trials_from_csv(found, options_.log)) {
        if (record.program != options_.fingerprint) {
          throw Error(ErrorCode::kParse,
                      {"the log is of another program, or of other steps",
                       options_.log,
                       quote(record.program),
                       options_.fingerprint,
                       "Use another file for --log, or remove this one"});
        }
        text += to_csv(record);
        if (record.step) {  // what failed is tried again
          done_[{record.setting, record.repeat}] = record;
        }
      }
    }
  }
  // Anew and whole: what was there may end in the middle of a line.
  const std::string fresh = options_.log + ".new";
  write_file(fresh, text);
  std::filesystem::rename(fresh, options_.log, none);
  if (none) {
    throw Error(ErrorCode::kUnavailable,
                {"the log cannot be written", options_.log, none.message(), "", ""});
  }
}

void Trials::append(const TrialRecord& record) {
  if (options_.log.empty()) {
    return;
  }
  std::ofstream log(options_.log, std::ios::app | std::ios::binary);
  log << to_csv(record) << std::flush;
  if (!log) {
    throw Error(ErrorCode::kUnavailable,
                {"the log cannot be written", options_.log, "", "", "Is the disk full?"});
  }
}

void Trials::say(const Setting& setting, const std::string& what) const {
  if (!options_.quiet && show_progress()) {
    std::fputs(
        fmt::format("trial {}: {}: {}\n", ran_ + from_log_, to_string(setting), what).c_str(),
        stderr);
  }
}

TrialReport Trials::once_more_if_failed(const TrialRequest& request, bool record) {
  TrialReport report = program_.run(request, record, watch_);
  if (!report.error.empty() && !report.interrupted) {
    report = program_.run(request, record, watch_);
  }
  return report;
}

TrialOutcome Trials::run(const Setting& setting, std::size_t repeat) {
  const std::string name = to_string(setting);
  TrialRecord record;
  const auto known = done_.find({name, repeat});
  if (known != done_.end()) {
    ++from_log_;
    record = known->second;
  } else {
    if (watch_.interrupted()) {
      throw Interrupted{};
    }
    TrialReport report;
    try {
      report = once_more_if_failed(space_.request(setting), false);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kUnavailable) {
        throw;
      }
      report.error = error.what();  // a value that this program cannot have
    }
    if (report.interrupted) {
      throw Interrupted{};
    }
    ++ran_;
    record.time_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
    record.program = options_.fingerprint;
    record.setting = name;
    record.repeat = repeat;
    record.wall = report.wall;
    record.error = report.error;
    if (report.summary) {
      record.step = report.summary->step;
      record.step_p10 = report.summary->step_p10;
      record.step_p90 = report.summary->step_p90;
      record.exposed = report.summary->exposed;
      record.samples_per_s = report.summary->samples_per_s;
    }
    append(record);
    say(setting, record.step ? format(*record.step) : record.error);
  }
  if (record.step) {
    used_[name].push_back(record);
  }
  return {record.step, record.error};
}

TrialReport Trials::record(const Setting& setting) {
  TrialReport report = once_more_if_failed(space_.request(setting), true);
  if (report.interrupted) {
    throw Interrupted{};
  }
  ++ran_;
  say(setting, report.summary ? format(report.summary->step) : report.error);
  return report;
}

namespace {

template <typename Take>
std::optional<double> median_of(const std::map<std::string, std::vector<TrialRecord>>& used,
                                const Setting& setting,
                                Take take) {
  std::vector<double> values;
  const auto found = used.find(to_string(setting));
  if (found != used.end()) {
    for (const TrialRecord& record : found->second) {
      if (const std::optional<double> value = take(record)) {
        values.push_back(*value);
      }
    }
  }
  return values.empty() ? std::nullopt : std::optional(median(std::move(values)));
}

std::optional<Seconds> seconds(std::optional<double> value) {
  return value ? std::optional(Seconds(*value)) : std::nullopt;
}

}  // namespace

std::optional<double> Trials::samples_per_s(const Setting& setting) const {
  return median_of(used_, setting, [](const TrialRecord& one) { return one.samples_per_s; });
}

std::optional<Seconds> Trials::step(const Setting& setting) const {
  return seconds(median_of(used_, setting, [](const TrialRecord& one) -> std::optional<double> {
    return one.step ? std::optional(one.step->count()) : std::nullopt;
  }));
}

std::optional<Seconds> Trials::exposed(const Setting& setting) const {
  return seconds(median_of(used_, setting, [](const TrialRecord& one) -> std::optional<double> {
    return one.exposed ? std::optional(one.exposed->count()) : std::nullopt;
  }));
}

}  // namespace stretto::cli
