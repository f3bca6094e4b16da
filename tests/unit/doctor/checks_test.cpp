#include "doctor/checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "doctor/print.hpp"
#include "support/temporary_folder.hpp"

namespace strait::doctor {
namespace {

using ::testing::HasSubstr;

/// A machine in good order without devices, in its own folder.
class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    machine.root = tree.path();
    machine.memlock_bytes = UINT64_MAX;
    machine.open_files = 65536;
    machine.shm_bytes = std::uint64_t{8} << 30;
    machine.usable_cores = 8;
    machine.nvml_library = tree.path("libnvidia-ml.so.1");
    machine.verbs_library = tree.path("libibverbs.so.1");
  }

  void add_device(const std::string& address, const std::string& pci_class, const std::string& speed,
                  const std::string& width) const {
    const std::string folder = "sys/bus/pci/devices/" + address + "/";
    tree.write(folder + "class", pci_class + "\n");
    tree.write(folder + "current_link_speed", speed + " GT/s PCIe\n");
    tree.write(folder + "current_link_width", width + "\n");
    tree.write(folder + "max_link_speed", "16.0 GT/s PCIe\n");
    tree.write(folder + "max_link_width", "16\n");
  }

  testing::TemporaryFolder tree;
  Machine machine;
};

/// Returns the only finding of this check, or an error if there is not exactly one.
const Finding& only(const Findings& findings, const std::string& check) {
  static const Finding none{Severity::error, "", "there is not exactly one", "", ""};
  const Finding* found = nullptr;
  for (const Finding& finding : findings)
    if (finding.check == check) {
      if (found != nullptr) return none;
      found = &finding;
    }
  return found != nullptr ? *found : none;
}

TEST_F(Doctor, FindsNothingOnAMachineInOrder) {
  add_device("0000:01:00.0", "0x030200", "16.0", "16");
  const Findings findings = check_all(machine);
  EXPECT_EQ(exit_code(findings), 0) << to_text(findings);
  EXPECT_EQ(only(findings, "pcie_link").severity, Severity::ok);
}

TEST_F(Doctor, SeesNarrowLinks) {
  add_device("0000:41:00.0", "0x020700", "16.0", "8");
  const Findings findings = check_pcie(machine);
  const Finding& finding = only(findings, "pcie_link");
  EXPECT_EQ(finding.severity, Severity::warning);
  EXPECT_THAT(finding.what, ::testing::HasSubstr("NIC 0000:41:00.0 runs at 16 GT/s x8, and could at 16 GT/s x16"));
  EXPECT_THAT(finding.cost, ::testing::HasSubstr("50%"));
  EXPECT_EQ(exit_code(findings), 1);
}

TEST_F(Doctor, AnIdleGpuMayRunSlowButNotNarrow) {
  add_device("0000:01:00.0", "0x030000", "2.5", "16");
  EXPECT_EQ(only(check_pcie(machine), "pcie_link").severity, Severity::note);
  add_device("0000:01:00.0", "0x030000", "2.5", "4");
  EXPECT_EQ(only(check_pcie(machine), "pcie_link").severity, Severity::warning);
}

TEST_F(Doctor, UnknownLinksAreNoFindings) {
  add_device("0000:01:00.0", "0x030000", "Unknown", "0");
  tree.write("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
  EXPECT_EQ(only(check_pcie(machine), "pcie_link").what, "there is not exactly one");
}

TEST_F(Doctor, ReadsAcsFromTheConfigurationSpace) {
  std::string config(4096, '\0');
  const auto put = [&](std::size_t at, unsigned word) {
    config[at] = static_cast<char>(word & 0xff);
    config[at + 1] = static_cast<char>(word >> 8);
  };
  put(0x100, 0x0001);  // AER, next at 0x148
  put(0x102, 0x1480 | 0x1);
  put(0x148, 0x000d);  // ACS
  put(0x14e, 0x0004);  // request redirect is on
  const std::string bridge = "sys/bus/pci/devices/0000:00:01.0/";
  tree.write(bridge + "class", "0x060400\n");
  tree.write(bridge + "config", config);
  add_device("0000:01:00.0", "0x030200", "16.0", "16");
  EXPECT_EQ(only(check_pcie(machine), "acs").severity, Severity::warning);
  EXPECT_THAT(only(check_pcie(machine), "acs").what, ::testing::HasSubstr("0000:00:01.0"));
  put(0x14e, 0);
  tree.write(bridge + "config", config);
  EXPECT_EQ(only(check_pcie(machine), "acs").what, "there is not exactly one");
  put(0x102, 0x1000 | 0x1);  // a circular list of capabilities must not hang the check
  tree.write(bridge + "config", config);
  EXPECT_EQ(only(check_pcie(machine), "acs").what, "there is not exactly one");
}

TEST_F(Doctor, AnIommuMattersToGpusUnlessItPassesThrough) {
  tree.write("sys/kernel/iommu_groups/0/type", "DMA\n");
  EXPECT_EQ(only(check_pcie(machine), "iommu").severity, Severity::ok);
  add_device("0000:01:00.0", "0x030200", "16.0", "16");
  EXPECT_EQ(only(check_pcie(machine), "iommu").severity, Severity::warning);
  tree.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz iommu=pt\n");
  EXPECT_EQ(only(check_pcie(machine), "iommu").severity, Severity::ok);
}

TEST_F(Doctor, SeesLimitsOfTheProcess) {
  machine.memlock_bytes = 8 << 20;
  machine.open_files = 256;
  EXPECT_EQ(only(check_limits(machine), "memlock").severity, Severity::warning);
  EXPECT_EQ(only(check_limits(machine), "open_files").severity, Severity::warning);
}

TEST_F(Doctor, WithoutAnySharedMemoryNothingRuns) {
  machine.has_memfd = false;
  EXPECT_EQ(only(check_memory(machine), "memfd").severity, Severity::warning);
  machine.shm_bytes = 0;
  EXPECT_EQ(exit_code(check_memory(machine)), 2);
}

TEST_F(Doctor, SeesQuotaLoadAndGovernor) {
  tree.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  tree.write("proc/loadavg", "6.50 1.0 1.0 1/100 1\n");
  tree.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  tree.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "acpi-cpufreq\n");
  for (const char* check : {"cpu_quota", "cpu_load", "cpu_governor"})
    EXPECT_EQ(only(check_processor(machine), check).severity, Severity::warning) << check;
  EXPECT_THAT(only(check_processor(machine), "cpu_load").what, HasSubstr("over the last minute 6.5 threads ran or"));
  tree.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  tree.write("proc/loadavg", "0.10 1.0 1.0 1/100 1\n");
  tree.write("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
  EXPECT_EQ(exit_code(check_processor(machine)), 0);
}

TEST_F(Doctor, SeesTheQuotaOfItsOwnGroupAndOfThoseAboveIt) {
  const auto what = [&] { return only(check_processor(machine), "cpu_quota").what; };
  tree.write("proc/self/cgroup", "3:cpuset:/other\n0::/jobs/mine\n");
  tree.write("sys/fs/cgroup/jobs/mine/cpu.max", "50000 100000\n");
  tree.write("sys/fs/cgroup/cpu/other/cpu.max", "10000 100000\n");  // this process is not in that group
  for (const char* above : {"max 100000\n", "100000 100000\n"}) {
    tree.write("sys/fs/cgroup/jobs/cpu.max", above);
    EXPECT_THAT(what(), HasSubstr("allows 0.5 cores"));
  }
  tree.write("sys/fs/cgroup/jobs/cpu.max", "25000 100000\n");
  EXPECT_THAT(what(), HasSubstr("allows 0.25 cores"));
  tree.write("proc/self/cgroup", "0::/\n4:cpuacct,cpu:/docker/1\n");  // cgroups version 1
  tree.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "75000\n");
  tree.write("sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_THAT(what(), HasSubstr("allows 0.75 cores"));
  tree.write("proc/self/cgroup", "0::/../jobs/mine\n");  // a cgroup outside of this namespace
  EXPECT_EQ(exit_code(check_processor(machine)), 0);
}

TEST_F(Doctor, SeesAdaptersWhosePortIsNotActive) {
  tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  tree.write("sys/class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  EXPECT_EQ(only(check_network(machine), "hca").severity, Severity::ok);
  tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  EXPECT_EQ(only(check_network(machine), "hca").severity, Severity::warning);
}

TEST_F(Doctor, FindsXidErrorsInTheKernelLog) {
  machine.kernel_log = "4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n";
  EXPECT_EQ(only(check_kernel_log(machine), "xid").severity, Severity::error);
  machine.kernel_log = "6,1,2,-;eth0: link up\n";
  EXPECT_EQ(exit_code(check_kernel_log(machine)), 0);
  machine.kernel_log_problem = "Operation not permitted";
  EXPECT_EQ(only(check_kernel_log(machine), "kernel_log").severity, Severity::note);
}

TEST_F(Doctor, KnowsWhetherRdmaCanBeUsed) {
  EXPECT_TRUE(check_rdma(machine).empty());  // without a card, verbs are not needed
  tree.write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  EXPECT_EQ(only(check_rdma(machine), "verbs").severity, Severity::warning);
  EXPECT_THAT(only(check_rdma(machine), "verbs").what, ::testing::HasSubstr("Install rdma-core"));
  const auto gids = [&](const char* library) {
    machine.verbs_library = library;
    return check_rdma(machine);
  };
  EXPECT_EQ(only(gids(FAKE_VERBS_INFINIBAND), "gid").severity, Severity::ok);
  const Findings roce = gids(FAKE_VERBS_ROCE);
  ASSERT_EQ(roce.size(), 2U);
  EXPECT_THAT(roce[1].what, ::testing::HasSubstr("mlx5_0 port 2 has GID 3: ::ffff:10.0.0.1, RoCE v2"));
  const Findings none = gids(FAKE_VERBS_NO_GID);
  ASSERT_EQ(none.size(), 2U);
  EXPECT_EQ(none[0].severity, Severity::warning);
  EXPECT_THAT(none[0].what, ::testing::HasSubstr("no GID in use"));
  EXPECT_EQ(only(gids(FAKE_VERBS_EMPTY), "verbs").severity, Severity::warning);
}

TEST_F(Doctor, AMissingOrBrokenNvmlIsTold) {
  EXPECT_EQ(only(check_gpus(machine), "gpu_driver").severity, Severity::note);
  machine.nvml_library = "libc.so.6";  // a library without any of NVML's functions
  EXPECT_EQ(only(check_gpus(machine), "gpu_driver").severity, Severity::error);
}

TEST_F(Doctor, SeesGpusThatAreHotSlowedDownOrCountErrors) {
  machine.nvml_library = FAKE_NVML;
  EXPECT_EQ(exit_code(check_gpus(machine)), 0);
  const auto severity = [&](const char* check, const char* variable, const char* value) {
    setenv(variable, value, 1);
    const Findings findings = check_gpus(machine);
    unsetenv(variable);
    return only(findings, check).severity;
  };
  EXPECT_EQ(severity("gpu_temperature", "FAKE_CELSIUS", "84"), Severity::ok);
  EXPECT_EQ(severity("gpu_temperature", "FAKE_CELSIUS", "85"), Severity::warning) << "it slows down at 90";
  EXPECT_EQ(severity("gpu_throttle", "FAKE_THROTTLE_REASONS", "64"), Severity::warning);
  EXPECT_EQ(severity("gpu_ecc", "FAKE_ECC_ERRORS", "1"), Severity::error);
  for (const char* stops_traffic : {"FAKE_NVLINK_ERRORS_0", "FAKE_NVLINK_ERRORS_1"})
    EXPECT_EQ(severity("nvlink_errors", stops_traffic, "1"), Severity::warning);
  for (const char* is_corrected : {"FAKE_NVLINK_ERRORS_2", "FAKE_NVLINK_ERRORS_3"})
    EXPECT_EQ(severity("nvlink_errors", is_corrected, "100"), Severity::note);
}

TEST_F(Doctor, JsonHoldsEverythingAndTheExitCode) {
  const Findings findings{{Severity::warning, "nic", "\xff is \"down\"", "a rate", "a cable"}};
  const auto json = nlohmann::json::parse(to_json(findings));
  EXPECT_EQ(json["exit_code"], 1);
  EXPECT_EQ(json["findings"][0]["severity"], "warning");
  EXPECT_EQ(json["findings"][0]["fix"], "a cable");
}

}  // namespace
}  // namespace strait::doctor
