// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <utility>

#include <glob.h>

#include "stretto/base/error.hpp"
#include "stretto/base/text.hpp"
#include "stretto/trace/bucket_matching.hpp"
#include "stretto/trace/builder.hpp"
#include "stretto/trace/database.hpp"
#include "stretto/trace/input.hpp"
#include "stretto/trace/nccl_tests.hpp"
#include "stretto/trace/nsys.hpp"

namespace stretto {
namespace {

using detail::Input;
using detail::TraceBuilder;

constexpr std::array<std::string_view, 10> kSuffixes = {".json",
                                                        ".json.gz",
                                                        ".json.zst",
                                                        ".jsonl",
                                                        ".jsonl.gz",
                                                        ".sqlite",
                                                        ".trace",
                                                        ".trace.gz",
                                                        ".nsys-rep.sqlite",
                                                        ".timeline"};

/// Gives the first bytes twice: once to whoever decides what this is.
class PeekedInput final : public Input {
 public:
  explicit PeekedInput(Input& input) : input_(input), head_(kHeadBytes) {
    std::size_t size = 0;
    while (size < head_.size()) {
      const std::size_t got = input_.read(std::span(head_).subspan(size));
      if (got == 0) {
        break;
      }
      size += got;
    }
    head_.resize(size);
  }
  [[nodiscard]] std::string_view head() const { return {head_.data(), head_.size()}; }

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    if (given_ == head_.size()) {
      return input_.read(room);
    }
    const std::size_t size = std::min(room.size(), head_.size() - given_);
    std::copy_n(head_.data() + given_, size, room.data());
    given_ += size;
    return size;
  }
  [[nodiscard]] std::string fault() const override {
    return given_ == head_.size() ? input_.fault() : std::string();
  }
  [[nodiscard]] std::uint64_t taken() const override { return input_.taken(); }
  [[nodiscard]] std::uint64_t size() const override { return input_.size(); }

 private:
  static constexpr std::size_t kHeadBytes = 16384;
  Input& input_;
  std::vector<char> head_;
  std::size_t given_ = 0;
};

struct Format {
  std::string_view name;
  bool (*is_it)(std::string_view head);
  void (*read)(Input& input, TraceBuilder& builder);
  bool whole;  ///< Its records need no steps marked and nothing linked.
};

bool is_stretto(std::string_view head) {
  return head.find("\"stretto.timeline/") != std::string_view::npos;
}

// The first that knows the text reads it; the last knows every text.
constexpr std::array kFormats = {
    Format{"nsys", detail::is_database, detail::read_nsys, false},
    Format{"stretto", is_stretto, detail::read_stretto, true},
    Format{"horovod", detail::is_horovod, detail::read_horovod, false},
    Format{"nccl-inspector", detail::is_nccl_inspector, detail::read_nccl_inspector, false},
    Format{"nccl-tests", is_nccl_tests, detail::refuse_nccl_tests, true},
    Format{"kineto", nullptr, detail::read_chrome, false},
};

/// `trace_rank12.json` < `trace_rank100.json`.
bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const auto run = [&](const std::string& text, std::size_t& at) {
        const std::size_t begin = at;
        while (at < text.size() && digit(text[at])) {
          ++at;
        }
        std::string_view number = std::string_view(text).substr(begin, at - begin);
        while (number.size() > 1 && number.front() == '0') {
          number.remove_prefix(1);
        }
        return number;
      };
      const std::string_view left = run(a, i);
      const std::string_view right = run(b, j);
      if (left != right) {
        return left.size() != right.size() ? left.size() < right.size() : left < right;
      }
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

bool looks_like_trace(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  return std::any_of(kSuffixes.begin(), kSuffixes.end(), [&](std::string_view suffix) {
    return name.size() > suffix.size() && name.ends_with(suffix);
  });
}

/// `rank3`, `rank_3`, `rank-03` in the file's name.
std::optional<std::uint32_t> rank_in_name(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(std::tolower(c));
  });
  for (std::size_t at = name.find("rank"); at != std::string::npos;
       at = name.find("rank", at + 1)) {
    std::size_t begin = at + 4;
    while (begin < name.size() &&
           (name[begin] == '_' || name[begin] == '-' || name[begin] == '=' || name[begin] == '.')) {
      ++begin;
    }
    std::size_t end = begin;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') {
      ++end;
    }
    std::int64_t rank = 0;
    if (end > begin && end - begin < 9 &&
        detail::parse_integer(std::string_view(name).substr(begin, end - begin), rank)) {
      return static_cast<std::uint32_t>(rank);
    }
  }
  return std::nullopt;
}

void set_rank(TraceFile& file, std::uint32_t order) {
  if (!file.rank_from.empty()) {
    return;
  }
  // Of a file with several ranks the name can only say the node's.
  if (const auto rank = file.rank_count == 1 ? rank_in_name(file.path) : std::nullopt) {
    file.rank = *rank;
    file.rank_from = "file name";
  } else {
    file.rank = order;
    file.rank_from = "order";
  }
}

void end_file(TraceBuilder& builder, std::uint32_t order, bool whole) {
  TraceFile& file = builder.file();
  if (file.fault && file.events == 0) {
    throw Error(ErrorCode::kParse,
                {"nothing of a trace can be used",
                 file.path,
                 file.fault->what,
                 "at least one whole event before the fault",
                 "Is it the right file? Formats that can be read: " + trace_formats()});
  }
  if (file.events == 0) {
    builder.note("it holds no events");
  }
  set_rank(file, order);
  if (whole) {
    builder.finish_as_it_is();
  } else {
    builder.finish();
  }
}

/// What nsys itself writes has no published form, and its name is all that it can be known by.
void refuse_report(const std::string& path, std::string_view head) {
  constexpr std::array<std::string_view, 3> kReports = {".nsys-rep", ".qdrep", ".qdstrm"};
  const bool report = std::any_of(kReports.begin(), kReports.end(), [&](std::string_view suffix) {
    return path.ends_with(suffix);
  });
  if (report && !head.starts_with('{') && !head.starts_with('[')) {
    throw Error(ErrorCode::kParse,
                {"a report of Nsight Systems that is not exported",
                 path,
                 "the profiler's own format",
                 "its SQLite export",
                 "Run: nsys export --type sqlite " + quote(path)});
  }
}

void read_stream(Input& input, TraceBuilder& builder, std::uint32_t order) {
  PeekedInput peeked(input);
  for (const Format& format : kFormats) {
    if (format.is_it != nullptr && !format.is_it(peeked.head())) {
      continue;
    }
    if (format.is_it == nullptr) {
      refuse_report(builder.file().path, peeked.head());
    }
    builder.file().format = format.name;
    format.read(peeked, builder);
    end_file(builder, order, format.whole);
    return;
  }
}

void note_missing_ranks(Trace& trace, const std::map<std::uint32_t, std::size_t>& present) {
  constexpr std::size_t kMostListed = 8;
  const std::uint32_t world_size = trace.timeline.world_size;
  if (present.size() >= world_size) {
    return;
  }
  if (std::all_of(trace.files.begin(), trace.files.end(), [](const TraceFile& file) {
        return file.backend == "simulate";
      })) {
    trace.notes.push_back("simulated: of " + std::to_string(world_size) + " ranks " +
                          std::to_string(present.size()) +
                          " are drawn, one of each speed; numbers are of these");
    return;
  }
  std::string missing;
  std::size_t listed = 0;
  for (std::uint32_t rank = 0; rank < world_size && listed < kMostListed; ++rank) {
    if (!present.contains(rank)) {
      missing += (listed++ == 0 ? "" : ", ") + std::to_string(rank);
    }
  }
  trace.notes.push_back(std::to_string(present.size()) + " of " + std::to_string(world_size) +
                        " ranks are here (missing: " + missing +
                        (listed == kMostListed ? "..." : "") + "): numbers are of these only");
}

/// A database that is not packed is read where it lies; all else is a stream.
void read_file(const std::filesystem::path& path, TraceBuilder& builder, std::uint32_t order) {
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    std::array<char, 16> head{};
    std::ifstream file(path, std::ios::binary);
    if (file.read(head.data(), head.size()) && detail::is_database({head.data(), head.size()})) {
      detail::read_nsys_file(path, builder);
      end_file(builder, order, false);
      return;
    }
  }
  const std::unique_ptr<Input> input = detail::open_input(path);
  read_stream(*input, builder, order);
}

/// Ranks must differ, and times count from one origin.
void put_together(Trace& trace, std::vector<std::size_t> first_records) {
  Timeline& timeline = trace.timeline;
  timeline.source = trace.files.size() == 1 ? trace.files[0].format : "traces";
  first_records.push_back(timeline.records.size());
  const std::int64_t base = trace.files.empty() ? 0 : trace.files[0].base_ns;
  std::int64_t earliest = detail::kLatestTraceNs;
  std::map<std::uint32_t, std::size_t> file_of_rank;
  for (std::size_t i = 0; i < trace.files.size(); ++i) {
    TraceFile& file = trace.files[i];
    timeline.world_size = std::max(timeline.world_size, file.world_size);
    std::uint32_t last = kNoId;
    for (std::size_t r = first_records[i]; r < first_records[i + 1]; ++r) {
      Record& record = timeline.records[r];
      record.begin_ns += file.base_ns - base;
      record.end_ns += file.base_ns - base;
      earliest = std::min(earliest, record.begin_ns);
      if (record.rank == last) {
        continue;
      }
      last = record.rank;
      const auto [place, added] = file_of_rank.try_emplace(record.rank, i);
      if (added) {
        file.ranks.push_back(record.rank);
      } else if (place->second != i) {
        throw Error(ErrorCode::kInvalidArgument,
                    {"two files are of one rank",
                     file.path,
                     "rank " + std::to_string(record.rank) + " (" + file.rank_from + ")",
                     "a rank that " + trace.files[place->second].path + " does not have",
                     "Give one file per rank; compare recordings with stretto diff"});
      }
    }
  }
  if (timeline.records.empty()) {
    return;
  }
  // By whole microseconds: what a time's fraction was stays to be seen.
  constexpr std::int64_t kMicrosecond = 1000;
  earliest -= ((earliest % kMicrosecond) + kMicrosecond) % kMicrosecond;
  trace.zero_ns = earliest;
  for (Record& record : timeline.records) {
    record.begin_ns -= earliest;
    record.end_ns -= earliest;
  }
  // Without a base the times themselves may be Unix times: those of this century are.
  constexpr std::int64_t kYear2001 = 1'000'000'000'000'000'000;
  timeline.origin_unix_ns = base != 0 || earliest > kYear2001 ? base + earliest : 0;
  timeline.world_size =
      std::max(timeline.world_size, static_cast<std::uint32_t>(file_of_rank.size()));
  note_missing_ranks(trace, file_of_rank);
  std::set<std::uint32_t> steps;
  for (const Record& record : timeline.records) {
    if (record.kind == RecordKind::kStep) {
      steps.insert(record.step);
    }
  }
  timeline.steps_total = static_cast<std::uint32_t>(steps.size());
  timeline.steps_recorded = timeline.steps_total;
}

/// What a pattern of a shell means, for one that came quoted; in natural order.
std::vector<std::string> matches_of(const std::string& pattern) {
  std::vector<std::string> names;
  if (pattern.find_first_of("*?[") == std::string::npos) {
    return names;
  }
  glob_t found{};
  // NOLINTNEXTLINE(concurrency-mt-unsafe): only with GLOB_TILDE, which looks at the environment
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

void refuse_twice(const std::vector<std::filesystem::path>& files) {
  std::set<std::filesystem::path> known;
  for (const std::filesystem::path& file : files) {
    std::error_code error;
    const std::filesystem::path same = std::filesystem::canonical(file, error);
    if (!error && std::filesystem::is_regular_file(same) && !known.insert(same).second) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"a trace is given twice",
                   file.string(),
                   "the same file as one before it",
                   "one file per rank",
                   ""});
    }
  }
}

void add_notes(Trace& trace, std::vector<std::string> notes) {
  std::move(notes.begin(), notes.end(), std::back_inserter(trace.notes));
}

/// Ranks that are only the order of files would be wrong in another order.
void note_ranks_by_order(Trace& trace) {
  std::size_t counted = 0;
  for (const TraceFile& file : trace.files) {
    counted += file.rank_from == "order" ? 1U : 0U;
  }
  if (trace.files.size() > 1 && counted > 0) {
    trace.notes.push_back(std::to_string(counted) + " of " + std::to_string(trace.files.size()) +
                          " files do not say which rank they are of, nor do their names: they "
                          "are numbered in the order given");
  }
}

}  // namespace

std::string trace_formats() {
  return "PyTorch profiler (Kineto) and Chrome JSON, Ascend msprof, Nsight Systems (its SQLite "
         "export), Horovod timelines, NCCL Inspector logs, Stretto timelines; each also .gz or "
         ".zst";
}

std::vector<std::filesystem::path> find_traces(const std::vector<std::string>& names) {
  std::vector<std::filesystem::path> files;
  for (const std::string& name : names) {
    std::error_code error;
    const auto status = std::filesystem::status(name, error);
    if (error || !std::filesystem::exists(status)) {
      if (std::vector<std::string> matched = matches_of(name); !matched.empty()) {
        const std::vector<std::filesystem::path> found = find_traces(matched);
        files.insert(files.end(), found.begin(), found.end());
        continue;
      }
      throw Error(ErrorCode::kInvalidArgument,
                  {"no such trace",
                   quote(name),
                   error && error != std::errc::no_such_file_or_directory ? error.message()
                                                                          : "nothing there",
                   "a file, or a directory of them",
                   name == "-" ? "Of a pipe: stretto analyze /dev/stdin" : ""});
    }
    if (!std::filesystem::is_directory(status)) {
      files.emplace_back(name);
      continue;
    }
    const std::size_t before = files.size();
    std::size_t others = 0;
    const std::filesystem::directory_iterator entries(name, error);
    if (error) {
      throw Error(
          ErrorCode::kInvalidArgument,
          {"a directory that cannot be read", quote(name), error.message(), "a directory", {}});
    }
    for (const auto& entry : entries) {
      // A link to nowhere, or to itself, is another entry.
      std::error_code unknown;
      if (entry.is_regular_file(unknown) && looks_like_trace(entry.path())) {
        files.push_back(entry.path());
      } else {
        ++others;
      }
    }
    if (files.size() == before) {
      std::vector<std::string_view> suffixes(kSuffixes.begin(), kSuffixes.end());
      throw Error(ErrorCode::kInvalidArgument,
                  {"a directory without traces",
                   quote(name),
                   std::to_string(others) + " other entries",
                   "files whose names end in " + join(suffixes),
                   "Name the files themselves if theirs end otherwise"});
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before),
              files.end(),
              [](const auto& a, const auto& b) { return natural_less(a.string(), b.string()); });
  }
  return files;
}

Trace read_traces(const std::vector<std::filesystem::path>& files,
                  const TraceReadOptions& options) {
  refuse_twice(files);
  Trace trace;
  std::vector<std::size_t> first_records;
  std::uint32_t order = 0;
  for (const std::filesystem::path& path : files) {
    first_records.push_back(trace.timeline.records.size());
    TraceBuilder builder(trace, options, path.string());
    read_file(path, builder, order);
    order += std::max(1U, trace.files.back().rank_count);
  }
  note_ranks_by_order(trace);
  put_together(trace, std::move(first_records));
  add_notes(trace, detail::match_buckets(trace.timeline));
  return trace;
}

Trace read_trace_text(std::string_view bytes,
                      std::string_view name,
                      const TraceReadOptions& options) {
  Trace trace;
  TraceBuilder builder(trace, options, std::string(name));
  const std::unique_ptr<Input> input = detail::memory_input(bytes);
  read_stream(*input, builder, 0);
  put_together(trace, {0});
  add_notes(trace, detail::match_buckets(trace.timeline));
  return trace;
}

}  // namespace stretto
