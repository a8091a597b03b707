// SPDX-License-Identifier: Apache-2.0
#include "stretto/trace/input.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "stretto/base/error.hpp"

namespace stretto::detail {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{512} << 10U;

class FileInput final : public Input {
 public:
  explicit FileInput(const std::filesystem::path& path)
      : path_(path.string()), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
      fail("a trace cannot be opened");
    }
    struct stat status {};
    if (fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
      close(descriptor_);
      errno = EISDIR;
      fail("a trace cannot be read");
    }
    size_ = S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0;
    (void)posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (head_size_ < head_.size()) {
      const std::size_t got = take(std::span(head_).subspan(head_size_));
      if (got == 0) {
        break;
      }
      head_size_ += got;
    }
  }
  FileInput(const FileInput&) = delete;
  FileInput& operator=(const FileInput&) = delete;
  ~FileInput() override { close(descriptor_); }

  /// The first bytes; read() gives them again, so that a pipe can be looked at.
  [[nodiscard]] std::string_view head() const { return {head_.data(), head_size_}; }

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    if (given_ < head_size_) {
      const std::size_t size = std::min(room.size(), head_size_ - given_);
      std::memcpy(room.data(), head_.data() + given_, size);
      given_ += size;
      return size;
    }
    return take(room);
  }
  [[nodiscard]] std::uint64_t taken() const override { return taken_; }
  [[nodiscard]] std::uint64_t size() const override { return size_; }

 private:
  [[nodiscard]] std::size_t take(std::span<char> room) {
    for (;;) {
      const ssize_t got = ::read(descriptor_, room.data(), room.size());
      if (got >= 0) {
        taken_ += static_cast<std::uint64_t>(got);
        return static_cast<std::size_t>(got);
      }
      if (errno != EINTR) {
        fail("a trace cannot be read");
      }
    }
  }
  [[noreturn]] void fail(std::string message) const {
    throw Error(ErrorCode::kInvalidArgument,
                {std::move(message),
                 path_,
                 std::error_code(errno, std::generic_category()).message(),
                 "a file that can be read",
                 {}});
  }

  std::string path_;
  int descriptor_;
  std::uint64_t taken_ = 0;
  std::uint64_t size_ = 0;
  std::array<char, 4> head_{};
  std::size_t head_size_ = 0;
  std::size_t given_ = 0;
};

class MemoryInput final : public Input {
 public:
  explicit MemoryInput(std::string_view bytes) : bytes_(bytes) {}

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    const std::size_t size = std::min(room.size(), bytes_.size() - taken_);
    std::memcpy(room.data(), bytes_.data() + taken_, size);
    taken_ += size;
    return size;
  }
  [[nodiscard]] std::uint64_t taken() const override { return taken_; }
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }

 private:
  std::string_view bytes_;
  std::size_t taken_ = 0;
};

/// What gzip and zstd have in common: packed bytes in, a fault that ends them.
class PackedInput : public Input {
 public:
  explicit PackedInput(std::unique_ptr<Input> packed)
      : packed_(std::move(packed)), block_(kBlockBytes) {}

  [[nodiscard]] std::string fault() const override { return fault_; }
  [[nodiscard]] std::uint64_t taken() const override { return packed_->taken(); }
  [[nodiscard]] std::uint64_t size() const override { return packed_->size(); }

 protected:
  /// The next packed bytes, after all earlier ones were used; empty at the end of the file.
  [[nodiscard]] std::span<char> next_block() {
    return std::span(block_).first(packed_->read(block_));
  }
  /// `unused`: packed bytes in hand that come after the fault.
  void set_fault(std::string_view what, std::size_t unused) {
    fault_ = std::string(what) + " at byte " + std::to_string(packed_->taken() - unused) +
             " of the packed file";
  }

 private:
  std::unique_ptr<Input> packed_;
  std::vector<char> block_;
  std::string fault_;
};

class GzipInput final : public PackedInput {
 public:
  explicit GzipInput(std::unique_ptr<Input> packed) : PackedInput(std::move(packed)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) {
      throw Error(ErrorCode::kUnavailable, "out of memory for unpacking");
    }
  }
  GzipInput(const GzipInput&) = delete;
  GzipInput& operator=(const GzipInput&) = delete;
  ~GzipInput() override { inflateEnd(&stream_); }

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    stream_.next_out = reinterpret_cast<Bytef*>(room.data());
    stream_.avail_out = static_cast<uInt>(room.size());
    while (stream_.avail_out != 0 && !over_) {
      if (stream_.avail_in == 0) {
        const std::span<char> block = next_block();
        if (block.empty()) {
          over_ = true;
          if (inside_) {
            set_fault("the gzip data is cut off", 0);
          }
          break;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(block.data());
        stream_.avail_in = static_cast<uInt>(block.size());
      }
      advance();
    }
    return room.size() - stream_.avail_out;
  }

 private:
  void advance() {
    if (!inside_) {
      // Members may follow one another; so may zeros that fill a block of a tape.
      if (members_ > 0 && *stream_.next_in == 0) {
        ++stream_.next_in;
        --stream_.avail_in;
        return;
      }
      if (members_ > 0) {
        inflateReset(&stream_);
      }
      inside_ = true;
      ++members_;
    }
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      inside_ = false;
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      over_ = true;
      set_fault(stream_.msg != nullptr ? std::string("the gzip data is broken: ") + stream_.msg
                                       : std::string("the gzip data is broken"),
                stream_.avail_in);
    }
  }

  z_stream stream_{};
  bool inside_ = false;  // a member is begun and not ended
  bool over_ = false;
  int members_ = 0;
};

class ZstdInput final : public PackedInput {
 public:
  explicit ZstdInput(std::unique_ptr<Input> packed)
      : PackedInput(std::move(packed)), stream_(ZSTD_createDStream()) {
    if (stream_ == nullptr) {
      throw Error(ErrorCode::kUnavailable, "out of memory for unpacking");
    }
  }
  ZstdInput(const ZstdInput&) = delete;
  ZstdInput& operator=(const ZstdInput&) = delete;
  ~ZstdInput() override { ZSTD_freeDStream(stream_); }

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    ZSTD_outBuffer out{room.data(), room.size(), 0};
    while (out.pos != out.size && !over_) {
      if (in_.pos == in_.size && !more_to_come_) {
        const std::span<char> block = next_block();
        if (block.empty()) {
          over_ = true;
          if (inside_) {
            set_fault("the zstd data is cut off", 0);
          }
          break;
        }
        in_ = {block.data(), block.size(), 0};
      }
      const std::size_t before = out.pos;
      const std::size_t result = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(result) != 0U) {
        over_ = true;
        set_fault(std::string("the zstd data is broken: ") + ZSTD_getErrorName(result),
                  in_.size - in_.pos);
        break;
      }
      // It may hold back output for which there was no room; at the end of a frame it has none, and
      // would take the next call for the begin of another.
      inside_ = result != 0;
      more_to_come_ = inside_ && out.pos == out.size && out.pos != before;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;
  bool more_to_come_ = false;
  bool over_ = false;
};

/// Reads ahead on a thread, a few blocks.
class AheadInput final : public Input {
 public:
  explicit AheadInput(std::unique_ptr<Input> source)
      : source_(std::move(source)), size_(source_->size()), thread_([this] { run(); }) {}
  AheadInput(const AheadInput&) = delete;
  AheadInput& operator=(const AheadInput&) = delete;
  ~AheadInput() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  [[nodiscard]] std::size_t read(std::span<char> room) override {
    if (used_ == block_.size()) {
      std::unique_lock lock(mutex_);
      if (!block_.empty()) {
        free_.push_back(std::move(block_));
        changed_.notify_all();
      }
      used_ = 0;
      block_.clear();
      changed_.wait(lock, [&] { return !full_.empty() || over_; });
      if (full_.empty()) {
        if (failure_) {
          std::rethrow_exception(failure_);
        }
        return 0;
      }
      block_ = std::move(full_.front());
      full_.pop_front();
    }
    const std::size_t size = std::min(room.size(), block_.size() - used_);
    std::memcpy(room.data(), block_.data() + used_, size);
    used_ += size;
    return size;
  }
  [[nodiscard]] std::string fault() const override {
    const std::lock_guard lock(mutex_);
    return over_ && full_.empty() ? fault_ : std::string();
  }
  [[nodiscard]] std::uint64_t taken() const override {
    return taken_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t size() const override { return size_; }

 private:
  static constexpr std::size_t kBlocks = 4;

  void run() {
    try {
      fill();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  void fill() {
    for (std::size_t made = 0;;) {
      std::vector<char> block;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !free_.empty() || made < kBlocks; });
        if (stop_) {
          return;
        }
        if (!free_.empty()) {
          block = std::move(free_.back());
          free_.pop_back();
        } else {
          ++made;
        }
      }
      block.resize(kBlockBytes);
      std::size_t size = 0;
      while (size < block.size()) {
        const std::size_t got = source_->read(std::span(block).subspan(size));
        if (got == 0) {
          break;
        }
        size += got;
      }
      taken_.store(source_->taken(), std::memory_order_relaxed);
      const bool last = size < block.size();
      block.resize(size);
      const std::lock_guard lock(mutex_);
      if (!block.empty()) {
        full_.push_back(std::move(block));
      }
      if (last) {
        fault_ = source_->fault();
        return;
      }
      changed_.notify_all();
    }
  }

  std::unique_ptr<Input> source_;
  std::uint64_t size_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<char>> full_;
  std::vector<std::vector<char>> free_;
  std::string fault_;
  std::exception_ptr failure_;
  bool over_ = false;
  bool stop_ = false;
  std::atomic<std::uint64_t> taken_{0};
  std::vector<char> block_;  // the reader's
  std::size_t used_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

std::unique_ptr<Input> unpacked(std::unique_ptr<Input> input, Packing packing) {
  switch (packing) {
    case Packing::kGzip:
      return std::make_unique<GzipInput>(std::move(input));
    case Packing::kZstd:
      return std::make_unique<ZstdInput>(std::move(input));
    case Packing::kNone:
      break;
  }
  return input;
}

}  // namespace

Packing packing_of(std::string_view head) noexcept {
  if (head.starts_with("\x1f\x8b")) {
    return Packing::kGzip;
  }
  if (head.starts_with("\x28\xb5\x2f\xfd")) {
    return Packing::kZstd;
  }
  return Packing::kNone;
}

std::unique_ptr<Input> open_input(const std::filesystem::path& path) {
  auto file = std::make_unique<FileInput>(path);
  const Packing packing = packing_of(file->head());
  std::unique_ptr<Input> input = unpacked(std::move(file), packing);
  return packing == Packing::kNone ? std::move(input)
                                   : std::make_unique<AheadInput>(std::move(input));
}

std::unique_ptr<Input> memory_input(std::string_view bytes) {
  return unpacked(std::make_unique<MemoryInput>(bytes), packing_of(bytes));
}

std::string read_all(Input& input) {
  constexpr std::size_t kFirst = std::size_t{64} << 10U;
  std::string text(kFirst, '\0');
  std::size_t size = 0;
  while (const std::size_t got = input.read(std::span(text).subspan(size))) {
    size += got;
    if (size == text.size()) {
      text.resize(2 * size);
    }
  }
  text.resize(size);
  return text;
}

}  // namespace stretto::detail
