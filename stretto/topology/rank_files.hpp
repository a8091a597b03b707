// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/topology/topology.hpp"

namespace stretto {

/// What tells a launcher where ranks go.
enum class RankFile : std::uint8_t {
  kRankMap,     ///< Stretto's `--rank-map`: the new rank of the process that has rank i now.
  kRankfile,    ///< Open MPI: `mpirun --rankfile FILE`.
  kSlurm,       ///< Host of each task in order, for `srun --distribution=arbitrary`.
  kTorchrun,    ///< One torchrun line for each host, in order.
  kCuda,        ///< CUDA_VISIBLE_DEVICES of each host, near devices beside each other.
  kPyTorchJob,  ///< Kubeflow: a Worker pod for each host.
  kMpiJob,      ///< Kubeflow's MPI operator, v2beta1.
};
[[nodiscard]] std::string_view to_string(RankFile kind) noexcept;
/// @throws Error kInvalidArgument listing the names.
[[nodiscard]] RankFile rank_file_from_string(std::string_view name);

/// Text for that launcher that puts rank r at place `place_of_rank[r]`.
/// @throws Error kInvalidArgument for launchers that number ranks host by host (torchrun,
///         PyTorchJob, MPIJob) when this order does not.
[[nodiscard]] std::string rank_file(RankFile kind,
                                    const Topology& topology,
                                    const std::vector<int>& place_of_rank);

}  // namespace stretto
