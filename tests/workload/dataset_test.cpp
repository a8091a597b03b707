// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "stretto/base/error.hpp"
#include "workload/ranks.hpp"

namespace stretto {
namespace {

using Buffer = std::vector<std::byte>;

Buffer idx(const std::vector<std::uint32_t>& shape, std::size_t values, std::uint8_t value = 0) {
  Buffer file = {std::byte{0}, std::byte{0}, std::byte{8}, static_cast<std::byte>(shape.size())};
  for (const std::uint32_t extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      file.push_back(static_cast<std::byte>((extent >> shift) & 0xffU));
    }
  }
  for (std::size_t i = 0; i < values; ++i) {
    file.push_back(static_cast<std::byte>(i == 0 ? value : i & 0x7U));
  }
  return file;
}

Buffer gzip(const Buffer& plain) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  Buffer in = plain;
  Buffer out(deflateBound(&stream, in.size()));
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(ReadIdx, GivesShapeAndValuesPlainAndGzipped) {
  const Buffer plain = idx({3, 2, 2}, 12, 200);
  for (const Buffer& file : {plain, gzip(plain)}) {
    const IdxArray array = read_idx(file, 3, "f");
    EXPECT_EQ(array.shape, (std::vector<std::size_t>{3, 2, 2}));
    ASSERT_EQ(array.values.size(), 12U);
    EXPECT_EQ(array.values[0], 200);
    EXPECT_EQ(array.values[11], 3);
  }
}

TEST(ReadIdx, EveryCutOffFileIsAParseErrorThatNamesTheFile) {
  const Buffer plain = idx({2, 3}, 6);
  for (const Buffer& file : {plain, gzip(plain)}) {
    for (std::size_t length = 0; length < file.size(); ++length) {
      const Buffer cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length));
      const Error error = error_of([&] { (void)read_idx(cut, 2, "images.gz"); });
      EXPECT_EQ(error.code(), ErrorCode::kParse) << length;
      EXPECT_EQ(error.detail().where, "images.gz");
      EXPECT_FALSE(error.detail().found.empty());
    }
  }
}

TEST(ReadIdx, RejectsOtherKindsAndSizes) {
  const auto code_of = [](const Buffer& file, std::size_t dimensions) {
    return error_of([&] { (void)read_idx(file, dimensions, "f"); }).code();
  };
  EXPECT_EQ(code_of(idx({6}, 6), 2), ErrorCode::kParse);
  EXPECT_EQ(code_of(idx({6}, 7), 1), ErrorCode::kParse);
  EXPECT_EQ(code_of(idx({0xffffffffU, 0xffffffffU, 0xffffffffU}, 5), 3), ErrorCode::kParse);
  Buffer floats = idx({6}, 6);
  floats[2] = std::byte{0x0d};
  EXPECT_EQ(code_of(floats, 1), ErrorCode::kParse);
  Buffer damaged = gzip(idx({64}, 64));
  damaged[damaged.size() / 2] ^= std::byte{0xff};
  EXPECT_EQ(code_of(damaged, 1), ErrorCode::kParse);
}

class FashionMnist : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(testing::TempDir()) /
                 ("stretto_dataset_" +
                  std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::create_directories(directory_);
    write("train-images-idx3-ubyte", idx({4, 28, 28}, 4UL * 28 * 28));
    write("train-labels-idx1-ubyte", idx({4}, 4));
    write("t10k-images-idx3-ubyte", idx({2, 28, 28}, 2UL * 28 * 28));
    write("t10k-labels-idx1-ubyte", idx({2}, 2));
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const Buffer& content) const {
    std::ofstream(directory_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
  }
  [[nodiscard]] Error error() const {
    return error_of([&] { (void)load_fashion_mnist(directory_); });
  }

  std::filesystem::path directory_;  // NOLINT: a fixture
};

TEST_F(FashionMnist, LoadsPlainFiles) {
  const Dataset dataset = load_fashion_mnist(directory_);
  EXPECT_EQ(dataset.train.size(), 4U);
  EXPECT_EQ(dataset.test.size(), 2U);
  EXPECT_EQ(dataset.train.pixels.size(), 4U * dataset.features);
}

TEST_F(FashionMnist, AMissingFileSaysHowToGetIt) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  EXPECT_EQ(error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(error().detail().help.find("apt-get install dataset-fashion-mnist"), std::string::npos);
  EXPECT_NE(error().detail().where.find("t10k-labels-idx1-ubyte"), std::string::npos);
}

TEST_F(FashionMnist, FilesThatDoNotBelongTogetherAreRejected) {
  write("train-labels-idx1-ubyte", idx({3}, 3));
  EXPECT_EQ(error().code(), ErrorCode::kParse);
}

TEST_F(FashionMnist, ALabelOutOfRangeIsRejected) {
  write("t10k-labels-idx1-ubyte", idx({2}, 2, 10));
  EXPECT_EQ(error().code(), ErrorCode::kParse);
  EXPECT_EQ(error().detail().found, "10");
}

TEST_F(FashionMnist, ImagesOfAnotherSizeAreRejected) {
  write("t10k-images-idx3-ubyte", idx({2, 32, 32}, 2UL * 32 * 32));
  EXPECT_EQ(error().detail().found, "32 x 32");
}

}  // namespace
}  // namespace stretto
