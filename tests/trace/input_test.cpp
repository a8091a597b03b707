// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/input.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "stretto/base/error.hpp"
#include "stretto/trace/trace.hpp"
#include "trace/trace_text.hpp"

namespace stretto::detail {
namespace {

std::string gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  // zlib reads from it only; its type is older than const.
  // NOLINTNEXTLINE(*-const-cast,*-reinterpret-cast): zlib only reads it
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  EXPECT_EQ(ZSTD_isError(size), 0U);
  packed.resize(size);
  return packed;
}

struct Drained {
  std::string text;
  std::string fault;
};

Drained drain(Input& input, std::size_t room) {
  std::string block(room, '\0');
  Drained result;
  for (;;) {
    const std::size_t got = input.read(block);
    if (got == 0) {
      break;
    }
    result.text.append(block, 0, got);
  }
  result.fault = input.fault();
  return result;
}

Drained unpack(std::string_view packed, std::size_t room = 4096) {
  const std::unique_ptr<Input> input = memory_input(packed);
  return drain(*input, room);
}

/// Text that packs to a tenth, as traces do, and is different everywhere.
std::string some_text(std::size_t size) {
  std::string text;
  for (std::uint32_t i = 1; text.size() < size; ++i) {
    text += R"({"ph": "X", "name": "kernel )" + std::to_string(i * 2654435761U) + "\"},\n";
  }
  text.resize(size);
  return text;
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "stretto-trace-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return path_ / name;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Input, WhatItIsPackedInTheFirstBytesSay) {
  EXPECT_EQ(packing_of(gzip("x")), Packing::kGzip);
  EXPECT_EQ(packing_of(zstd("x")), Packing::kZstd);
  EXPECT_EQ(packing_of("{\"traceEvents\""), Packing::kNone);
  EXPECT_EQ(packing_of(""), Packing::kNone);
  EXPECT_EQ(packing_of("\x1f"), Packing::kNone);
}

TEST(Input, UnpacksAnySizeIntoAnyRoom) {
  // Sizes at which a block, a window or a peeked head ends exactly, too.
  for (const std::size_t size :
       {0U, 1U, 100U, 4096U, 16384U, 131072U, 524288U, 1048576U, 1500000U}) {
    const std::string text = some_text(size);
    for (const std::size_t room : {1U, 4096U, 16384U, 524288U, 1048576U}) {
      if (room == 1 && size > 4096) {
        continue;
      }
      SCOPED_TRACE(std::to_string(size) + " into " + std::to_string(room));
      for (const std::string& packed : {gzip(text), zstd(text), text}) {
        const Drained drained = unpack(packed, room);
        EXPECT_TRUE(drained.text == text);
        EXPECT_EQ(drained.fault, "");
      }
    }
  }
}

TEST(Input, SeveralMembersAreOneText) {
  const std::string a = some_text(5000);
  const std::string b = some_text(100);
  const std::string ba = b + a;
  const std::string zeros(512, '\0');
  for (const std::size_t room : {1U, 100U, 5000U, 1048576U}) {
    for (const std::string& packed : {gzip(a) + gzip(b) + gzip("") + gzip(a),
                                      zstd(a) + zstd(b) + zstd("") + zstd(a),
                                      gzip(a) + gzip(ba) + zeros}) {
      const Drained drained = unpack(packed, room);
      EXPECT_TRUE(drained.text == a + ba);
      EXPECT_EQ(drained.fault, "");
    }
  }
}

TEST(Input, CutOffAtEveryByteIsSaid) {
  const std::string text = some_text(3000);
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    // The first bytes say that it is packed; without them it is text.
    for (std::size_t cut = 4; cut < packed.size(); ++cut) {
      const Drained drained = unpack(std::string_view(packed).substr(0, cut));
      EXPECT_NE(drained.fault.find("cut off at byte " + std::to_string(cut)), std::string::npos)
          << cut << ": " << drained.fault;
      EXPECT_TRUE(text.starts_with(drained.text));
    }
  }
}

TEST(Input, AFlippedBitIsSaid) {
  const std::string text = some_text(3000);
  const std::string packed = gzip(text);
  // From behind the header on, whose flags and time mean nothing.
  for (std::size_t at = 10; at < packed.size(); ++at) {
    std::string flipped = packed;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
    const Drained drained = unpack(flipped);
    EXPECT_FALSE(drained.fault.empty()) << at;
    EXPECT_NE(drained.fault.find("of the packed file"), std::string::npos) << drained.fault;
  }
}

TEST(Input, SomethingElseBehindTheMembersIsSaid) {
  const std::string text = some_text(3000);
  const Drained drained = unpack(gzip(text) + "something else");
  EXPECT_TRUE(drained.text == text);
  EXPECT_NE(drained.fault.find("the gzip data is broken"), std::string::npos) << drained.fault;
}

TEST(Input, Files) {
  const Folder folder;
  const std::string text = some_text(3'000'000);
  for (const std::string& bytes : {text, gzip(text), zstd(text)}) {
    const std::unique_ptr<Input> input = open_input(folder.write("a.json", bytes));
    EXPECT_EQ(input->size(), bytes.size());
    const Drained drained = drain(*input, 100'000);
    EXPECT_TRUE(drained.text == text);
    EXPECT_EQ(drained.fault, "");
    EXPECT_EQ(input->taken(), bytes.size());
  }
  // Not read to its end: the thread that reads ahead must stop.
  const std::unique_ptr<Input> unread = open_input(folder.write("a.json.gz", gzip(text)));
  std::array<char, 10> few{};
  EXPECT_EQ(unread->read(few), few.size());
}

TEST(Input, FilesThatAreCutOff) {
  const Folder folder;
  const std::string text = some_text(3'000'000);
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    const std::string half = packed.substr(0, packed.size() / 2);
    const std::unique_ptr<Input> input = open_input(folder.write("half", half));
    const Drained drained = drain(*input, 100'000);
    EXPECT_TRUE(text.starts_with(drained.text));
    EXPECT_GT(drained.text.size(), text.size() / 4);
    EXPECT_NE(drained.fault.find("cut off at byte " + std::to_string(half.size())),
              std::string::npos)
        << drained.fault;
  }
}

TEST(Input, APipeIsReadOnce) {
  const Folder folder;
  const std::string text = some_text(300'000);
  for (const std::string& bytes : {text, gzip(text)}) {
    const std::filesystem::path path = folder.path() / "pipe";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(path, std::ios::binary) << bytes; });
    const std::unique_ptr<Input> input = open_input(path);
    EXPECT_EQ(input->size(), 0U);
    EXPECT_TRUE(drain(*input, 1000).text == text);
    writer.join();
    std::filesystem::remove(path);
  }
}

TEST(Input, WhatCannotBeOpenedIsNamed) {
  const Folder folder;
  for (const auto& [path, reason] : {std::pair(folder.path() / "missing.json", "No such file"),
                                     std::pair(folder.path(), "directory")}) {
    try {
      (void)open_input(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

// --- Whole traces, packed -----------------------------------------------------------------------

std::string trace_of(int kernels) {
  stretto::testing::KinetoText text;
  for (int i = 0; i < kernels; ++i) {
    text.kernel("gemm", std::int64_t{10} * i, 5, 7, i);
  }
  return text.text();
}

std::size_t kernels_of(const Trace& trace) {
  return static_cast<std::size_t>(std::count_if(
      trace.timeline.records.begin(), trace.timeline.records.end(), [](const Record& record) {
        return record.kind == RecordKind::kCompute;
      }));
}

TEST(PackedTrace, ReadsTheSame) {
  const Folder folder;
  const std::string text = trace_of(20'000);
  ASSERT_GT(text.size(), std::size_t{2} << 20U);
  for (const std::string& bytes : {text, gzip(text), zstd(text)}) {
    const Trace trace = read_traces({folder.write("a.json", bytes)});
    EXPECT_EQ(kernels_of(trace), 20'000U);
    EXPECT_EQ(trace.files[0].bytes, text.size());
    EXPECT_EQ(kernels_of(read_trace_text(bytes, "a.json")), 20'000U);
  }
}

TEST(PackedTrace, ExactlyAsLongAsTheHeadThatIsPeekedAt) {
  std::string text = trace_of(80);
  ASSERT_LT(text.size(), 16384U);
  text.insert(1, 16384 - text.size(), ' ');
  for (const std::string& bytes : {text, gzip(text), zstd(text)}) {
    EXPECT_EQ(kernels_of(read_trace_text(bytes, "a.json")), 80U);
  }
}

TEST(PackedTrace, CutInTheMiddleKeepsWhatCameBefore) {
  const Folder folder;
  const std::string text = trace_of(20'000);
  TraceReadOptions options;
  options.salvage = true;
  for (const std::string& packed : {gzip(text), zstd(text)}) {
    const std::filesystem::path path = folder.write("a", packed.substr(0, packed.size() / 2));
    try {
      (void)read_traces({path});
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("cut off"), std::string::npos) << error.what();
    }
    const Trace trace = read_traces({path}, options);
    ASSERT_TRUE(trace.files[0].fault);
    EXPECT_GT(kernels_of(trace), 5'000U);
    EXPECT_EQ(kernels_of(trace), trace.files[0].events);
    EXPECT_EQ(trace.files[0].lost, 1U);
  }
}

/// The text is whole, its check sum is not: that is beyond the last brace, and must be looked at.
TEST(PackedTrace, ABrokenTrailerIsSaid) {
  for (const std::size_t pad : {0U, 16384U, 1048576U}) {
    std::string text = trace_of(10);
    text.insert(1, pad > text.size() ? pad - text.size() : 0, ' ');
    const std::string packed = gzip(text);
    std::string wrong = packed;
    wrong[wrong.size() - 6] ^= 1;
    for (const std::string& bytes : {wrong, packed.substr(0, packed.size() - 1)}) {
      EXPECT_THROW((void)read_trace_text(bytes, "a.json.gz"), Error);
      TraceReadOptions options;
      options.salvage = true;
      const Trace trace = read_trace_text(bytes, "a.json.gz", options);
      EXPECT_TRUE(trace.files[0].fault);
      EXPECT_EQ(kernels_of(trace), 10U);
    }
  }
}

/// Highest resident memory so far.
std::int64_t peak_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) {
      return std::strtoll(line.c_str() + 6, nullptr, 10);
    }
  }
  return -1;
}

TEST(PackedTrace, ABombIsBounded) {
  constexpr std::size_t kBomb = std::size_t{50} << 20U;
  const Folder folder;
  for (const std::string head : {"", R"({"a": )", R"({"a": ")", R"({"a": {"b": [)", "[", "[,"}) {
    std::filesystem::path path;
    {
      const char fill = head.ends_with('"') ? 'a' : head.ends_with(',') ? ',' : '\0';
      path = folder.write("bomb.json.gz", gzip(head + std::string(kBomb, fill)));
    }
    // Peaks are of the whole process: the bomb in memory was the highest, so that a second one of
    // its size would show.
    const std::int64_t before = peak_kib();
    if (before < 0) {
      GTEST_SKIP() << "no VmHWM in /proc/self/status";
    }
    TraceReadOptions options;
    options.salvage = true;
    try {
      (void)read_traces({path}, options);
      ADD_FAILURE() << head;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kParse) << error.what();
    }
    EXPECT_LT(peak_kib() - before, 20'480) << head;
  }
}

}  // namespace
}  // namespace stretto::detail
