#include "bootstrap/launch.hpp"
#include "launchers.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<LaunchInfo> read(const Variables& variables) { return read_launch_environment(environment_of(variables)); }

const Variables torchrun = {{"RANK", "3"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "192.0.2.7"},
                            {"MASTER_PORT", "29500"},
                            {"TORCHELASTIC_RUN_ID", "job"},
                            {"LOCAL_WORLD_SIZE", "2"}};
const Variables slurm = {{"SLURM_PROCID", "5"},  {"SLURM_STEP_NUM_TASKS", "8"},
                         {"SLURM_NTASKS", "64"}, {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"},
                         {"SLURM_LOCALID", "1"}, {"SLURM_STEP_NODELIST", "node[07-09,12]"}};

TEST(Launch, NoLauncherIsOneRank) {
  auto info = read({});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ranks, 1);
  EXPECT_EQ(info->meeting, Meeting::alone);
}

/// Each process of a job would be rank 0 of 1. But other programs set them, too.
TEST(Launch, PartOfTorchrunsVariablesIsSaid) {
  for (const auto& [missing, others] : {std::pair{"MASTER_ADDR", "8"}, {"MASTER_PORT", "8"}, {"MASTER_ADDR", "1"}}) {
    Variables variables = with(torchrun, {{"WORLD_SIZE", others}});
    variables.erase(missing);
    ::testing::internal::CaptureStderr();
    const auto info = read(variables);
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(info);
    EXPECT_EQ(info->meeting, Meeting::alone);
    if (std::string_view(others) == "1")
      EXPECT_EQ(said, "");
    else
      EXPECT_THAT(said, AllOf(HasSubstr("WORLD_SIZE=8"), HasSubstr(missing)));
  }
}

TEST(Launch, ByHand) {
  Variables variables = {
      {"STRAIT_RANK", "2"}, {"STRAIT_RANKS", "4"}, {"STRAIT_ROOT", "[::1]:7000"}, {"STRAIT_KEY", secret}};
  auto info = read(variables);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->rank, 2);
  EXPECT_EQ(info->ranks, 4);
  EXPECT_EQ(info->meeting, Meeting::address);
  EXPECT_EQ(info->root.host, "::1");
  EXPECT_EQ(info->root.port, 7000);
  EXPECT_FALSE(info->key_is_derived);
  EXPECT_THAT(read({{"STRAIT_RANK", "2"}}), FailsWith(Code::invalid_argument, HasSubstr("STRAIT_RANKS is not set")));
  // Else each process of a job would be rank 0 of 1.
  EXPECT_THAT(read({{"STRAIT_RANKS", "4"}}), FailsWith(Code::invalid_argument, HasSubstr("STRAIT_RANK is not set")));
  EXPECT_THAT(read({{"STRAIT_RANK", "x"}, {"STRAIT_RANKS", "4"}}),
              FailsWith(Code::invalid_argument, HasSubstr("STRAIT_RANK=\"x\"")));
  EXPECT_THAT(read({{"STRAIT_RANK", "4"}, {"STRAIT_RANKS", "4"}}),
              FailsWith(Code::invalid_argument, HasSubstr("rank 4 of 4")));
  EXPECT_THAT(read({{"STRAIT_RANK", "1"}, {"STRAIT_RANKS", "4"}}),
              FailsWith(Code::invalid_usage, HasSubstr("STRAIT_ROOT")));
  EXPECT_THAT(read(with(variables, {{"STRAIT_ROOT", "node7"}})),
              FailsWith(Code::invalid_argument, HasSubstr("host:port")));
  EXPECT_THAT(read(with(variables, {{"STRAIT_KEY", ""}})), FailsWith(Code::invalid_usage, HasSubstr("STRAIT_KEY")));
  EXPECT_THAT(read(with(variables, {{"STRAIT_KEY", "hunter2"}})),
              FailsWith(Code::invalid_argument, AllOf(HasSubstr("64 hexadecimal digits"), Not(HasSubstr("hunter2")))));
}

/// A key that everybody derives from nothing would be no key.
TEST(Launch, AKeyIsDerivedOnlyFromAJob) {
  EXPECT_THAT(read({{"STRAIT_RANK", "2"},
                    {"STRAIT_RANKS", "4"},
                    {"STRAIT_ROOT", "node7:7000"},
                    {"STRAIT_ALLOW_DERIVED_KEY", "1"}}),
              FailsWith(Code::invalid_usage, HasSubstr("STRAIT_KEY")));
}

TEST(Launch, KeysAndNumbersAreTakenAsAWhole) {
  for (const std::string& key : {secret + "a", secret.substr(1), std::string(63, 'a') + "g"})
    EXPECT_THAT(read(with(torchrun, {{"STRAIT_KEY", key}})),
                FailsWith(Code::invalid_argument, HasSubstr("64 hexadecimal digits")));
  EXPECT_THAT(read(with(torchrun, {{"WORLD_SIZE", "0"}})), FailsWith(Code::invalid_argument, HasSubstr("WORLD_SIZE")));
  EXPECT_THAT(read(with(torchrun, {{"MASTER_PORT", "0"}})), FailsWith(Code::invalid_argument, HasSubstr("from 1")));
}

/// Ranks of the run before may still be there.
TEST(Launch, ARestartIsAnotherJob) {
  const Variables first = with(torchrun, {{"STRAIT_KEY", secret}, {"TORCHELASTIC_RESTART_COUNT", "0"}});
  EXPECT_NE(read(first)->key, read(with(first, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))->key);
}

TEST(Launch, TorchrunOnSeveralHostsNeedsAKey) {
  EXPECT_THAT(read(torchrun),
              FailsWith(Code::invalid_usage, AllOf(HasSubstr("STRAIT_KEY"), HasSubstr("STRAIT_ALLOW_DERIVED_KEY"))));
  auto info = read(with(torchrun, {{"STRAIT_KEY", secret}}));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->launcher, "torchrun");
  EXPECT_EQ(info->rank, 3);
  EXPECT_EQ(info->ranks, 8);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->meeting, Meeting::address);
  EXPECT_EQ(info->root.host, "192.0.2.7");
  EXPECT_EQ(info->root.port, 30500);
  EXPECT_FALSE(info->key_is_derived);
  auto derived = read(with(torchrun, {{"STRAIT_ALLOW_DERIVED_KEY", "1"}}));
  ASSERT_TRUE(derived);
  EXPECT_TRUE(derived->key_is_derived);
  EXPECT_NE(derived->key, info->key);
  auto other_job = read(with(torchrun, {{"STRAIT_KEY", secret}, {"TORCHELASTIC_RUN_ID", "other"}}));
  EXPECT_NE(other_job->key, info->key) << "one secret, but a key for each job";
  for (const char* root : {"", "192.0.2.7:7000"}) {
    const Variables given = with(torchrun, {{"STRAIT_KEY", secret}, {"STRAIT_ROOT", root}});
    EXPECT_EQ(read(with(given, {{"MASTER_ADDR", "node7"}}))->key, info->key) << "one address, spelled differently";
  }
}

TEST(Launch, TorchrunOnOneHostNeedsNothing) {
  const Variables here = with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}});
  EXPECT_EQ(read(here)->meeting, Meeting::local);
  EXPECT_NE(read(here)->job, read(with(here, {{"MASTER_ADDR", "127.0.0.2"}}))->job);
  EXPECT_EQ(read(with(torchrun, {{"LOCAL_WORLD_SIZE", ""}, {"MASTER_ADDR", "localhost"}}))->meeting, Meeting::local);
  EXPECT_THAT(read(with(torchrun, {{"MASTER_PORT", "many"}})),
              FailsWith(Code::invalid_argument, HasSubstr("MASTER_PORT=\"many\"")));
  EXPECT_EQ(read(with(torchrun, {{"MASTER_PORT", "65000"}, {"STRAIT_KEY", secret}}))->root.port, 64000);
}

TEST(Launch, OpenMpi) {
  auto info = read(open_mpi);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->rank, 1);
  EXPECT_EQ(info->ranks, 4);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->meeting, Meeting::local);
  EXPECT_EQ(read(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}))->meeting, Meeting::pmix);
  EXPECT_THAT(read(with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_RANK", ""}})),
              FailsWith(Code::invalid_usage, HasSubstr("STRAIT_ROOT")));
}

/// Containers may have their host's name and network in common, and Open MPI 5 names a job after host and pid.
TEST(Launch, OpenMpiTellsJobsApartByTheirServers) {
  const auto at = [](const char* version, const char* port) {
    return with(open_mpi, {{"PMIX_SERVER_URI" + std::string(version), std::string("n.0;tcp4://127.0.0.1:") + port}});
  };
  for (const char* version : {"41", "4", "3", "21", "2"}) {
    const auto one = read(at(version, "35521"));
    ASSERT_TRUE(one) << one.error().message;
    EXPECT_EQ(one->job, read(with(at(version, "35521"), {{"OMPI_COMM_WORLD_RANK", "2"}, {"PMIX_RANK", "2"}}))->job);
    EXPECT_NE(one->job, read(at(version, "35522"))->job);
    EXPECT_NE(one->job, read(open_mpi)->job);
  }
  // Every host has a server of its own, and all have one key.
  const Variables root = {{"STRAIT_ROOT", "node7:7000"}, {"STRAIT_KEY", secret}};
  EXPECT_EQ(read(with(at("41", "35521"), root))->key, read(with(at("41", "35522"), root))->key);
}

TEST(Launch, Slurm) {
  auto info = read(with(slurm, {{"STRAIT_KEY", secret}}));
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->launcher, "Slurm");
  EXPECT_EQ(info->rank, 5);
  EXPECT_EQ(info->ranks, 8) << "the step's, not the job's";
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->meeting, Meeting::address);
  EXPECT_EQ(info->root.host, "node07");
  EXPECT_GE(info->root.port, 20000);
  EXPECT_LT(info->root.port, 30000);
  EXPECT_THAT(read(slurm), FailsWith(Code::invalid_usage, HasSubstr("STRAIT_KEY")));
  EXPECT_EQ(read(with(slurm, {{"SLURM_STEP_NUM_NODES", "1"}}))->meeting, Meeting::local);
  EXPECT_EQ(read(with(slurm, {{"PMIX_RANK", "5"}}))->meeting, Meeting::pmix);
  EXPECT_EQ(read(with(slurm, {{"SLURM_STEP_ID", ""}}))->ranks, 1) << "a batch script is no step";
  for (auto [list, first] : {std::pair{"a,b", "a"}, {"a1", "a1"}, {"gpu[3,5]-ib,x", "gpu3-ib"}, {"a[1-2],b", "a1"}})
    EXPECT_EQ(read(with(slurm, {{"STRAIT_KEY", secret}, {"SLURM_STEP_NODELIST", list}}))->root.host, first);
  EXPECT_EQ(read(with(slurm,
                      {{"STRAIT_KEY", secret}, {"SLURM_STEP_NODELIST", ""}, {"SLURM_LAUNCH_NODE_IPADDR", "192.0.2.1"}}))
                ->root.host,
            "192.0.2.1");
}

TEST(Launch, PmixAlone) {
  auto info = read({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "x"}});
  ASSERT_TRUE(info);
  EXPECT_EQ(info->meeting, Meeting::pmix);
  EXPECT_EQ(info->ranks, 0);
}

TEST(HostPorts, AreParsed) {
  EXPECT_EQ(parse_host_port("node7:80")->host, "node7");
  EXPECT_EQ(parse_host_port("[2001:db8::1]:80")->host, "2001:db8::1");
  for (const char* bad :
       {"", "node7", ":80", "node7:", "node7:0", "node7:65536", "node7:8x", "2001:db8::1:80", "[]:80", "[::1:80"})
    EXPECT_THAT(parse_host_port(bad), FailsWith(Code::invalid_argument, HasSubstr("host:port"))) << bad;
}

TEST(HostPorts, AnUnknownHostIsNamed) {
  EXPECT_THAT(resolve("no-such-host.invalid", 80, Deadline::after_ms(1500)),
              ::testing::AnyOf(FailsWith(Code::system_error, HasSubstr("no-such-host.invalid")),
                               FailsWith(Code::timeout, HasSubstr("no-such-host.invalid"))));
}

}  // namespace
}  // namespace strait::testing
