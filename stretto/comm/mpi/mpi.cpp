// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/mpi/mpi.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include <unistd.h>

#include "stretto/base/hash.hpp"
#include "stretto/comm/engine.hpp"
#include "stretto/comm/mpi/loader.hpp"
#include "stretto/comm/mpi/mpi_transport.hpp"

namespace stretto {
namespace {

using detail::Call;
using detail::check_mpi;
using detail::Engine;
using detail::MpiModule;
using detail::MpiTransport;
using detail::MpiWorld;

// Of the messages between ranks.
constexpr std::uint32_t kProtocolVersion = 1;

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiWorld world, const MpiOptions& options, const RankGroups& groups)
      : Communicator(world.rank, world.size),
        engine_(std::make_unique<MpiTransport>(std::move(world), options.timeout),
                {rank(), size(), options.timeout, false, groups}) {}

  [[nodiscard]] std::string_view backend() const noexcept override { return "mpi"; }
  [[nodiscard]] Ordering ordering() const noexcept override { return Ordering::kAddressed; }
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size) override {
    return engine_.transport().allocate(size);
  }
  void abort(const Error& reason, std::uint32_t step, std::uint32_t bucket) noexcept override {
    engine_.abort(reason, step, bucket);
  }

 private:
  Work start(const Call& call) override { return engine_.start(call); }

  Engine engine_;
};

/// What ranks tell each other when they meet.
struct Introduction {
  std::uint32_t protocol = kProtocolVersion;
  std::int32_t pid = 0;
  std::int64_t timeout_ns = 0;
  std::array<char, 64> host{};
};

/// Ranks by host, if that says anything: several hosts, and several ranks on one.
RankGroups groups_by_host(const std::vector<Introduction>& all) {
  std::vector<std::string> hosts;
  std::vector<int> group;
  for (const Introduction& each : all) {
    const std::string host = each.host.data();
    const auto found = std::find(hosts.begin(), hosts.end(), host);
    group.push_back(static_cast<int>(found - hosts.begin()));
    if (found == hosts.end()) {
      hosts.push_back(host);
    }
  }
  return hosts.size() > 1 && hosts.size() < all.size() ? RankGroups{group} : RankGroups{};
}

MpiWorld meet(const MpiModule& mpi, const MpiOptions& options, RankGroups& groups) {
  MpiWorld world;
  world.mpi = &mpi;
  check_mpi(mpi,
            mpi.duplicate_world(&world.communicator, &world.rank, &world.size),
            "make a communicator");
  Introduction mine;
  mine.pid = getpid();
  mine.timeout_ns = options.timeout.count();
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<Introduction> all(static_cast<std::size_t>(world.size));
  check_mpi(mpi,
            mpi.all_gather(world.communicator, &mine, sizeof mine, all.data()),
            "introduce the ranks to each other");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Introduction& each = all[rank];
    const std::string name = "rank " + std::to_string(rank) + " (pid " + std::to_string(each.pid) +
                             " on " + each.host.data() + ")";
    if (each.protocol != kProtocolVersion || each.timeout_ns != mine.timeout_ns) {
      const bool version = each.protocol != kProtocolVersion;
      throw Error(ErrorCode::kMismatch,
                  {version ? "ranks run different versions of Stretto"
                           : "ranks disagree about MpiOptions::timeout",
                   name,
                   version ? "protocol " + std::to_string(each.protocol)
                           : format(Seconds(Nanoseconds(each.timeout_ns))),
                   (version ? "protocol " + std::to_string(kProtocolVersion)
                            : format(Seconds(options.timeout))) +
                       ", as on rank " + std::to_string(world.rank),
                   "Start the same program with the same options on all hosts."});
    }
    world.names.push_back(name);
  }
  groups = groups_by_host(all);
  return world;
}

/// A launcher of one MPI and the library of another make many worlds of one rank each.
void check_size(const EnvironmentReader& read, const MpiModule& mpi, int size) {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const std::optional<std::string> value = read(name);
    if (value && !value->empty()) {
      if (*value != std::to_string(size)) {
        throw Error(ErrorCode::kUnavailable,
                    {"the launcher and the MPI library do not belong together",
                     mpi.name,
                     "a world of " + std::to_string(size),
                     std::string(name) + "=" + *value + " ranks",
                     "Use the mpirun of the MPI that STRETTO_MPI or the program names."});
      }
      return;
    }
  }
}

}  // namespace

std::unique_ptr<Communicator> connect_mpi(const MpiOptions& options) {
  const EnvironmentReader read = process_environment();
  const MpiModule& mpi = detail::load_mpi_module(read);
  if (mpi.is_finalized() != 0) {
    throw Error(ErrorCode::kUnavailable,
                {"MPI has been finalised in this process and cannot be used again",
                 "backend mpi",
                 "",
                 "",
                 "Connect before MPI_Finalize."});
  }
  int multiple = 0;
  check_mpi(mpi, mpi.initialize(&multiple), "be initialised");
  if (multiple == 0) {
    throw Error(ErrorCode::kUnavailable,
                {"MPI was initialised without support for threads",
                 mpi.name,
                 "less than MPI_THREAD_MULTIPLE",
                 "MPI_THREAD_MULTIPLE",
                 "Call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave initialising to Stretto. "
                 "If this MPI cannot do it, use another build of it."});
  }
  RankGroups groups;
  MpiWorld world = meet(mpi, options, groups);
  check_size(read, mpi, world.size);
  return std::make_unique<MpiCommunicator>(std::move(world), options, groups);
}

}  // namespace stretto
