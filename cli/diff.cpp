// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "flags.hpp"
#include "output.hpp"
#include "stretto/analyze/explain.hpp"
#include "stretto/base/error.hpp"
#include "stretto/base/statistics.hpp"
#include "stretto/base/text.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/report.hpp"
#include "trace_options.hpp"
#include "version.hpp"

namespace stretto::cli {
namespace {

using nlohmann::ordered_json;

struct DiffFlags {
  TraceOptions trace;
  std::string history;
  std::vector<std::string> fail_if;
  bool json = false;
};

/// What is compared, in this order. Names are those of a Summary's JSON.
constexpr std::array<std::string_view, 10> kKeys = {"exposed_s",
                                                    "step_s",
                                                    "compute_s",
                                                    "communication_s",
                                                    "hidden_ratio",
                                                    "overlap_degree",
                                                    "communication_ratio",
                                                    "bound_s",
                                                    "bound_gap_ratio",
                                                    "samples_per_s"};

/// One summary out of a result, and what to call it.
struct Entry {
  std::string name;
  ordered_json summary;
};

std::optional<double> value_of(const ordered_json& summary, std::string_view key) {
  const auto found = summary.find(key);
  return found != summary.end() && found->is_number() ? std::optional(found->get<double>())
                                                      : std::nullopt;
}

/// The summaries of one argument: a result of this program, a summary, or a trace.
std::vector<Entry> entries_of(const std::string& path, const TraceOptions& options) {
  if (std::filesystem::is_regular_file(path) && path.ends_with(".json")) {
    constexpr std::size_t kHead = 4096;
    const std::string text = read_file(path, "argument");
    if (text.substr(0, kHead).find("\"stretto.") != std::string::npos &&
        text.substr(0, kHead).find("\"stretto.timeline/") == std::string::npos) {
      const ordered_json document = ordered_json::parse(text, nullptr, false);
      if (document.is_object() && document.contains("runs") && document["runs"].is_array()) {
        std::vector<Entry> entries;
        for (const ordered_json& run : document["runs"]) {
          if (run.is_object() && run.contains("summary")) {
            entries.push_back({run.value("name", ""), run["summary"]});
          }
        }
        return entries;
      }
      if (document.is_object() && document.contains("summary")) {
        return {{"", document["summary"]}};
      }
      if (document.is_object() && document.value("schema", "") == "stretto.summary/1") {
        return {{"", document}};
      }
      throw Error(ErrorCode::kParse,
                  {"a result without a summary",
                   path,
                   document.is_discarded() ? "not JSON" : "no member summary or runs",
                   "what analyze, train, replay or demo wrote with --json, or a trace",
                   ""});
    }
  }
  TraceOptions one = options;
  one.paths = {path};
  const Trace trace = one.read(false);
  const ordered_json explained = ordered_json::parse(to_json(explain(trace.timeline)));
  return {{"", explained["summary"]}};
}

/// `exposed_s>+5%`: the key, above or below, and a change in percent or a value.
struct Condition {
  std::string text;
  std::string_view key;
  bool above = true;
  bool relative = false;
  double limit = 0.0;
};

[[noreturn]] void bad_condition(const std::string& text, std::string expected, std::string help) {
  throw Error(ErrorCode::kInvalidArgument,
              {"not a condition", "--fail-if", quote(text), std::move(expected), std::move(help)});
}

/// `given` may have spaces, as people write it.
Condition parse_condition(const std::string& given) {
  std::string text = given;
  std::erase(text, ' ');
  const std::size_t place = text.find_first_of("<>");
  if (place == std::string::npos) {
    bad_condition(text, "KEY>+5%, KEY<-5%, KEY>0.02", "");
  }
  const auto* const key =
      std::find(kKeys.begin(), kKeys.end(), std::string_view(text).substr(0, place));
  if (key == kKeys.end()) {
    bad_condition(text, "a key that is compared", suggest(text.substr(0, place), kKeys));
  }
  Condition condition{text, *key, text[place] == '>', text.ends_with('%'), 0.0};
  std::string_view number = std::string_view(text).substr(place + 1);
  if (condition.relative) {
    number.remove_suffix(1);
  }
  if (number.starts_with('+')) {
    number.remove_prefix(1);
  }
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), condition.limit);
  if (error != std::errc() || end != number.data() + number.size() ||
      !std::isfinite(condition.limit)) {
    bad_condition(text, "a number, or a change like +5%", "");
  }
  return condition;
}

std::string shown(std::string_view key, std::optional<double> value) {
  if (!value) {
    return "n/a";
  }
  if (key.ends_with("_s") && key != "samples_per_s") {
    return format(Seconds(*value));
  }
  return key == "samples_per_s" ? fmt::format("{:.0f}", *value)
                                : fmt::format("{:.1f} %", 100.0 * *value);
}

/// From nothing to something is a change without bound.
std::optional<double> change_of(std::optional<double> before, std::optional<double> after) {
  if (!before || !after) {
    return std::nullopt;
  }
  if (*before == *after) {
    return 0.0;
  }
  return *before == 0.0 ? std::copysign(std::numeric_limits<double>::infinity(), *after)
                        : *after / *before - 1.0;
}

/// Why the condition holds; empty if it does not.
std::string failure_of(const Condition& condition,
                       std::optional<double> before,
                       std::optional<double> after) {
  const std::optional<double> measured = condition.relative ? change_of(before, after) : after;
  if (!measured) {
    return fmt::format("{}: cannot be told, for {} is {} before and {} after",
                       condition.text,
                       condition.key,
                       shown(condition.key, before),
                       shown(condition.key, after));
  }
  const double value = condition.relative ? 100.0 * *measured : *measured;
  const bool holds = condition.above ? value > condition.limit : value < condition.limit;
  return holds ? fmt::format("{}: {} went from {} to {}",
                             condition.text,
                             condition.key,
                             shown(condition.key, before),
                             shown(condition.key, after))
               : std::string();
}

struct Comparison {
  std::string text;
  ordered_json json = ordered_json::array();
  std::vector<std::string> failures;
  std::vector<std::string> left_out;  // results of a history that cannot be read
};

void compare(const Entry& before,
             const Entry& after,
             const std::vector<Condition>& conditions,
             Comparison& outcome) {
  std::vector<std::vector<std::string>> rows = {
      {before.name.empty() ? "number" : before.name, "before", "after", "change"}};
  ordered_json numbers;
  for (const std::string_view key : kKeys) {
    const auto a = value_of(before.summary, key);
    const auto b = value_of(after.summary, key);
    const auto change = change_of(a, b);
    rows.push_back(
        {std::string(key),
         shown(key, a),
         shown(key, b),
         change && std::isfinite(*change) ? fmt::format("{:+.1f} %", 100.0 * *change) : "n/a"});
    numbers[std::string(key)] = {
        {"before", a ? ordered_json(*a) : ordered_json()},
        {"after", b ? ordered_json(*b) : ordered_json()},
        {"change_ratio",
         change && std::isfinite(*change) ? ordered_json(*change) : ordered_json()}};
  }
  outcome.text += (outcome.text.empty() ? "" : "\n") + table(rows);
  outcome.json.push_back({{"name", before.name}, {"numbers", std::move(numbers)}});
  for (const Condition& condition : conditions) {
    std::string failure = failure_of(
        condition, value_of(before.summary, condition.key), value_of(after.summary, condition.key));
    if (!failure.empty()) {
      outcome.failures.push_back(std::move(failure));
    }
  }
}

Comparison compare_two(const DiffFlags& flags, const std::vector<Condition>& conditions) {
  if (flags.trace.paths.size() != 2) {
    throw Error(ErrorCode::kInvalidArgument,
                {"diff compares two results",
                 "diff",
                 std::to_string(flags.trace.paths.size()) + " arguments",
                 "2: before and after",
                 "A directory of results: stretto diff --history DIR"});
  }
  const std::vector<Entry> before = entries_of(flags.trace.paths[0], flags.trace);
  const std::vector<Entry> after = entries_of(flags.trace.paths[1], flags.trace);
  Comparison outcome;
  for (const Entry& entry : before) {
    const auto same = std::find_if(
        after.begin(), after.end(), [&](const Entry& other) { return other.name == entry.name; });
    if (same != after.end()) {
      compare(entry, *same, conditions, outcome);
    } else if (before.size() == 1 && after.size() == 1) {
      compare(entry, after[0], conditions, outcome);
    }
  }
  if (outcome.json.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the results have no run in common",
                 flags.trace.paths[1],
                 after.empty() ? "no run" : quote(after[0].name),
                 before.empty() ? "a run" : quote(before[0].name),
                 ""});
  }
  return outcome;
}

/// All results of a directory in the order of their names; the last against the median of those
/// before it.
Comparison review(const DiffFlags& flags, const std::vector<Condition>& conditions) {
  Comparison outcome;
  std::vector<std::vector<std::string>> rows = {{"result", "exposed_s", "step_s", "hidden_ratio"}};
  std::vector<Entry> entries;
  const std::vector<std::filesystem::path> paths = find_traces({flags.history});
  for (const std::filesystem::path& path : paths) {
    std::vector<Entry> found;
    try {
      found = entries_of(path.string(), flags.trace);
    } catch (const Error& error) {
      if (path == paths.back()) {  // the one that is asked about
        throw;
      }
      outcome.left_out.push_back(fmt::format(
          "{}: left out, {} ({})", path.string(), error.detail().message, error.detail().found));
      continue;
    }
    for (Entry& entry : found) {
      const std::string name =
          path.filename().string() + (entry.name.empty() ? "" : ": " + entry.name);
      rows.push_back({name,
                      shown("exposed_s", value_of(entry.summary, "exposed_s")),
                      shown("step_s", value_of(entry.summary, "step_s")),
                      shown("hidden_ratio", value_of(entry.summary, "hidden_ratio"))});
      entries.push_back({name, std::move(entry.summary)});
    }
  }
  if (entries.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                {"nothing to compare",
                 "--history",
                 std::to_string(entries.size()) + " results",
                 "2 or more",
                 ""});
  }
  Entry usual{"the last against the median before it", ordered_json::object()};
  for (const std::string_view key : kKeys) {
    std::vector<double> values;
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) {
      if (const auto value = value_of(entries[i].summary, key)) {
        values.push_back(*value);
      }
    }
    if (!values.empty()) {
      usual.summary[std::string(key)] = median(std::move(values));
    }
  }
  outcome.text = table(rows);
  compare(usual, entries.back(), conditions, outcome);
  return outcome;
}

int run_diff(const DiffFlags& flags, const Context& context) {
  std::vector<Condition> conditions;
  conditions.reserve(flags.fail_if.size());
  for (const std::string& text : flags.fail_if) {
    conditions.push_back(parse_condition(text));
  }
  const Comparison outcome =
      flags.history.empty() ? compare_two(flags, conditions) : review(flags, conditions);
  if (flags.json) {
    const ordered_json document = {{"schema", "stretto.diff/1"},
                                   {"version", kVersion},
                                   {"arguments", context.arguments},
                                   {"runs", outcome.json},
                                   {"failures", outcome.failures},
                                   {"left_out", outcome.left_out}};
    write_stdout(document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  } else {
    for (const std::string& what : outcome.left_out) {
      std::fputs(fmt::format("warning: {}\n", what).c_str(), stderr);
    }
    std::string text = outcome.text;
    for (const std::string& failure : outcome.failures) {
      text += fmt::format("FAILED {}\n", failure);
    }
    write_stdout(text);
  }
  return outcome.failures.empty() ? 0 : exit_code(ErrorCode::kMismatch);
}

}  // namespace

Action add_diff(CLI::App& app) {
  app.description("Compares two results or traces; fails if a number got worse");
  app.footer(
      "Examples:\n"
      "  stretto diff before.json after.json --fail-if 'exposed_s>+5%'\n"
      "  stretto diff monday.json.gz tuesday.json.gz\n"
      "  stretto diff --history results/ --fail-if 'step_s>+3%'");
  const auto flags = std::make_shared<DiffFlags>();
  flags->trace.add_to(app);
  app.get_option("TRACE")->required(false)->description(
      "Before and after: traces, or --json results");
  app.add_option(
         "--history", flags->history, "All results of a directory, in the order of their names")
      ->type_name("DIR");
  app.add_option("--fail-if",
                 flags->fail_if,
                 "Exit with 4 if this holds: KEY>+5% (a change) or KEY>0.02 (may be given again)")
      ->take_all()
      ->allow_extra_args(false)  // one each time: what follows is an argument
      ->type_name("CONDITION");
  app.add_flag("--json", flags->json, "One JSON document on stdout");
  return [flags](const Context& context) { return run_diff(*flags, context); };
}

}  // namespace stretto::cli
