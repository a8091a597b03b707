// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stretto {

/// Reads one environment variable; nothing if it is not set.
using EnvironmentReader = std::function<std::optional<std::string>(const std::string&)>;
[[nodiscard]] EnvironmentReader process_environment();

/// Which rank this process is, and who said so.
struct RankEnvironment {
  std::string launcher = "none";  ///< `stretto`, `torchrun`, `openmpi`, `mvapich`, `pmix`, `pmi`,
                                  ///< `flux`, `slurm`, `horovod` or `none` (one process).
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< Where the launcher does not say: as if all were on one host.
  int local_world_size = 1;
  std::string rendezvous;  ///< STRETTO_RENDEZVOUS, or `$TMPDIR/stretto-UID-HASH`, derived from the
                           ///< job's own variables; nobody has created it yet. Empty for one
                           ///< process.
  std::vector<std::string> passed_over;  ///< Other launchers whose variables were seen, in words.
};

/// A pure function of the environment (and of the user; under MPICH, whose variables do not name
/// the job, also of the parent process). Precedence: STRETTO_*, torchrun, Open MPI, Horovod,
/// MVAPICH, PMIx, PMI, Flux, Slurm (only in a step with more than one task), one process. An empty
/// variable counts as not set. Kubeflow's RANK and WORLD_SIZE, which count pods, are passed over.
/// @throws Error kInvalidArgument when the winning family is half set or not a number, naming the
///         variables set and missing and what to do; or when nothing tells the job from another.
[[nodiscard]] RankEnvironment detect_rank_environment(const EnvironmentReader& read);

}  // namespace stretto
