// SPDX-License-Identifier: Apache-2.0
#include "stretto/workload/dataset.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

constexpr std::string_view kInstallHelp =
    "Install it with 'apt-get install dataset-fashion-mnist', or name its directory with --data";
constexpr std::string_view kReinstallHelp =
    "Get the file again: 'apt-get install --reinstall dataset-fashion-mnist'";
/// Larger than any IDX file meant here (the training images are 47 MB), small enough that a
/// damaged or hostile file cannot fill the memory.
constexpr std::size_t kMostBytes = std::size_t{1} << 28;
constexpr std::byte kUnsignedByteType{0x08};

[[noreturn]] void fail(std::string_view where,
                       std::string message,
                       std::string found,
                       std::string expected) {
  throw Error(ErrorCode::kParse,
              {std::move(message),
               std::string(where),
               std::move(found),
               std::move(expected),
               std::string(kReinstallHelp)});
}

bool is_gzip(std::span<const std::byte> file) {
  return file.size() >= 2 && file[0] == std::byte{0x1f} && file[1] == std::byte{0x8b};
}

class Inflater {
 public:
  explicit Inflater(std::span<const std::byte> file) {
    // zlib never writes through next_in; the const-correct type needs ZLIB_CONST in every user.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): zlib reads it only
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(file.data()));
    stream_.avail_in = static_cast<uInt>(file.size());
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&stream_, kGzipOnly + MAX_WBITS) != Z_OK) {
      throw Error(ErrorCode::kBackend, "zlib cannot be initialised");
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  [[nodiscard]] std::vector<std::byte> run(std::string_view where) {
    std::vector<std::byte> out(std::max<std::size_t>(4096, std::size_t{stream_.avail_in} * 4));
    std::size_t done = 0;
    for (;;) {
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(out.size() - done);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done = out.size() - stream_.avail_out;
      if (status == Z_STREAM_END) {
        out.resize(done);
        return out;
      }
      if (status != Z_OK && status != Z_BUF_ERROR) {
        fail(where,
             "the gzip data is damaged",
             stream_.msg != nullptr ? stream_.msg : fmt::format("zlib error {}", status),
             "an undamaged file");
      }
      if (stream_.avail_out != 0) {
        fail(where,
             "the file is cut off",
             fmt::format("the end of the file after {} bytes of data", done),
             "the end mark of gzip");
      }
      if (out.size() >= kMostBytes) {
        fail(where, "the file is too large", fmt::format("more than {} bytes", done), "a data set");
      }
      out.resize(out.size() * 2);
    }
  }

 private:
  z_stream stream_ = {};
};

std::size_t big_endian_32(std::span<const std::byte> four) {
  std::size_t value = 0;
  for (const std::byte byte : four.first(4)) {
    value = (value << 8) | std::to_integer<std::size_t>(byte);
  }
  return value;
}

IdxArray parse_idx(std::span<const std::byte> bytes,
                   std::size_t dimensions,
                   std::string_view where) {
  const std::array magic = {
      std::byte{0}, std::byte{0}, kUnsignedByteType, static_cast<std::byte>(dimensions)};
  if (bytes.size() < magic.size() || !std::equal(magic.begin(), magic.end(), bytes.begin())) {
    const auto start = bytes.first(std::min(bytes.size(), magic.size()));
    std::string found = "an empty file";
    if (!start.empty()) {
      found = "first bytes";
      for (const std::byte byte : start) {
        found += fmt::format(" {:02x}", std::to_integer<unsigned>(byte));
      }
    }
    fail(where,
         "not an IDX file of the right kind",
         found,
         fmt::format("00 00 08 {:02x}: unsigned bytes, {} dimension(s)", dimensions, dimensions));
  }
  const std::size_t header = magic.size() + 4 * dimensions;
  if (bytes.size() < header) {
    fail(where,
         "the file is cut off in its header",
         fmt::format("{} bytes", bytes.size()),
         fmt::format("at least {}", header));
  }
  IdxArray array;
  std::size_t count = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    array.shape.push_back(big_endian_32(bytes.subspan(magic.size() + 4 * d)));
    // Keeps the product far from overflow: a factor is below 2^32.
    count = std::min(count * array.shape.back(), kMostBytes + 1);
  }
  if (bytes.size() - header != count) {
    fail(where,
         bytes.size() - header < count ? "the file is cut off" : "the file is longer than it says",
         fmt::format("{} bytes of data", bytes.size() - header),
         fmt::format("{} for shape {}", count, array.shape));
  }
  const auto* values = reinterpret_cast<const std::uint8_t*>(bytes.data() + header);
  array.values.assign(values, values + count);
  return array;
}

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    const std::error_code reason(errno, std::generic_category());
    throw Error(ErrorCode::kUnavailable,
                {"the Fashion-MNIST data set cannot be read",
                 path.string(),
                 reason.message(),
                 "",
                 std::string(kInstallHelp)});
  }
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(in.tellg(), 0));
  std::vector<std::byte> content(std::min(size, kMostBytes));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return content;
}

IdxArray load(const std::filesystem::path& directory,
              const std::string& name,
              std::size_t dimensions) {
  std::filesystem::path path = directory / (name + ".gz");
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) &&
      std::filesystem::exists(directory / name, ignored)) {
    path = directory / name;
  }
  return read_idx(read_file(path), dimensions, path.string());
}

Samples load_samples(const std::filesystem::path& directory,
                     const std::string& prefix,
                     const Dataset& dataset) {
  IdxArray images = load(directory, prefix + "-images-idx3-ubyte", 3);
  IdxArray labels = load(directory, prefix + "-labels-idx1-ubyte", 1);
  const std::string where = (directory / prefix).string();
  if (images.shape[1] * images.shape[2] != dataset.features) {
    fail(where,
         "the images have another size",
         fmt::format("{} x {}", images.shape[1], images.shape[2]),
         "28 x 28");
  }
  if (images.shape[0] != labels.shape[0] || labels.shape[0] == 0) {
    fail(where,
         "images and labels do not belong together",
         fmt::format("{} images and {} labels", images.shape[0], labels.shape[0]),
         "as many of each, and at least one");
  }
  const auto wrong = std::find_if(labels.values.begin(), labels.values.end(), [&](auto label) {
    return label >= dataset.classes;
  });
  if (wrong != labels.values.end()) {
    fail(where,
         fmt::format("label {} is out of range", wrong - labels.values.begin()),
         fmt::format("{}", *wrong),
         fmt::format("0 to {}", dataset.classes - 1));
  }
  return {std::move(images.values), std::move(labels.values)};
}

}  // namespace

IdxArray read_idx(std::span<const std::byte> file, std::size_t dimensions, std::string_view where) {
  if (is_gzip(file)) {
    return parse_idx(Inflater(file).run(where), dimensions, where);
  }
  return parse_idx(file, dimensions, where);
}

Dataset load_fashion_mnist(const std::filesystem::path& directory) {
  Dataset dataset{"Fashion-MNIST", 28UL * 28UL, 10, 0.2860F, 0.3530F, {}, {}};
  dataset.train = load_samples(directory, "train", dataset);
  dataset.test = load_samples(directory, "t10k", dataset);
  return dataset;
}

}  // namespace stretto
