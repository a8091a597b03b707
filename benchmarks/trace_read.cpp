// SPDX-License-Identifier: Apache-2.0
// Reads trace files and prints, as one JSON object a file, how fast and with how much memory. One
// process per measurement: peak memory is a process's. trace_read.py runs it.
//
//   bench_trace_read FILE...
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "stretto/analyze/devices.hpp"
#include "stretto/base/error.hpp"
#include "stretto/trace/trace.hpp"

namespace {

/// KiB, 0 where /proc does not say. Reset by a new process only.
long peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::stol(line.substr(6));
    }
  }
  return 0;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void read(const char* path) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu_begin = std::clock();
  const stretto::Trace trace = stretto::read_traces({path});
  const double read_s = seconds_since(begin);
  const double cpu_s = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const long peak = peak_kib();
  const auto totals_begin = std::chrono::steady_clock::now();
  std::int64_t exposed_ns = 0;
  for (const stretto::DeviceTotals& totals : stretto::device_totals(trace.timeline)) {
    exposed_ns += totals.exposed_ns;
  }
  const stretto::TraceFile& file = trace.files.at(0);
  std::printf(
      "{\"json_bytes\": %llu, \"events\": %llu, \"kept\": %zu, \"read_s\": %.4f, \"cpu_s\": %.4f, "
      "\"totals_s\": %.4f, \"peak_bytes\": %ld, \"exposed_ns\": %lld}\n",
      static_cast<unsigned long long>(file.bytes),
      static_cast<unsigned long long>(file.events),
      trace.timeline.records.size(),
      read_s,
      cpu_s,
      seconds_since(totals_begin),
      peak * 1024,
      static_cast<long long>(exposed_ns));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) {
      read(argv[i]);
    }
  } catch (const stretto::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return argc < 2 ? 2 : 0;
}
