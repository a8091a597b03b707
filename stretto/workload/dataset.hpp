// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stretto {

/// Labelled images, one after the other.
struct Samples {
  std::vector<std::uint8_t> pixels;  ///< size() x features.
  std::vector<std::uint8_t> labels;
  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
};

struct Dataset {
  std::string name;
  std::size_t features = 0;  ///< Pixels of one image.
  std::size_t classes = 0;
  float mean = 0.0F;  ///< Of a pixel, 0 to 1, over the training images;
  float deviation = 1.0F;
  Samples train;
  Samples test;
};

/// Where Debian's package dataset-fashion-mnist puts it.
inline constexpr std::string_view kFashionMnistDirectory = "/usr/share/datasets/fashion-mnist";

/// Fashion-MNIST (Xiao, Rasul, Vollgraf 2017, arXiv:1708.07747): 60 000 + 10 000 images of
/// 28 x 28, 10 classes. Reads the four IDX files, gzipped or not, under their usual names.
/// @throws Error kUnavailable when a file is missing, saying how to get it; kParse when one is cut
///         off, is something else or does not fit the others.
[[nodiscard]] Dataset load_fashion_mnist(const std::filesystem::path& directory);

/// An array of bytes in IDX format: LeCun's format of MNIST, big endian.
struct IdxArray {
  std::vector<std::size_t> shape;
  std::vector<std::uint8_t> values;
};
/// Reads `file`, the whole content of an IDX file of unsigned bytes with `dimensions` dimensions,
/// gzipped or not. `where` names it in errors.
/// @throws Error kParse.
[[nodiscard]] IdxArray read_idx(std::span<const std::byte> file,
                                std::size_t dimensions,
                                std::string_view where);

}  // namespace stretto
