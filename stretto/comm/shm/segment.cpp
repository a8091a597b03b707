// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/shm/segment.hpp"

#include <cerrno>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "stretto/base/error.hpp"

namespace stretto::detail {
namespace {

[[noreturn]] void unavailable(const std::string& what, std::size_t bytes) {
  const int code = errno;
  throw Error(
      ErrorCode::kUnavailable,
      {"cannot " + what + ": " + std::generic_category().message(code),
       "shared memory",
       std::to_string(bytes) + " bytes asked for",
       "",
       "Lower ShmOptions::arena_capacity, or raise the limit on address space (ulimit -v)."});
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) {
      close(fd_);
    }
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

FileDescriptor create_segment(const SegmentLayout& layout) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < layout.total_bytes()) {
    errno = EFBIG;  // the system would kill this process instead of saying so
    unavailable("size shared memory under the limit on file sizes (ulimit -f)",
                layout.total_bytes());
  }
  FileDescriptor file(memfd_create("stretto", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) {
    unavailable("create shared memory", layout.total_bytes());
  }
  if (ftruncate(file.get(), static_cast<off_t>(layout.total_bytes())) != 0) {
    unavailable("size shared memory", layout.total_bytes());
  }
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    unavailable("seal shared memory", layout.total_bytes());
  }
  return file;
}

SegmentMap::SegmentMap(const SegmentLayout& layout, std::span<const FileDescriptor> files) {
  const std::size_t ranks = files.empty() ? layout.ranks : files.size();
  // Room for a segment plus a stagger of its own, so that segment r begins r pages off a common
  // grid.
  constexpr std::size_t kGrid = std::size_t{1} << 28;
  const std::size_t stride =
      (layout.total_bytes() + ranks * kPageBytes + kGrid - 1) / kGrid * kGrid;
  reserved_bytes_ = stride * ranks;
  void* const reserved =
      mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) {
    unavailable("reserve address space", reserved_bytes_);
  }
  reserved_ = static_cast<std::byte*>(reserved);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::byte* const at = reserved_ + rank * stride + rank * kPageBytes;
    const int flags = files.empty() ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED
                                    : MAP_SHARED | MAP_NORESERVE | MAP_FIXED;
    if (mmap(at,
             layout.total_bytes(),
             PROT_READ | PROT_WRITE,
             flags,
             files.empty() ? -1 : files[rank].get(),
             0) == MAP_FAILED) {
      munmap(reserved_, reserved_bytes_);
      unavailable("map shared memory", layout.total_bytes());
    }
    views_.push_back({at, layout});
  }
}

SegmentMap::~SegmentMap() {
  munmap(reserved_, reserved_bytes_);
}

Bytes host_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? Bytes(static_cast<std::int64_t>(pages) * page)
                               : Bytes(std::int64_t{1} << 30);
}

}  // namespace stretto::detail
