// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/rank_environment.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "stretto/base/error.hpp"
#include "stretto/base/hash.hpp"

namespace stretto {
namespace {

using Names = std::vector<std::string>;

/// How one kind of launcher tells its processes who they are. Where several variables are listed
/// for one thing, the first that is set counts.
struct Family {
  std::string launcher;
  Names evidence;  ///< One of these set: the launcher has been here.
  Names rank;
  Names size;
  Names local_rank;
  Names local_size;
  bool needs_local_rank = false;
  Names job;  ///< Those that are set name the job, alike on all its ranks.
};

/// In order of precedence. What each launcher sets: Open MPI 4 and 5, Horovod's gloo launcher,
/// mpirun_rsh, Slurm's pmix and pmi2 plug-ins, MPICH's hydra, flux(1), srun(1).
std::vector<Family> families() {
  return {
      {.launcher = "stretto",
       .evidence = {"STRETTO_RANK", "STRETTO_WORLD_SIZE"},
       .rank = {"STRETTO_RANK"},
       .size = {"STRETTO_WORLD_SIZE"},
       .local_rank = {"STRETTO_LOCAL_RANK"},
       .local_size = {"STRETTO_LOCAL_WORLD_SIZE"},
       .job = {}},
      {.launcher = "torchrun",
       .evidence = {"RANK", "WORLD_SIZE"},
       .rank = {"RANK"},
       .size = {"WORLD_SIZE"},
       .local_rank = {"LOCAL_RANK"},
       .local_size = {"LOCAL_WORLD_SIZE"},
       .needs_local_rank = true,
       .job = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
      {.launcher = "openmpi",
       .evidence = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
       .rank = {"OMPI_COMM_WORLD_RANK"},
       .size = {"OMPI_COMM_WORLD_SIZE"},
       .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
       .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       .job = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}},
      {.launcher = "horovod",
       .evidence = {"HOROVOD_RANK", "HOROVOD_SIZE"},
       .rank = {"HOROVOD_RANK"},
       .size = {"HOROVOD_SIZE"},
       .local_rank = {"HOROVOD_LOCAL_RANK"},
       .local_size = {"HOROVOD_LOCAL_SIZE"},
       .job = {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}},
      {.launcher = "mvapich",
       .evidence = {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
       .rank = {"MV2_COMM_WORLD_RANK"},
       .size = {"MV2_COMM_WORLD_SIZE"},
       .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
       .local_size = {"MV2_COMM_WORLD_LOCAL_SIZE"},
       .job = {"MPISPAWN_MPIRUN_HOST", "MPISPAWN_MPIRUN_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
      // PMIx tells a process its rank and nothing else by variables; under srun, Slurm tells the
      // rest.
      {.launcher = "pmix",
       .evidence = {"PMIX_RANK"},
       .rank = {"PMIX_RANK"},
       .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       .local_rank = {"SLURM_LOCALID"},
       .local_size = {},
       .job = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
      {.launcher = "pmi",
       .evidence = {"PMI_RANK", "PMI_SIZE"},
       .rank = {"PMI_RANK"},
       .size = {"PMI_SIZE"},
       .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"},
       .local_size = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "FLUX_JOB_ID"}},
      {.launcher = "flux",
       .evidence = {"FLUX_TASK_RANK"},
       .rank = {"FLUX_TASK_RANK"},
       .size = {"FLUX_JOB_SIZE"},
       .local_rank = {"FLUX_TASK_LOCAL_ID"},
       .local_size = {},
       .job = {"FLUX_URI", "FLUX_JOB_ID"}},
      {.launcher = "slurm",
       .evidence = {"SLURM_PROCID"},
       .rank = {"SLURM_PROCID"},
       .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       .local_rank = {"SLURM_LOCALID"},
       .local_size = {},
       .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
  };
}

/// A variable that is set, and not to nothing.
struct Variable {
  std::string name;
  std::string value;
  [[nodiscard]] std::string text() const { return name + "=" + value; }
};

std::string joined(const Names& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

/// What one process sees of its environment; an empty value is as good as none.
class Environment {
 public:
  explicit Environment(const EnvironmentReader& read) : read_(read) {}

  [[nodiscard]] std::optional<Variable> first(const Names& names) const {
    for (const std::string& name : names) {
      std::optional<std::string> value = read_(name);
      if (value && !value->empty()) {
        return Variable{name, std::move(*value)};
      }
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<Variable> get(const std::string& name) const { return first({name}); }
  [[nodiscard]] bool has(const std::string& name) const { return get(name).has_value(); }

  /// `A=1, B=2` of those that are set.
  [[nodiscard]] Names texts(const Names& names) const {
    Names found;
    for (const std::string& name : names) {
      if (const auto variable = get(name)) {
        found.push_back(variable->text());
      }
    }
    return found;
  }

 private:
  const EnvironmentReader& read_;
};

int number(const Variable& variable) {
  int value = 0;
  const char* const begin = variable.value.data();
  const char* const end = begin + variable.value.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc{} || stop != end || value < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                {.message = "an environment variable is not a rank or a number of ranks",
                 .where = variable.name,
                 .found = "'" + variable.value + "'",
                 .expected = "a whole number of zero or more",
                 .help = "Correct or unset it"});
  }
  return value;
}

/// Slurm sets SLURM_PROCID=0 and the allocation's SLURM_NTASKS in a batch script too, which is not
/// a rank of anything: only a step has ranks.
bool in_slurm_step(const Environment& environment) {
  const bool in_step =
      environment.first({"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"})
          .has_value();
  const auto tasks = environment.first({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  return in_step && tasks && number(*tasks) > 1;
}

/// Kubeflow's PyTorchJob counts pods in RANK and WORLD_SIZE, for a torchrun in each pod to read.
bool counts_pods(const Environment& environment) {
  return environment.has("PET_NNODES") && !environment.has("LOCAL_RANK");
}

/// Why a family whose variables are there does not speak about this process; nothing if it does.
std::optional<std::string> not_meant(const Family& family, const Environment& environment) {
  if (family.launcher == "torchrun" && counts_pods(environment)) {
    return "they count Kubeflow's pods, since PET_NNODES is set and LOCAL_RANK is not; start the "
           "program by torchrun in each pod";
  }
  if (family.launcher == "slurm" && !in_slurm_step(environment)) {
    return "this is no step of several tasks";
  }
  return std::nullopt;
}

/// Tasks on node number `node` in Slurm's form: `4`, or `2(x3),1` for 2, 2, 2, 1.
std::optional<int> tasks_on_node(std::string_view text, int node) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int tasks = 0;
    int nodes = 1;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, tasks);
    if (error != std::errc{}) {
      return std::nullopt;
    }
    if (std::string_view(stop, end).starts_with("(x")) {
      std::from_chars(stop + 2, end, nodes);
    }
    if (node < nodes) {
      return tasks;
    }
    node -= nodes;
  }
  return std::nullopt;
}

std::optional<int> local_size(const Family& family, const Environment& environment, int size) {
  if (const auto variable = environment.first(family.local_size)) {
    return number(*variable);
  }
  const bool by_slurm = family.launcher == "slurm" || family.launcher == "pmix";
  const auto per_node = environment.get("SLURM_STEP_TASKS_PER_NODE");
  const auto node = environment.get("SLURM_NODEID");
  if (by_slurm && per_node && node) {
    return tasks_on_node(per_node->value, number(*node));
  }
  const auto flux_nodes = environment.get("FLUX_JOB_NNODES");
  if (family.launcher == "flux" && flux_nodes && number(*flux_nodes) > 0) {
    return (size + number(*flux_nodes) - 1) / number(*flux_nodes);
  }
  return std::nullopt;
}

void require_below(int value, const std::string& name, int limit, const std::string& limit_name) {
  if (value >= limit) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.message = "the environment names a rank that cannot be",
         .where = name,
         .found = std::to_string(value),
         .expected = limit > 0 ? fmt::format("0 to {}, as {} is {}", limit - 1, limit_name, limit)
                               : fmt::format("{} above 0", limit_name),
         .help = "Ranks count from 0. Unset both, or correct them"});
  }
}

[[noreturn]] void throw_half_set(const Family& family,
                                 const Environment& environment,
                                 const Names& missing,
                                 const Names& others) {
  Names mentioned = family.evidence;
  mentioned.insert(mentioned.end(), family.local_rank.begin(), family.local_rank.end());
  throw Error(ErrorCode::kInvalidArgument,
              {.message = "the environment says only in part which rank this process is",
               .where = "variables of " + family.launcher,
               .found = joined(environment.texts(mentioned), ", "),
               .expected = joined(missing, " and ") + " to be set too",
               .help = fmt::format(
                   "Start with 'stretto run -n 4 -- PROGRAM' or torchrun, or set them all, or "
                   "unset them. Other launchers seen: {}",
                   others.empty() ? "none" : joined(others, "; "))});
}

/// Ranks of one job on one host come to the same name, ranks of two jobs to different ones.
std::string derived_directory(const Family& family, const Environment& environment) {
  const Names job = environment.texts(family.job);
  Hasher hasher;
  hasher.add(family.launcher);
  for (const std::string& text : job) {
    hasher.add(text);
  }
  if (job.empty() && family.launcher == "pmi") {
    // MPICH's hydra names the job in no variable. It starts one proxy per job and host, which is
    // the parent of all ranks there.
    hasher.add(static_cast<std::uint64_t>(getppid()));
  } else if (job.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        {.message = "no environment variable tells this job from another one on this host",
         .where = "variables of " + family.launcher,
         .found = "none of " + joined(family.job, ", "),
         .expected = family.launcher == "stretto" ? "STRETTO_RENDEZVOUS" : "one of them",
         .help = "Set STRETTO_RENDEZVOUS to an empty directory that all ranks of the job share"});
  }
  const auto temporary = environment.get("TMPDIR");
  return fmt::format(
      "{}/stretto-{}-{:016x}", temporary ? temporary->value : "/tmp", getuid(), hasher.digest());
}

RankEnvironment read_family(const Family& family,
                            const Environment& environment,
                            const Names& others) {
  const auto rank = environment.first(family.rank);
  const auto size = environment.first(family.size);
  const auto local_rank = environment.first(family.local_rank);
  Names missing;
  if (!rank) {
    missing.push_back(family.rank.front());
  }
  if (!size) {
    missing.push_back(family.size.front());
  }
  if (family.needs_local_rank && !local_rank) {
    missing.push_back(family.local_rank.front());
  }
  if (!missing.empty()) {
    throw_half_set(family, environment, missing, others);
  }

  RankEnvironment result;
  result.launcher = family.launcher;
  result.rank = number(*rank);
  result.world_size = number(*size);
  require_below(result.rank, rank->name, result.world_size, size->name);
  // A launcher that does not say has, as far as anybody can tell, put all ranks on one host.
  result.local_rank = local_rank ? number(*local_rank) : result.rank;
  result.local_world_size =
      local_size(family, environment, result.world_size).value_or(result.world_size);
  require_below(result.local_rank,
                local_rank ? local_rank->name : rank->name,
                result.local_world_size,
                "the number of ranks on this host");
  if (const auto given = environment.get("STRETTO_RENDEZVOUS")) {
    result.rendezvous = given->value;
  } else if (result.world_size > 1) {
    result.rendezvous = derived_directory(family, environment);
  }
  return result;
}

}  // namespace

EnvironmentReader process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the library never changes the environment.
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

RankEnvironment detect_rank_environment(const EnvironmentReader& read) {
  const Environment environment(read);
  std::optional<Family> winner;
  Names passed_over;
  for (Family& family : families()) {
    const Names seen = environment.texts(family.evidence);
    if (seen.empty()) {
      continue;
    }
    const auto reason = not_meant(family, environment);
    if (!reason && !winner) {
      winner = std::move(family);
    } else {
      passed_over.push_back(fmt::format("{} ({}{}{})",
                                        family.launcher,
                                        joined(seen, ", "),
                                        reason ? ": " : "",
                                        reason.value_or("")));
    }
  }
  RankEnvironment result =
      winner ? read_family(*winner, environment, passed_over) : RankEnvironment{};
  result.passed_over = std::move(passed_over);
  return result;
}

}  // namespace stretto
