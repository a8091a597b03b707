// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/rank_environment.hpp"

/// Backend `mpi`: ranks that mpirun (or srun) started, over point-to-point messages of Open MPI or
/// MPICH.
///
/// The library itself does not link MPI: a module for each MPI it was built with lies beside it and
/// is loaded at run time.
namespace stretto {

struct MpiOptions {
  /// Of every operation. A rank that gives no sign of life for a third of it while others wait is
  /// taken for lost.
  Nanoseconds timeout = std::chrono::seconds(30);
};

/// Joins the ranks of MPI_COMM_WORLD; all of them must call it. MPI is initialised with
/// MPI_THREAD_MULTIPLE unless the program has done so; then it is finalised at exit(), else it is
/// left alone. After a failure it is not finalised at all, for that would wait for ranks that may
/// be gone: mpirun then says that a process ended without it.
/// @throws Error kUnavailable when this process was not started as a rank of an MPI job, the module
///         for its MPI is missing, or MPI was initialised without MPI_THREAD_MULTIPLE.
[[nodiscard]] std::unique_ptr<Communicator> connect_mpi(const MpiOptions& options = {});

/// Whether mpirun, or something like it, started this process.
[[nodiscard]] bool started_by_mpi(const EnvironmentReader& read);

namespace detail {

/// Which module this process needs: `openmpi`, `mpich`, or a file. STRETTO_MPI decides, then an MPI
/// library that the program has loaded (`loaded_version`: what it says of itself), then what the
/// launcher left in the environment. @throws Error kUnavailable when nothing tells, or STRETTO_MPI
/// names no MPI.
[[nodiscard]] std::string choose_mpi(const EnvironmentReader& read,
                                     const std::string& loaded_version);

/// Where a module may lie, given the file of the program or library that Stretto is in.
[[nodiscard]] std::vector<std::string> mpi_module_paths(const std::string& choice,
                                                        const std::string& beside);

}  // namespace detail
}  // namespace stretto
