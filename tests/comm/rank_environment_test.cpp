// SPDX-License-Identifier: Apache-2.0
#include "stretto/comm/rank_environment.hpp"

#include <map>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "stretto/base/error.hpp"

namespace stretto {
namespace {

using Variables = std::map<std::string, std::string>;

RankEnvironment detect(const Variables& variables) {
  return detect_rank_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

Variables merged(Variables first, const Variables& second) {
  first.insert(second.begin(), second.end());
  return first;
}

const Variables kStretto = {{"STRETTO_RANK", "1"},
                            {"STRETTO_WORLD_SIZE", "4"},
                            {"STRETTO_LOCAL_RANK", "1"},
                            {"STRETTO_LOCAL_WORLD_SIZE", "4"},
                            {"STRETTO_RENDEZVOUS", "/run/r"}};
const Variables kTorchrun = {{"RANK", "2"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "0"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "a"},
                             {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "8"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"OMPI_MCA_ess_base_jobid", "77"}};
const Variables kHorovod = {{"HOROVOD_RANK", "1"},
                            {"HOROVOD_SIZE", "2"},
                            {"HOROVOD_LOCAL_RANK", "0"},
                            {"HOROVOD_LOCAL_SIZE", "1"},
                            {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                            {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4000"}};
const Variables kMvapich = {{"MV2_COMM_WORLD_RANK", "1"},
                            {"MV2_COMM_WORLD_SIZE", "2"},
                            {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                            {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"MPISPAWN_MPIRUN_HOST", "a"},
                            {"MPISPAWN_MPIRUN_PORT", "5000"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kFlux = {{"FLUX_TASK_RANK", "5"},
                         {"FLUX_JOB_SIZE", "8"},
                         {"FLUX_TASK_LOCAL_ID", "1"},
                         {"FLUX_JOB_NNODES", "2"},
                         {"FLUX_JOB_ID", "f2"}};
const Variables kSlurm = {{"SLURM_PROCID", "6"},
                          {"SLURM_NTASKS", "7"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "3"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                          {"SLURM_STEP_NUM_TASKS", "7"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_JOB_ID", "42"}};

struct Row {
  std::string name;
  Variables variables;
  std::string launcher;
  int rank;
  int world_size;
  int local_rank;
  int local_world_size;
  std::vector<std::string> passed_over = {};  ///< How each entry begins.
};

class Precedence : public testing::TestWithParam<Row> {};

TEST_P(Precedence, IsAsDocumented) {
  const Row& row = GetParam();
  const RankEnvironment found = detect(row.variables);
  EXPECT_EQ(found.launcher, row.launcher);
  EXPECT_EQ(found.rank, row.rank);
  EXPECT_EQ(found.world_size, row.world_size);
  EXPECT_EQ(found.local_rank, row.local_rank);
  EXPECT_EQ(found.local_world_size, row.local_world_size);
  EXPECT_EQ(found.rendezvous.empty(), row.world_size == 1);
  ASSERT_EQ(found.passed_over.size(), row.passed_over.size());
  for (std::size_t i = 0; i < row.passed_over.size(); ++i) {
    EXPECT_TRUE(found.passed_over[i].starts_with(row.passed_over[i])) << found.passed_over[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table,
    Precedence,
    testing::Values(
        Row{"Nothing", {}, "none", 0, 1, 0, 1},
        Row{"Stretto", kStretto, "stretto", 1, 4, 1, 4},
        Row{"Torchrun", kTorchrun, "torchrun", 2, 4, 0, 2},
        Row{"OpenMpi", kOpenMpi, "openmpi", 3, 8, 3, 4},
        Row{"Horovod", kHorovod, "horovod", 1, 2, 0, 1},
        Row{"Mvapich", kMvapich, "mvapich", 1, 2, 1, 2},
        Row{"Mpich", kMpich, "pmi", 1, 2, 1, 2},
        Row{"Flux", kFlux, "flux", 5, 8, 1, 4},
        Row{"Slurm", kSlurm, "slurm", 6, 7, 0, 1},
        // Its own launcher sets torchrun's variables too, and may run under any other.
        Row{"StrettoOverAll",
            merged(kStretto, merged(kTorchrun, kOpenMpi)),
            "stretto",
            1,
            4,
            1,
            4,
            {"torchrun (RANK=2, WORLD_SIZE=4)", "openmpi (OMPI_COMM_WORLD_RANK=3"}},
        Row{"TorchrunUnderSrun",
            merged(kTorchrun, kSlurm),
            "torchrun",
            2,
            4,
            0,
            2,
            {"slurm (SLURM_PROCID=6)"}},
        Row{"OpenMpiUnderSrun", merged(kOpenMpi, kSlurm), "openmpi", 3, 8, 3, 4, {"slurm"}},
        Row{"HorovodByMpirun", merged(kHorovod, kOpenMpi), "openmpi", 3, 8, 3, 4, {"horovod"}},
        Row{"MvapichAlsoSetsPmi", merged(kMvapich, kMpich), "mvapich", 1, 2, 1, 2, {"pmi"}},
        Row{"MpichUnderFlux", merged(kMpich, kFlux), "pmi", 1, 2, 1, 2, {"flux"}},
        Row{"FluxUnderSlurm", merged(kFlux, kSlurm), "flux", 5, 8, 1, 4, {"slurm"}},
        Row{"PmixUnderSrun",
            merged({{"PMIX_RANK", "6"}, {"PMIX_NAMESPACE", "slurm.pmix.42.0"}}, kSlurm),
            "pmix",
            6,
            7,
            0,
            1,
            {"slurm"}},
        // A batch script has these, and is one process.
        Row{"SlurmBatchScript",
            {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "42"}},
            "none",
            0,
            1,
            0,
            1,
            {"slurm (SLURM_PROCID=0: this is no step of several tasks"}},
        Row{"SlurmStepOfOneTask",
            {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}},
            "none",
            0,
            1,
            0,
            1,
            {"slurm"}},
        Row{"KubeflowPodWithoutTorchrun",
            {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PET_NNODES", "2"}},
            "none",
            0,
            1,
            0,
            1,
            {"torchrun (RANK=1, WORLD_SIZE=2: they count Kubeflow's pods"}},
        Row{"KubeflowPodWithMpirun",
            merged({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PET_NNODES", "2"}}, kOpenMpi),
            "openmpi",
            3,
            8,
            3,
            4,
            {"torchrun"}},
        Row{"KubeflowPodWithTorchrun",
            merged({{"PET_NNODES", "2"}}, kTorchrun),
            "torchrun",
            2,
            4,
            0,
            2},
        // A lower family that is half set, or nonsense, is nobody's business.
        Row{"HalfSetButPassedOver",
            merged(kTorchrun, {{"OMPI_COMM_WORLD_RANK", "x"}}),
            "torchrun",
            2,
            4,
            0,
            2,
            {"openmpi"}},
        Row{"EmptyIsNotSet", merged({{"RANK", ""}, {"WORLD_SIZE", ""}}, kMpich), "pmi", 1, 2, 1, 2},
        Row{"LocalRankAloneSaysNothing", {{"LOCAL_RANK", "3"}}, "none", 0, 1, 0, 1},
        Row{"OneRankNeedsNoRendezvous",
            {{"STRETTO_RANK", "0"}, {"STRETTO_WORLD_SIZE", "1"}},
            "stretto",
            0,
            1,
            0,
            1}),
    [](const auto& test) { return test.param.name; });

/// What detect() throws, which must be kInvalidArgument.
ErrorDetail failure(const Variables& variables) {
  try {
    (void)detect(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.detail();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

TEST(RankEnvironment, HalfSetFamilyNamesWhatIsSetAndWhatIsMissing) {
  const ErrorDetail detail = failure({{"RANK", "0"}});
  EXPECT_EQ(detail.where, "variables of torchrun");
  EXPECT_EQ(detail.found, "RANK=0");
  EXPECT_EQ(detail.expected, "WORLD_SIZE and LOCAL_RANK to be set too");
  EXPECT_NE(detail.help.find("stretto run"), std::string::npos);
  EXPECT_NE(detail.help.find("Other launchers seen: none"), std::string::npos);
}

TEST(RankEnvironment, HalfSetFamilyTellsOfTheOthers) {
  const ErrorDetail detail = failure(merged({{"WORLD_SIZE", "2"}}, kOpenMpi));
  EXPECT_NE(detail.help.find("openmpi (OMPI_COMM_WORLD_RANK=3"), std::string::npos) << detail.help;
}

TEST(RankEnvironment, EveryFamilyNeedsItsSize) {
  for (const char* rank : {"STRETTO_RANK",
                           "OMPI_COMM_WORLD_RANK",
                           "HOROVOD_RANK",
                           "MV2_COMM_WORLD_RANK",
                           "PMIX_RANK",
                           "PMI_RANK",
                           "FLUX_TASK_RANK"}) {
    EXPECT_EQ(failure({{rank, "0"}}).found, std::string(rank) + "=0");
  }
}

TEST(RankEnvironment, NumbersMustBeNumbers) {
  for (const char* text : {"x", "-1", "1.5", " 1", "99999999999999999999", "1 "}) {
    Variables variables = kStretto;
    variables["STRETTO_RANK"] = text;
    const ErrorDetail detail = failure(variables);
    EXPECT_EQ(detail.where, "STRETTO_RANK");
    EXPECT_EQ(detail.found, "'" + std::string(text) + "'");
  }
}

TEST(RankEnvironment, RanksMustBeBelowTheirNumber) {
  Variables variables = kTorchrun;
  variables["RANK"] = "4";
  EXPECT_EQ(failure(variables).expected, "0 to 3, as WORLD_SIZE is 4");
  variables = kTorchrun;
  variables["LOCAL_RANK"] = "2";
  EXPECT_EQ(failure(variables).where, "LOCAL_RANK");
  variables["WORLD_SIZE"] = "0";
  EXPECT_EQ(failure(variables).expected, "WORLD_SIZE above 0");
}

TEST(Rendezvous, OursIsTakenAsItIsWhoeverStartedTheRanks) {
  EXPECT_EQ(detect(kStretto).rendezvous, "/run/r");
  EXPECT_EQ(detect(merged(kOpenMpi, {{"STRETTO_RENDEZVOUS", "/run/s"}})).rendezvous, "/run/s");
}

TEST(Rendezvous, IsDerivedFromTheJob) {
  const std::string start = "/tmp/stretto-" + std::to_string(getuid()) + "-";
  for (const Variables& variables :
       {kTorchrun, kOpenMpi, kHorovod, kMvapich, kMpich, kFlux, kSlurm}) {
    const std::string directory = detect(variables).rendezvous;
    EXPECT_TRUE(directory.starts_with(start)) << directory;
    EXPECT_EQ(directory.size(), start.size() + 16) << directory;
  }
  EXPECT_TRUE(detect(merged(kFlux, {{"TMPDIR", "/scratch"}})).rendezvous.starts_with("/scratch/s"));
}

TEST(Rendezvous, IsTheSameForAllRanksOfAJob) {
  Variables other = kTorchrun;
  other["RANK"] = "3";
  other["LOCAL_RANK"] = "1";
  EXPECT_EQ(detect(other).rendezvous, detect(kTorchrun).rendezvous);
}

TEST(Rendezvous, DiffersBetweenJobs) {
  struct Pair {
    Variables job;
    std::string variable;
  };
  const std::vector<Pair> pairs = {{kTorchrun, "MASTER_PORT"},
                                   {kTorchrun, "TORCHELASTIC_RUN_ID"},
                                   {kTorchrun, "TORCHELASTIC_RESTART_COUNT"},
                                   {kOpenMpi, "OMPI_MCA_ess_base_jobid"},
                                   {kOpenMpi, "PMIX_NAMESPACE"},
                                   {kHorovod, "HOROVOD_GLOO_RENDEZVOUS_PORT"},
                                   {kFlux, "FLUX_JOB_ID"},
                                   {kSlurm, "SLURM_JOB_ID"},
                                   {kSlurm, "SLURM_STEP_ID"}};
  for (const auto& [job, variable] : pairs) {
    Variables other = job;
    other[variable] = "another";
    EXPECT_NE(detect(other).rendezvous, detect(job).rendezvous) << variable;
  }
}

TEST(Rendezvous, JobsThatCannotBeToldApartAreAnError) {
  Variables variables = kOpenMpi;
  variables.erase("OMPI_MCA_ess_base_jobid");
  EXPECT_NE(failure(variables).help.find("STRETTO_RENDEZVOUS"), std::string::npos);
  variables = kStretto;
  variables.erase("STRETTO_RENDEZVOUS");
  EXPECT_EQ(failure(variables).expected, "STRETTO_RENDEZVOUS");
}

TEST(ProcessEnvironment, ReadsThisProcess) {
  const EnvironmentReader read = process_environment();
  EXPECT_TRUE(read("PATH").has_value());
  EXPECT_FALSE(read("STRETTO_A_NAME_THAT_NOBODY_SETS").has_value());
}

}  // namespace
}  // namespace stretto
