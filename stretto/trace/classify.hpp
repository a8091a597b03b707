// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stretto/data/collective.hpp"

namespace stretto {

/// Why a device kernel counts as communication.
struct KernelClass {
  bool communication = false;
  std::string library;  ///< `NCCL`, `RCCL`, `custom all-reduce`...; empty for compute.
  std::string rule;     ///< The part of the name that decided, or the user's expression.
  Collective collective = Collective::kNone;  ///< As far as the name tells.
};

/// Rules that tell communication kernels and host rows from others by name. The built-in ones are
/// a table (classify.cpp): NCCL, RCCL, HCCL, oneCCL, MSCCL, NVSHMEM, DeepEP, symmetric-memory and
/// custom all-reduce kernels, matched anywhere in the name without regard to case. Metadata of the
/// trace (a kernel that carries a collective's name) overrules them; that is the readers' part.
class CommunicationRules {
 public:
  CommunicationRules();

  /// An extended regular expression (ECMAScript), searched for in the name without regard to case.
  /// @throws Error kInvalidArgument naming the expression.
  void add_expression(const std::string& expression);

  /// A file of rules: one expression per line, empty lines and those that begin with # aside.
  /// @throws Error kParse with the line.
  void add_file(std::string_view text, std::string_view where);

  [[nodiscard]] KernelClass classify(std::string_view kernel) const;

  /// `gloo:all_reduce`, `nccl:broadcast`, `c10d::allreduce_`...: the host's side of a collective.
  [[nodiscard]] static bool is_host_communication(std::string_view name) noexcept;

  /// What a reader looked for, for the message that nothing was found.
  [[nodiscard]] static std::string looked_for();

 private:
  struct Expressions;
  std::shared_ptr<const Expressions> expressions_;  ///< The user's; shared by copies.
};

/// Which collective a name is of: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`, `_allgather_base`,
/// `all_to_all`... kNone if it does not say.
[[nodiscard]] Collective collective_of_name(std::string_view name);

/// Bytes of one element of a type as PyTorch (`Float`, `BFloat16`) or NCCL (`ncclFloat32`) names
/// it; 0 if unknown.
[[nodiscard]] std::uint32_t element_bytes_of(std::string_view dtype) noexcept;

}  // namespace stretto
