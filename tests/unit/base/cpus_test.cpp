#include "base/cpus.hpp"

#include <gmock/gmock.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/temporary_folder.hpp"

namespace strait {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(Cpus, ListIsStrict) {
  EXPECT_THAT(cpus_of_list("", 16), Optional(IsEmpty()));
  EXPECT_THAT(cpus_of_list("0-2,8,1-1", 16), Optional(ElementsAre(0, 1, 2, 8, 1)));
  EXPECT_THAT(cpus_of_list("15", 16), Optional(ElementsAre(15)));
  for (const char* wrong : {",", "1,", ",1", "1,,2", "-", "1-", "-1", "2-1", "x", "1 ", " 1", "1-2-3", "+1", "16",
                            "0-16", "4294967296", "0x1"})
    EXPECT_FALSE(cpus_of_list(wrong, 16)) << '"' << wrong << '"';
}

class Quota : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const auto path = std::filesystem::path(root_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  double cores() const { return cpu_quota(root_.path()).cores; }
  const testing::TemporaryFolder root_;
};

TEST_F(Quota, IsThatOfTheGroupAndOfThoseAboveIt) {
  EXPECT_EQ(cores(), 0);
  write("proc/self/cgroup", "3:cpuset:/other\n0::/jobs/mine\n");
  write("sys/fs/cgroup/other/cpu.max", "10000 100000\n");
  for (const char* none : {"max 100000\n", "", "0 100000\n", "x y\n", "50000\n"}) {
    write("sys/fs/cgroup/jobs/mine/cpu.max", none);
    EXPECT_EQ(cores(), 0) << none;
  }
  EXPECT_EQ(cpu_quota(root_.path()).group, 0);
  write("sys/fs/cgroup/jobs/mine/cpu.max", "400000 100000\n");
  EXPECT_EQ(cores(), 4);
  const std::uint64_t own = cpu_quota(root_.path()).group;
  write("sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");
  EXPECT_EQ(cores(), 2.5);
  EXPECT_NE(cpu_quota(root_.path()).group, own);
  write("proc/self/cgroup", "0::/jobs/another\n");
  const CpuQuota shared = cpu_quota(root_.path());
  write("proc/self/cgroup", "0::/jobs/mine\n");
  EXPECT_EQ(cpu_quota(root_.path()).group, shared.group);
}

TEST_F(Quota, IsFoundInContainersAndInVersionOne) {
  write("sys/fs/cgroup/cpu.max", "150000 50000\n");
  EXPECT_EQ(cores(), 3);
  write("proc/self/cgroup", "0::/\n4:cpuacct,cpu:/docker/1\n5:cpuset:/docker/2\n");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "75000\n");
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 0.75);
  write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cores(), 3);
}

TEST_F(Quota, IsRoundedUpAndGivesNoCpus) {
  EXPECT_EQ(within_quota(128, {}), 128u);
  EXPECT_EQ(within_quota(128, {8, 1}), 8u);
  EXPECT_EQ(within_quota(128, {0.1, 1}), 1u);
  EXPECT_EQ(within_quota(128, {7.5, 1}), 8u);
  EXPECT_EQ(within_quota(4, {1e9, 1}), 4u);
}

TEST(Cpus, AllowedAreThoseOfTheThread) {
  const std::uint32_t last = allowed_cpus().back();
  std::thread([last] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_THAT(allowed_cpus(), ElementsAre(last));
  }).join();
}

}  // namespace
}  // namespace strait
