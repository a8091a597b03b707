// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/shm/shm.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "stretto/base/hash.hpp"
#include "stretto/comm/engine.hpp"
#include "stretto/comm/shm/rendezvous.hpp"
#include "stretto/comm/shm/segment.hpp"
#include "stretto/comm/shm/shm_transport.hpp"

namespace stretto {
namespace {

using detail::Call;
using detail::create_segment;
using detail::Engine;
using detail::FileDescriptor;
using detail::host_memory;
using detail::kMaxLevels;
using detail::kPageBytes;
using detail::Meeting;
using detail::SegmentLayout;
using detail::SegmentMap;
using detail::ShmTransport;
using detail::ShmWorld;

RankGroups groups_of(const ShmOptions& options, int size) {
  if (!options.groups.empty()) {
    for (const std::vector<int>& level : options.groups) {
      if (level.size() != static_cast<std::size_t>(size)) {
        throw Error(ErrorCode::kInvalidArgument,
                    {"a level of groups does not speak of every rank",
                     "ShmOptions::groups",
                     std::to_string(level.size()) + " ranks",
                     std::to_string(size),
                     ""});
      }
    }
    return options.groups;
  }
  if (!options.emulate) {
    return {};
  }
  RankGroups groups = options.emulate->groups();
  if (!options.places.empty()) {
    for (std::vector<int>& level : groups) {
      const std::vector<int> of_places = level;
      for (std::size_t rank = 0; rank < level.size(); ++rank) {
        level[rank] = of_places[static_cast<std::size_t>(options.places[rank])];
      }
    }
  }
  return groups;
}

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(ShmWorld world, int size, const ShmOptions& options)
      : Communicator(world.rank, size),
        engine_(std::make_unique<ShmTransport>(std::move(world), options.emulate, options.places),
                {rank(),
                 size,
                 options.timeout,
                 options.emulate.has_value(),
                 groups_of(options, size)}) {}

  [[nodiscard]] std::string_view backend() const noexcept override { return "shm"; }
  [[nodiscard]] Ordering ordering() const noexcept override { return Ordering::kAddressed; }
  [[nodiscard]] std::unique_ptr<Arena> allocate(Bytes size) override {
    return engine_.transport().allocate(size);
  }
  void abort(const Error& reason, std::uint32_t step, std::uint32_t bucket) noexcept override {
    engine_.abort(reason, step, bucket);
  }
  [[nodiscard]] EmulationStatistics emulation_statistics() const noexcept override {
    return engine_.emulation_statistics();
  }

 private:
  Work start(const Call& call) override { return engine_.start(call); }

  Engine engine_;
};

SegmentLayout layout_for(int size, const ShmOptions& options) {
  if (size < 1 || size > kMaxShmRanks) {
    throw Error(ErrorCode::kInvalidArgument,
                {"the shm backend cannot have that many ranks",
                 "",
                 std::to_string(size),
                 "1 to " + std::to_string(kMaxShmRanks),
                 ""});
  }
  if (options.emulate) {
    const Machine& machine = *options.emulate;
    if (machine.ranks() != size) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the emulated machine has another number of ranks",
                   machine.name,
                   std::to_string(size) + " ranks in the job",
                   std::to_string(machine.ranks()),
                   "Start as many ranks as the machine has, or change its counts."});
    }
    if (machine.levels.size() > kMaxLevels) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the emulated machine has too many levels",
                   machine.name,
                   std::to_string(machine.levels.size()),
                   "at most " + std::to_string(kMaxLevels),
                   ""});
    }
  }
  if (!options.places.empty()) {
    std::vector<int> sorted = options.places;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    if (sorted != all || !options.emulate) {
      throw Error(ErrorCode::kInvalidArgument,
                  {"the places are not those of an emulated machine",
                   "ShmOptions::places",
                   options.emulate ? "a place twice, or none of the machine's" : "no machine",
                   "each place from 0 to " + std::to_string(size - 1) + " once",
                   ""});
    }
  }
  const Bytes capacity =
      options.arena_capacity.count() > 0 ? options.arena_capacity : host_memory();
  SegmentLayout layout;
  layout.ranks = static_cast<std::size_t>(size);
  layout.heap_bytes =
      (static_cast<std::size_t>(capacity.count()) + kPageBytes - 1) / kPageBytes * kPageBytes;
  return layout;
}

}  // namespace

std::unique_ptr<Communicator> connect_shm(const std::filesystem::path& directory,
                                          int rank,
                                          int size,
                                          const ShmOptions& options) {
  const SegmentLayout layout = layout_for(size, options);
  if (rank < 0 || rank >= size) {
    throw Error(ErrorCode::kInvalidArgument,
                {"no such rank", "", std::to_string(rank), "0 to " + std::to_string(size - 1), ""});
  }
  Hasher emulated;
  if (options.emulate) {
    emulated.add(to_json(*options.emulate));
    for (const int place : options.places) {
      emulated.add(static_cast<std::uint64_t>(place));
    }
  }
  const std::uint64_t machine = options.emulate ? emulated.digest() | 1U : 0;
  FileDescriptor own = create_segment(layout);
  ShmWorld world;
  world.rank = rank;
  if (size == 1) {
    std::vector<FileDescriptor> files;
    files.push_back(std::move(own));
    world.segments = std::make_shared<SegmentMap>(layout, files);
  } else {
    Meeting meeting =
        meet(directory, rank, size, layout, std::move(own), options.connect_timeout, machine);
    world.segments = std::make_shared<SegmentMap>(layout, meeting.files);
    world.sockets = std::move(meeting.sockets);
    world.pids = std::move(meeting.pids);
  }
  return std::make_unique<ShmCommunicator>(std::move(world), size, options);
}

std::vector<std::unique_ptr<Communicator>> local_shm_world(int size, const ShmOptions& options) {
  const SegmentLayout layout = layout_for(size, options);
  const auto segments = std::make_shared<SegmentMap>(layout, std::span<const FileDescriptor>{});
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ShmWorld world;
    world.rank = rank;
    world.segments = segments;
    ranks.push_back(std::make_unique<ShmCommunicator>(std::move(world), size, options));
  }
  return ranks;
}

}  // namespace stretto
