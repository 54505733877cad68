#include "aliquot/comm/rendezvous.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "aliquot/comm/slurm.h"
#include "aliquot/error.h"

namespace aliquot {
namespace {

Environment operator+(Environment left, const Environment& right) {
  for (const auto& [name, value] : right) left[name] = value;
  return left;
}

std::string error_of(const Environment& environment) {
  try {
    rendezvous_from(environment);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

void expect_error(const Environment& environment, const std::vector<std::string>& parts) {
  const std::string error = error_of(environment);
  for (const std::string& part : parts)
    EXPECT_NE(error.find(part), std::string::npos) << part << "\nin: " << error;
}

const Environment kTorchrun{{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_PORT", "29500"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "node1"},
                            {"OMP_NUM_THREADS", "1"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Environment kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                          {"OMPI_COMM_WORLD_SIZE", "3"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}};
const Environment kHydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSrun{{"SLURM_PROCID", "3"},
                        {"SLURM_NTASKS", "5"},
                        {"SLURM_LOCALID", "1"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_JOB_ID", "77"},
                        {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                        {"SLURM_JOB_NODELIST", "gpu[07-09]"}};

TEST(Rendezvous, NothingSetIsAWorldOfOne) {
  EXPECT_EQ(rendezvous_from({}), Rendezvous{});
  EXPECT_FALSE(is_launched({}));
  EXPECT_FALSE(is_launched({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1"}, {"RANK", ""}}));
}

TEST(Rendezvous, Torchrun) {
  const Rendezvous r = rendezvous_from(kTorchrun);
  EXPECT_EQ(r, (Rendezvous{.rank = 1,
                           .world = 4,
                           .local_rank = 1,
                           .local_world = 2,
                           .master_addr = "node1",
                           .master_port = 29500,
                           .agent_store = true,
                           .source = "torchrun"}));
  EXPECT_FALSE(
      rendezvous_from(kTorchrun + Environment{{"TORCHELASTIC_USE_AGENT_STORE", "False"}}).agent_store);
  EXPECT_TRUE(is_launched(kTorchrun));
}

TEST(Rendezvous, PlainVariables) {
  const Environment two{
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "5"}};
  EXPECT_EQ(
      rendezvous_from(two),
      (Rendezvous{
          .rank = 1, .world = 2, .local_rank = 1, .local_world = 2, .master_port = 5, .source = "RANK"}));
  // One pod a rank, as Kubernetes operators start them: nothing local is said and the master is elsewhere.
  const Rendezvous pod = rendezvous_from(two + Environment{{"MASTER_ADDR", "job-master-0"}});
  EXPECT_EQ(pod.local_rank, 0);
  EXPECT_EQ(pod.local_world, 1);
  // DeepSpeed's launcher says LOCAL_SIZE.
  const Rendezvous deepspeed =
      rendezvous_from(two + Environment{{"MASTER_ADDR", "n1"}, {"LOCAL_RANK", "1"}, {"LOCAL_SIZE", "2"}});
  EXPECT_EQ(deepspeed.local_world, 2);
}

TEST(Rendezvous, Mpirun) {
  const Rendezvous r = rendezvous_from(kMpirun);
  EXPECT_EQ(r.rank, 2);
  EXPECT_EQ(r.world, 3);
  EXPECT_EQ(r.local_rank, 2);
  EXPECT_EQ(r.local_world, 3);
  EXPECT_EQ(r.master_addr, "127.0.0.1");
  EXPECT_EQ(r.source, "mpirun");
  EXPECT_FALSE(r.agent_store);
  EXPECT_GE(r.master_port, 20000);
  EXPECT_LT(r.master_port, 40000);
}

TEST(Rendezvous, Hydra) {
  const Rendezvous r = rendezvous_from(kHydra);
  EXPECT_EQ(r.rank, 1);
  EXPECT_EQ(r.world, 2);
  EXPECT_EQ(r.local_rank, 1);
  EXPECT_EQ(r.local_world, 2);
  EXPECT_EQ(r.source, "PMI");
}

TEST(Rendezvous, Srun) {
  const Rendezvous r = rendezvous_from(kSrun);
  EXPECT_EQ(r.rank, 3);
  EXPECT_EQ(r.world, 5);
  EXPECT_EQ(r.local_rank, 1);
  EXPECT_EQ(r.local_world, 2);
  EXPECT_EQ(r.master_addr, "gpu07");
  EXPECT_EQ(r.source, "srun");
  const Environment by_hand{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}};
  EXPECT_EQ(rendezvous_from(by_hand).local_world, 2);
  EXPECT_EQ(rendezvous_from(by_hand).master_addr, "127.0.0.1");
}

TEST(Rendezvous, SmallerStepOfAJob) {
  const Environment step = kSrun + Environment{{"SLURM_PROCID", "1"},
                                               {"SLURM_STEP_NUM_TASKS", "2"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2"},
                                               {"SLURM_NODEID", "0"},
                                               {"SLURM_STEP_NODELIST", "gpu08"}};
  const Rendezvous r = rendezvous_from(step);
  EXPECT_EQ(r.world, 2);
  EXPECT_EQ(r.local_world, 2);
  EXPECT_EQ(r.master_addr, "127.0.0.1");
}

TEST(Rendezvous, BatchScriptIsNoRank) {
  Environment script = kSrun + Environment{{"ENVIRONMENT", "BATCH"}};
  script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(is_launched(script));
  EXPECT_EQ(rendezvous_from(script), Rendezvous{});
  EXPECT_TRUE(is_launched(kSrun + Environment{{"ENVIRONMENT", "BATCH"}}));
}

TEST(Rendezvous, OrderOfFamilies) {
  EXPECT_EQ(rendezvous_from(kTorchrun + kMpirun + kHydra + kSrun).source, "torchrun");
  EXPECT_EQ(rendezvous_from(kMpirun + kHydra + kSrun).source, "mpirun");
  EXPECT_EQ(rendezvous_from(kHydra + kSrun).source, "PMI");
}

TEST(Rendezvous, GivenMasterWins) {
  const Environment given{{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "1234"}};
  for (const Environment& family : {kMpirun, kHydra, kSrun}) {
    EXPECT_EQ(rendezvous_from(family + given).master_addr, "10.0.0.7");
    EXPECT_EQ(rendezvous_from(family + given).master_port, 1234);
  }
}

TEST(Rendezvous, PortIsTheJobs) {
  const int port = rendezvous_from(kSrun).master_port;
  EXPECT_EQ(rendezvous_from(kSrun +
                            Environment{{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "2"}})
                .master_port,
            port);
  EXPECT_NE(rendezvous_from(kSrun + Environment{{"SLURM_JOB_ID", "78"}}).master_port, port);
  EXPECT_NE(rendezvous_from(kSrun + Environment{{"SLURM_STEP_ID", "1"}}).master_port, port);
}

TEST(Rendezvous, HalfSetFamiliesAreErrors) {
  expect_error({{"RANK", "0"}}, {"WORLD_SIZE is not set", "RANK=0"});
  expect_error({{"WORLD_SIZE", "2"}}, {"RANK is not set", "WORLD_SIZE=2"});
  expect_error({{"LOCAL_RANK", "0"}}, {"RANK is not set", "LOCAL_RANK=0"});
  expect_error({{"OMPI_COMM_WORLD_SIZE", "2"}}, {"OMPI_COMM_WORLD_RANK is not set"});
  expect_error({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
               {"OMPI_COMM_WORLD_LOCAL_SIZE"});
  expect_error({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, {"MPI_LOCALNRANKS"});
  expect_error({{"SLURM_PROCID", "0"}}, {"SLURM_STEP_NUM_TASKS is not set"});
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {"how many ranks this host has", "RANK=0 WORLD_SIZE=2"});
  expect_error({{"RANK", "0"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "n1"}},
               {"LOCAL_RANK is not set"});
}

TEST(Rendezvous, LeftOverRankUnderAnotherLauncherIsAnError) {
  const Environment left_over{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  expect_error(kMpirun + left_over, {"RANK says 0 of 1, but mpirun says 2 of 3", "unset"});
  expect_error(kSrun + left_over, {"RANK says 0 of 1, but srun says 3 of 5"});
  // A wrapper script that translates is consistent, and our launcher may run inside another's rank.
  EXPECT_EQ(
      rendezvous_from(kMpirun + Environment{{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "localhost"}})
          .rank,
      2);
  EXPECT_EQ(rendezvous_from(kMpirun + left_over + Environment{{"ALIQUOT_LAUNCHER_PID", "9"}}).world, 1);
}

TEST(Rendezvous, NumbersAreChecked) {
  const Environment base{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}};
  expect_error(base + Environment{{"RANK", "2"}}, {"rank 2 in a world of 2; expected 0 to 1"});
  expect_error(base + Environment{{"RANK", "-1"}}, {"rank -1"});
  expect_error(base + Environment{{"RANK", "1x"}}, {"RANK=1x: expected a whole number"});
  expect_error(base + Environment{{"WORLD_SIZE", "0"}}, {"a world of 0 ranks"});
  expect_error(base + Environment{{"WORLD_SIZE", "99999999999"}}, {"expected a whole number"});
  expect_error(base + Environment{{"MASTER_PORT", "70000"}}, {"MASTER_PORT: expected 1 to 65535"});
  expect_error(base + Environment{{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}, {"local rank 2 of 2"});
  expect_error(base + Environment{{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "3"}}, {"local rank 0 of 3"});
}

TEST(Rendezvous, SeveralHostsNeedAMaster) {
  expect_error(
      kMpirun + Environment{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
      {"MASTER_ADDR", "mpirun -x MASTER_ADDR=node1"});
}

TEST(Rendezvous, TorchrunsSingleThreadIsSaid) {
  const Rendezvous r = rendezvous_from(kTorchrun);
  EXPECT_NE(thread_advice(kTorchrun, r, 8).find("--threads 4"), std::string::npos);
  EXPECT_EQ(thread_advice(kTorchrun, r, 3), "");
  EXPECT_EQ(thread_advice(kTorchrun + Environment{{"OMP_NUM_THREADS", "3"}}, r, 8), "");
  EXPECT_EQ(thread_advice({{"OMP_NUM_THREADS", "1"}}, Rendezvous{}, 8), "");
}

TEST(Slurm, FirstHost) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[007-012,20],login"), "node007");
  EXPECT_EQ(first_host("node[3,5]"), "node3");
  EXPECT_EQ(first_host("node[9]-ib.cluster"), "node9-ib.cluster");
  EXPECT_EQ(first_host("r[1-2]n[03-04]"), "r1n03");
  EXPECT_EQ(first_host(""), "");
  EXPECT_EQ(first_host("broken["), "broken");
}

TEST(Slurm, TasksOfNode) {
  const auto all = [](const char* text) {
    std::vector<int> out;
    for (int node = 0; const auto tasks = tasks_of_node(text, node); ++node) out.push_back(*tasks);
    return out;
  };
  EXPECT_EQ(all("4"), (std::vector{4}));
  EXPECT_EQ(all("2(x3),1"), (std::vector{2, 2, 2, 1}));
  EXPECT_EQ(all("1,2(x2)"), (std::vector{1, 2, 2}));
  EXPECT_EQ(all(""), (std::vector<int>{}));
  EXPECT_EQ(all("x"), (std::vector<int>{}));
  EXPECT_EQ(tasks_of_node("2(3)", 0), std::nullopt);
}

}  // namespace
}  // namespace aliquot
