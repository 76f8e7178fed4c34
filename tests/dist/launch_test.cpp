#include "dist/launch.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "expect_error.h"

namespace ebclr::dist {
namespace {

Environment environment(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto it = values.find(name);
    if (it == values.end()) return std::nullopt;
    return it->second;
  };
}

TEST(Launch, AProcessStartedAloneIsNoGroup) {
  EXPECT_FALSE(find_launch(environment({})));
  EXPECT_FALSE(find_launch(environment({{"RANK", "3"}})));
  EXPECT_FALSE(find_launch(environment({{"RANK", "0"}, {"WORLD_SIZE", "1"}})));
  // A batch script knows of tasks that it has not started.
  EXPECT_FALSE(find_launch(environment({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}})));
}

TEST(Launch, PlainEnvironment) {
  const auto l = find_launch(environment(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "1234"}}));
  ASSERT_TRUE(l);
  EXPECT_EQ(l->launcher, "environment");
  EXPECT_EQ(l->rank, 1);
  EXPECT_EQ(l->world, 2);
  EXPECT_EQ(l->master, "10.0.0.7");
  EXPECT_EQ(l->port, 1234);
  EXPECT_FALSE(l->agent_store);
}

TEST(Launch, RanksOfTheEnvironmentShareAHostWhereTheyMeetOnIt) {
  const auto threads = [](std::map<std::string, std::string> more) {
    more.insert({{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_PORT", "1234"}});
    const auto l = find_launch(environment(std::move(more)));
    return l ? std::pair(l->local_rank, threads_of(*l, 16, 16)) : std::pair(-1, -1);
  };
  EXPECT_EQ(threads({{"MASTER_ADDR", "127.0.0.1"}}), std::pair(1, 4));
  EXPECT_EQ(threads({{"MASTER_ADDR", "localhost"}}), std::pair(1, 4));
  EXPECT_EQ(threads({{"MASTER_ADDR", "node7"}}), std::pair(0, 16)) << "one rank on each of four hosts";
  EXPECT_EQ(threads({{"MASTER_ADDR", "node7"}, {"LOCAL_WORLD_SIZE", "2"}}), std::pair(1, 8));
}

TEST(Launch, TorchrunsAgentKeepsTheStore) {
  std::map<std::string, std::string> e = {{"RANK", "3"},
                                          {"WORLD_SIZE", "4"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"MASTER_ADDR", "a"},
                                          {"MASTER_PORT", "29500"},
                                          {"TORCHELASTIC_RUN_ID", "x"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"TORCHELASTIC_RESTART_COUNT", "0"}};
  const auto first = find_launch(environment(e));
  e["TORCHELASTIC_RESTART_COUNT"] = "1";
  const auto second = find_launch(environment(e));
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->launcher, "torchrun");
  EXPECT_TRUE(first->agent_store);
  EXPECT_EQ(first->local_rank, 1);
  EXPECT_EQ(first->local_world, 2);
  EXPECT_NE(first->job, second->job);
}

TEST(Launch, OpenMpiOnOneHostMeetsAtItsJobsOwnPort) {
  std::map<std::string, std::string> e = {{"OMPI_COMM_WORLD_RANK", "0"},
                                          {"OMPI_COMM_WORLD_SIZE", "2"},
                                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                          {"PMIX_NAMESPACE", "4711"}};
  const auto a = find_launch(environment(e));
  e["OMPI_COMM_WORLD_RANK"] = "1";
  const auto b = find_launch(environment(e));
  e["PMIX_NAMESPACE"] = "4712";
  const auto other = find_launch(environment(e));
  ASSERT_TRUE(a && b && other);
  EXPECT_EQ(a->master, "127.0.0.1");
  EXPECT_EQ(a->port, b->port);
  EXPECT_NE(a->port, other->port);
  e["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { find_launch(environment(e)); }, "-x MASTER_ADDR");
}

TEST(Launch, SlurmsFirstNodeIsTheMaster) {
  const auto l = find_launch(environment({{"SLURM_PROCID", "3"},
                                          {"SLURM_STEP_NUM_TASKS", "7"},
                                          {"SLURM_LOCALID", "1"},
                                          {"SLURM_NODEID", "1"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                                          {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                                          {"SLURM_JOB_ID", "99"}}));
  ASSERT_TRUE(l);
  EXPECT_EQ(l->launcher, "srun");
  EXPECT_EQ(l->master, "gpu07");
  EXPECT_EQ(l->local_world, 2);
  EXPECT_EQ(l->local_rank, 1);
  EXPECT_EQ(first_host("alpha,beta"), "alpha");
  EXPECT_EQ(first_host("alpha"), "alpha");
  EXPECT_EQ(first_host("n[3]-ib,m"), "n3-ib");
  EXPECT_EQ(first_host("a,n[1-2]"), "a");
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [] { first_host("n[1"); }, "node list");
}

TEST(Launch, NonsenseIsRefused) {
  const auto with = [](std::string rank, std::string world, std::string port = "1") {
    return environment({{"RANK", rank}, {"WORLD_SIZE", world}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", port}});
  };
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { find_launch(with("2", "2")); }, "RANK is '2'");
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { find_launch(with("-1", "2")); }, "RANK");
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { find_launch(with("0", "2x")); }, "WORLD_SIZE is '2x'");
  ebclr::testing::expect_error(
      core::ExitCode::kUsage, [&] { find_launch(with("0", "2", "70000")); }, "MASTER_PORT");
  ebclr::testing::expect_error(
      core::ExitCode::kUsage,
      [&] {
        find_launch(environment({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}}));
      },
      "RANK is not");
}

TEST(Launch, KnowsARestart) {
  EXPECT_EQ(restart_count(environment({})), 0);
  EXPECT_EQ(restart_count(environment({{"TORCHELASTIC_RESTART_COUNT", "0"}})), 0);
  EXPECT_EQ(restart_count(environment({{"TORCHELASTIC_RESTART_COUNT", "2"}})), 2);
  EXPECT_EQ(restart_count(environment({{"SLURM_RESTART_COUNT", "1"}})), 1);
}

TEST(Launch, DividesTheCoresOfAHost) {
  const Launch torchrun{.launcher = "torchrun", .world = 8, .local_world = 4};
  EXPECT_EQ(threads_of(torchrun, 8, 8), 2);
  EXPECT_EQ(threads_of(torchrun, 4, 8), 1);  // a container with half of the machine
  EXPECT_EQ(threads_of(torchrun, 2, 8), 1);
  // Cores that mpirun has bound to a rank are its own.
  const Launch mpirun{.launcher = "mpirun", .world = 8, .local_world = 4};
  EXPECT_EQ(threads_of(mpirun, 2, 8), 2);
  EXPECT_EQ(threads_of(mpirun, 8, 8), 2);
}

}  // namespace
}  // namespace ebclr::dist
