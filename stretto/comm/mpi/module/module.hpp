// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The seam between Stretto and an MPI library: one table of plain C functions, in a small shared
/// module per MPI that is loaded at run time. So the library itself needs no MPI, and one build
/// serves several whose types and handles differ (a request is a pointer in Open MPI, an int in
/// MPICH).
namespace stretto::detail {

/// A module with another number is not used.
inline constexpr std::uint32_t kMpiModuleVersion = 1;
inline constexpr const char* kMpiModuleEntry = "stretto_mpi_module";
inline constexpr int kMpiAnyRank = -1;

extern "C" {

/// Functions return 0 or an MPI error code. `communicator` is what duplicate_world() gave.
/// `requests` points to `request_bytes` of memory per request, which may be moved.
struct MpiModule {
  std::uint32_t version;
  std::size_t request_bytes;
  const char* name;  ///< `openmpi` or `mpich`.

  /// Whether MPI has been finalised in this process: it cannot come back.
  int (*is_finalized)();
  /// Initialises MPI with MPI_THREAD_MULTIPLE unless somebody has already; then it is finalised at
  /// exit(), and otherwise it is not ours to finalise. `*multiple` is whether any thread may call.
  int (*initialize)(int* multiple);
  /// From now on exit() does not finalise MPI, which waits for all ranks and so for lost ones.
  void (*leave_unfinalized)();

  /// A communicator of its own over MPI_COMM_WORLD that reports errors instead of aborting.
  int (*duplicate_world)(void** communicator, int* rank, int* size);
  void (*free_communicator)(void* communicator);
  /// Blocks until all ranks have called it.
  int (*all_gather)(void* communicator, const void* mine, std::size_t bytes, void* all);

  int (*send)(
      void* communicator, const void* data, std::size_t bytes, int to, int tag, void* request);
  int (*receive)(
      void* communicator, void* data, std::size_t bytes, int from, int tag, void* request);
  void (*clear)(void* request);
  /// Gives up a receive that has not begun. Its memory is MPI's until test_some() says it is over.
  void (*cancel)(void* request);
  /// Makes progress; writes the positions of requests that are over, which are cleared, to
  /// `finished`. On an error `*failed` is the position of a request that failed, or -1.
  int (*test_some)(void* communicator,
                   void* requests,
                   int count,
                   int* finished,
                   int* finished_count,
                   int* failed);

  /// MPI's own words.
  void (*error_text)(int code, char* text, std::size_t capacity);
  void (*library_version)(char* text, std::size_t capacity);
};

using MpiModuleEntry = const MpiModule* (*)();
}

}  // namespace stretto::detail
