// SPDX-License-Identifier: Apache-2.0
#include "stretto/report/prometheus.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace stretto {
namespace {

/// Of a label's value: what the format wants escaped.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

/// One metric: all its samples stand together, below one HELP and one TYPE.
class Metric {
 public:
  Metric(std::string_view name, std::string_view type, std::string_view help)
      : name_(name), head_(fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type)) {}

  void add(std::string_view labels, double value) {
    samples_ += fmt::format("{}{{{}}} {}\n", name_, labels, value);
  }
  void write_to(std::string& text) const {
    if (!samples_.empty()) {
      text += head_ + samples_;
    }
  }

 private:
  std::string name_;
  std::string head_;
  std::string samples_;
};

struct Metrics {
  Metric step{"stretto_step_seconds", "gauge", "Length of a training step, median over steps"};
  Metric compute{"stretto_compute_seconds", "gauge", "Compute in a step"};
  Metric communication{"stretto_comm_seconds", "gauge", "Communication in a step"};
  Metric exposed{"stretto_exposed_comm_seconds",
                 "gauge",
                 "Communication in a step beside which the rank computes nothing"};
  Metric bound{"stretto_bound_seconds", "gauge", "No schedule of this kind has a shorter step"};
  Metric bucket_exposed{"stretto_bucket_exposed_seconds", "gauge", "Exposed part of one bucket"};
  Metric bucket_bytes{"stretto_bucket_bytes", "gauge", "Payload of one bucket"};

  void add(std::string_view name, const Summary& summary) {
    const std::string run = fmt::format("run=\"{}\"", escaped(name));
    for (const RankSummary& rank : summary.per_rank) {
      const std::string labels = fmt::format("{},rank=\"{}\"", run, rank.rank);
      step.add(labels, rank.step.count());
      compute.add(labels, rank.compute.count());
      // Without communication there is nothing that could be exposed: no sample, and not 0.
      if (summary.communication > Seconds(0)) {
        communication.add(labels, rank.communication.count());
        exposed.add(labels, rank.exposed.count());
      }
    }
    if (summary.bound) {
      bound.add(run, summary.bound->count());
    }
    for (const BucketSummary& bucket : summary.buckets) {
      const std::string labels = fmt::format(
          R"({},bucket="{}",op="{}")", run, bucket.bucket, to_string(bucket.collective));
      bucket_exposed.add(labels, bucket.exposed_share.count());
      if (bucket.bytes > Bytes(0)) {
        bucket_bytes.add(labels, static_cast<double>(bucket.bytes.count()));
      }
    }
  }
};

}  // namespace

std::string prometheus_text(const Report& report) {
  Metrics metrics;
  for (const ReportedRun& run : report.runs) {
    if (run.explanation.summary) {
      metrics.add(run.name, *run.explanation.summary);
    }
  }
  for (const NamedSummary& named : report.summaries) {
    metrics.add(named.name, named.summary);
  }
  std::string text;
  for (const Metric* metric : {&metrics.step,
                               &metrics.compute,
                               &metrics.communication,
                               &metrics.exposed,
                               &metrics.bound,
                               &metrics.bucket_exposed,
                               &metrics.bucket_bytes}) {
    metric->write_to(text);
  }
  return text;
}

}  // namespace stretto
