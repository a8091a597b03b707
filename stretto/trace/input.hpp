// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// Bytes of a trace file, whatever it is packed in. Private to trace/: not installed.
namespace stretto::detail {

enum class Packing : std::uint8_t { kNone, kGzip, kZstd };

/// What the first bytes of a file say; names mean nothing.
[[nodiscard]] Packing packing_of(std::string_view head) noexcept;

/// A sequence of bytes, read once from front to back.
class Input {
 public:
  Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  virtual ~Input() = default;

  /// Fills at most `room`; 0 at the end, and at the place where the packed data is broken.
  [[nodiscard]] virtual std::size_t read(std::span<char> room) = 0;
  /// Why read() stopped before the end of what was packed, with the byte offset in the file; empty
  /// when the data was whole.
  [[nodiscard]] virtual std::string fault() const { return {}; }
  /// Bytes of the file (packed) that were taken so far.
  [[nodiscard]] virtual std::uint64_t taken() const = 0;
  /// Bytes of the file (packed); 0 if it is not known, as for a pipe.
  [[nodiscard]] virtual std::uint64_t size() const = 0;
};

/// Opens a file, unpacking on a thread of its own if it is packed.
/// @throws Error kUnavailable when it cannot be opened; read() throws the same when the disk fails.
[[nodiscard]] std::unique_ptr<Input> open_input(const std::filesystem::path& path);

/// Bytes in memory, not copied, unpacked if they are packed.
[[nodiscard]] std::unique_ptr<Input> memory_input(std::string_view bytes);

/// All that is left of it. What is too large for that is no input of a reader that needs it whole.
[[nodiscard]] std::string read_all(Input& input);

}  // namespace stretto::detail
