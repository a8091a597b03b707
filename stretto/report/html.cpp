// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/html.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stretto/analyze/analyze.hpp"
#include "stretto/analyze/certificate.hpp"
#include "stretto/base/error.hpp"
#include "stretto/report/explanation.hpp"
#include "stretto/report/html_parts.hpp"

namespace stretto {
namespace {

using nlohmann::ordered_json;

/// Of the table rank by step; what comes after them is not in the page, and it says so.
constexpr std::size_t kMostStepRows = 20'000;
constexpr std::size_t kMostNameBytes = 300;
/// Of a plan's bucket, the tensors that are named.
constexpr std::size_t kMostTensors = 50;

std::string dump(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

/// Every string cut to a length that a page can show: names in hostile traces have no end.
void shorten(ordered_json& json, std::size_t most_bytes) {
  if (json.is_string()) {
    auto& text = json.get_ref<std::string&>();
    if (text.size() > most_bytes) {
      text = detail::shortened(text, most_bytes);
    }
    return;
  }
  if (json.is_structured()) {
    for (ordered_json& each : json) {
      shorten(each, most_bytes);
    }
  }
}

ordered_json steps_json(const std::vector<StepNumbers>& steps) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < std::min(kMostStepRows, steps.size()); ++i) {
    const StepNumbers& step = steps[i];
    rows.push_back({step.step,
                    step.rank,
                    step.begin.count(),
                    step.length.count(),
                    step.compute.count(),
                    step.communication.count(),
                    step.exposed.count(),
                    step.launches});
  }
  return {{"columns",
           {"step",
            "rank",
            "begin_s",
            "length_s",
            "compute_s",
            "communication_s",
            "exposed_s",
            "launches"}},
          {"rows", std::move(rows)},
          {"left_out", steps.size() - std::min(kMostStepRows, steps.size())}};
}

/// What the page's What-if starts from: the step as `stretto plan` takes it from the same files,
/// and the cost fitted to them. Null where the recording does not say.
ordered_json model_json(const ReportedRun& run) {
  constexpr std::size_t kMostProfileTensors = 5000;
  ordered_json json = {{"profile", nullptr}, {"fitted", nullptr}};
  try {
    const StepProfile profile = planning_profile_of_trace(run.timeline);
    if (profile.tensors.size() <= kMostProfileTensors) {
      json["profile"] = ordered_json::parse(to_json(profile));
    }
  } catch (const Error&) {
    return json;  // It has no steps, or no gradients that travel: nothing to ask about.
  }
  if (const auto& fitted = run.explanation.fitted) {
    json["fitted"] = {{"latency_s", fitted->cost.latency.count()},
                      {"seconds_per_byte", fitted->cost.seconds_per_byte},
                      {"ranks", std::max<std::uint32_t>(1, run.timeline.world_size)}};
  }
  return json;
}

/// All but the picture.
ordered_json run_json(const ReportedRun& run) {
  constexpr std::size_t kMostSentenceBytes = 4000;
  ordered_json explanation = ordered_json::parse(to_json(run.explanation));
  explanation.erase("buckets");  // they stand in the summary too
  ordered_json json = {{"name", detail::shortened(run.name, kMostNameBytes)},
                       {"files", run.files},
                       {"notes", run.notes},
                       {"explanation", std::move(explanation)},
                       {"steps_marked", run.explanation.steps_marked},
                       {"has_communication", run.explanation.has_communication()}};
  for (const std::string& note : run.explanation.notes) {
    json["notes"].push_back(note);
  }
  json["model"] = model_json(run);
  shorten(json, kMostSentenceBytes);
  json["steps"] = steps_json(step_numbers(run.timeline));
  return json;
}

ordered_json plan_json(const NamedPlan& named) {
  const auto ranges = named.plan.all_ranges();
  ordered_json buckets = ordered_json::array();
  for (std::size_t i = 0; i < named.plan.buckets.size(); ++i) {
    const Bucket& bucket = named.plan.buckets[i];
    ordered_json tensors = ordered_json::array();
    for (const TensorRange& range : ranges[i]) {
      if (tensors.size() == kMostTensors) {
        break;
      }
      tensors.push_back(detail::shortened(named.plan.tensors[range.tensor].name, kMostNameBytes));
    }
    buckets.push_back({{"bytes", bucket.bytes().count()},
                       {"algorithm", to_string(bucket.algorithm)},
                       {"priority", bucket.priority},
                       {"tensor_count", ranges[i].size()},
                       {"tensors", std::move(tensors)}});
  }
  return {{"name", detail::shortened(named.name, kMostNameBytes)},
          {"origin", detail::shortened(named.plan.origin, kMostNameBytes)},
          {"hash", fmt::format("{:016x}", named.plan.hash())},
          {"buckets", std::move(buckets)}};
}

/// No tag can begin or end in a block of data: `<` stands in strings only, where JSON has another
/// way to write it.
std::string escaped_for_script(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

class Page {
 public:
  Page(const Report& report, const HtmlOptions& options) : report_(report), options_(options) {
    ordered_json head = {{"schema", "stretto.report/1"},
                         {"version", report.version},
                         {"command", report.command},
                         {"language", options.language == Language::kChinese ? "zh" : "en"},
                         {"redacted", report.redacted},
                         {"summaries", ordered_json::array()},
                         {"plans", ordered_json::array()},
                         {"machines", ordered_json::array()}};
    for (const NamedSummary& named : report.summaries) {
      head["summaries"].push_back({{"name", detail::shortened(named.name, kMostNameBytes)},
                                   {"summary", ordered_json::parse(to_json(named.summary))}});
    }
    for (const NamedPlan& named : report.plans) {
      head["plans"].push_back(plan_json(named));
    }
    for (const Machine& machine : report.machines) {
      head["machines"].push_back(ordered_json::parse(to_json(machine)));
      shorten(head["machines"].back(), kMostNameBytes);
    }
    head_ = dump(head);
    for (const ReportedRun& run : report.runs) {
      runs_.push_back(dump(run_json(run)));
    }
    still_ = detail::static_page(report, options.language);
  }

  /// With at most so many intervals in all.
  [[nodiscard]] std::string write(std::size_t most_intervals) const {
    std::string data = head_;
    data.back() = ',';
    data += "\"runs\":[";
    const std::size_t each = most_intervals / std::max<std::size_t>(1, runs_.size());
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      data += i == 0 ? "" : ",";
      data += runs_[i];
      data.back() = ',';
      data += "\"timeline\":" + detail::timeline_columns(report_.runs[i].timeline, each) + "}";
    }
    data += "]}";
    return filled(escaped_for_script(data));
  }

 private:
  [[nodiscard]] std::string filled(std::string_view data) const {
    const bool chinese = options_.language == Language::kChinese;
    const std::array<std::pair<std::string_view, std::string_view>, 4> parts = {
        std::pair{std::string_view("@@STRETTO_LANG@@"),
                  std::string_view(chinese ? "zh-Hans" : "en")},
        std::pair{std::string_view("@@STRETTO_TITLE@@"),
                  std::string_view(chinese ? "Stretto 报告" : "Stretto report")},
        std::pair{std::string_view("@@STRETTO_STATIC@@"), std::string_view(still_)},
        std::pair{std::string_view("@@STRETTO_DATA@@"), data}};
    std::string_view rest = detail::viewer_page();
    std::string page;
    page.reserve(rest.size() + still_.size() + data.size());
    // In the order in which they stand in the page, so that nothing that was put in is looked at.
    for (const auto& [mark, text] : parts) {
      const std::size_t at = rest.find(mark);
      page.append(rest.substr(0, at)).append(text);
      rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + mark.size());
    }
    return page.append(rest);
  }

  const Report& report_;
  const HtmlOptions& options_;
  std::string head_;
  std::vector<std::string> runs_;  ///< JSON objects, each to be given its timeline.
  std::string still_;
};

}  // namespace

bool has_viewer() noexcept {
  return !detail::viewer_page().empty();
}

std::string html_report(const Report& report, const HtmlOptions& options) {
  if (!has_viewer()) {
    throw Error(
        ErrorCode::kUnavailable,
        {"this build has no viewer, so it cannot write HTML",
         "",
         "built without esbuild",
         "a build that found esbuild",
         "Install esbuild, then configure and build again; stretto analyze says the same as "
         "text"});
  }
  if (report.runs.empty() && report.summaries.empty() && report.plans.empty() &&
      report.machines.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a report without anything to show");
  }
  constexpr std::size_t kFewest = 1000;
  const Page page(report, options);
  for (std::size_t most = options.most_intervals;; most /= 2) {
    std::string html = page.write(most);
    if (html.size() <= options.most_bytes) {
      return html;
    }
    if (most <= kFewest) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the report is too large",
                   "",
                   fmt::format("{} bytes with the least detail", html.size()),
                   fmt::format("at most {} bytes", options.most_bytes),
                   "Give it fewer files"});
    }
  }
}

}  // namespace stretto
