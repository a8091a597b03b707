// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stretto/simulate/validate.hpp"

namespace stretto {

/// train_pytorch_ddp_bucket.csv: seconds per iteration of PyTorch DDP on V100s, 25 against 1 MiB
/// buckets, on 2 to 16 of them. The 1-GPU row of each cap gives the compute, bucket handling
/// included; the others are predicted by simulate() with ddp_plan(), on nodes with the curves of
/// allreduce_lut_v100.csv and 4 x 100 Gbit/s between them, compute slowed as in
/// galvatron_overlap_coefficient.csv. 75th percentiles, which both caps have. The note says how
/// often the quicker cap was found. Only models with a table (models/) are tried: ResNet-50.
/// @throws Error kParse for a file that is there and not as expected.
[[nodiscard]] std::vector<ValidationRow> validate_buckets(const std::string& directory);

}  // namespace stretto
