// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stretto/comm/communicator.hpp"
#include "stretto/comm/rank_environment.hpp"
#include "stretto/comm/shm/shm.hpp"

namespace stretto {

/// Joins the job this process was started in (by `stretto run`, torchrun, mpirun, srun or Horovod;
/// see detect_rank_environment). A process nobody launched is a world of one. Ranks on one host
/// meet in shared memory; on several, if mpirun or srun started them, by MPI (connect_mpi, which
/// takes only the time-out of `options`).
/// @throws Error as detect_rank_environment, connect_shm and connect_mpi do.
[[nodiscard]] std::unique_ptr<Communicator> connect(const ShmOptions& options = {});
[[nodiscard]] std::unique_ptr<Communicator> connect(const RankEnvironment& environment,
                                                    const ShmOptions& options = {});

}  // namespace stretto
