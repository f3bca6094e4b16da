#include "topology/detect.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/temporary_folder.hpp"
#include "topology/json.hpp"
#include "topology/survey.hpp"
#include "topology/sysfs_files.hpp"

namespace strait {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A machine's /sys in a temporary directory.
class FakeMachine : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { root_.write(path, text); }
  void link(const std::string& path, const std::string& target) {
    fs::create_directories(fs::path(root_.path(path)).parent_path());
    fs::create_directory_symlink(root_.path(target), root_.path(path));
  }
  /// Adds a PCI function at `path` below /sys/devices.
  void pci(const std::string& path, const std::string& class_code, const std::string& vendor, int numa,
           const std::string& speed = "16.0 GT/s PCIe", const std::string& width = "16") {
    const std::string at = "sys/devices/" + path;
    write(at + "/class", class_code + "\n");
    write(at + "/vendor", vendor + "\n");
    write(at + "/numa_node", std::to_string(numa) + "\n");
    write(at + "/current_link_speed", speed + "\n");
    write(at + "/max_link_speed", speed + "\n");
    write(at + "/current_link_width", width + "\n");
    write(at + "/max_link_width", "16\n");
    link("sys/bus/pci/devices/" + fs::path(path).filename().string(), at);
  }
  void numa(int number, const std::string& cpus) {
    write("sys/devices/system/node/node" + std::to_string(number) + "/cpulist", cpus + "\n");
  }
  static std::string acs_config(unsigned char control) {
    std::string config(0x110, '\0');
    config[0x100] = 0x0d;  // the capability's ID; its next pointer is 0: it is the last one
    config[0x106] = static_cast<char>(control);
    return config;
  }
  static constexpr const char* bridge = "0x060400";
  static constexpr const char* display = "0x030200";
  static constexpr const char* port = "pci0000:40/0000:40:01.0";
  /// Adds two GPUs behind one switch: a root port, the upstream port, and a downstream port for each GPU.
  void two_gpus_on_a_switch() {
    numa(0, "0-3");
    numa(1, "4-7");
    const std::string upstream = std::string(port) + "/0000:43:00.0";
    pci(port, bridge, "0x8086", 1);
    pci(upstream, bridge, "0x1000", 1);
    for (const std::string n : {"1", "2"}) {
      pci(upstream + "/0000:44:0" + n + ".0", bridge, "0x1000", 1);
      pci(upstream + "/0000:44:0" + n + ".0/0000:4" + n + ":00.0", display, "0x10de", 1);
    }
  }
  void set_acs(unsigned char control) {
    for (const char* n : {"1", "2"})
      write(std::string("sys/bus/pci/devices/0000:44:0") + n + ".0/config", acs_config(control));
  }

  Topology detected(const std::string& nvml = "") {
    auto result = detect({.root = root_.path(), .hwloc_library = "", .nvml_library = nvml, .verbs_library = ""});
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return std::move(result).value();
  }
  static Path between_gpus(const Topology& topology) {
    const auto gpus = topology.all(DeviceKind::gpu);
    return topology.path(gpus.at(0), gpus.at(1));
  }
  const testing::TemporaryFolder root_;
};

TEST_F(FakeMachine, AnEmptySysfsIsAMachineWithOneNumaNodeAndNotes) {
  const Topology topology = detected();
  EXPECT_EQ(topology.all(DeviceKind::numa).size(), 1U);
  EXPECT_TRUE(topology.all(DeviceKind::gpu).empty());
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("no NUMA nodes")));
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("no PCI devices")));
}

TEST_F(FakeMachine, ASwitchIsOneDeviceBelowItsRootPort) {
  two_gpus_on_a_switch();
  const Topology topology = detected();
  const auto gpus = topology.all(DeviceKind::gpu);
  ASSERT_EQ(gpus.size(), 2U);
  const DeviceId parent = topology.device(gpus[0]).parent;
  EXPECT_EQ(parent, topology.device(gpus[1]).parent);
  EXPECT_EQ(topology.device(parent).kind, DeviceKind::pcie_switch);
  EXPECT_EQ(topology.device(topology.device(parent).parent).kind, DeviceKind::root_port);
  EXPECT_THAT(topology.device(topology.numa_of(gpus[0])).name, HasSubstr("/numa1"));
  // 16 GT/s on 16 lanes: 31.5 GB/s raw, of which four fifths are taken.
  EXPECT_NEAR(topology.path(gpus[0], topology.numa_of(gpus[0])).bandwidth_gbps, 25.2, 0.1);
}

/// Even if the card could use more lanes. 8 GT/s is the first generation with 128b/130b encoding.
TEST_F(FakeMachine, ALinkIsAsFastAsTheLanesThatItRunsOn) {
  const auto gbps_of_lanes = [&](const std::string& lanes) {
    fs::remove_all(root_.path("sys"));
    numa(0, "0-3");
    pci("pci0000:40/0000:41:00.0", display, "0x10de", 0, "8.0 GT/s PCIe", lanes);
    const Topology topology = detected();
    return topology.path(topology.ranks().at(0), topology.all(DeviceKind::numa).at(0)).bandwidth_gbps;
  };
  EXPECT_NEAR(gbps_of_lanes("8"), 6.3, 0.05);
  for (const char* unknown : {"0", "63", "255"}) EXPECT_NEAR(gbps_of_lanes(unknown), 12.6, 0.05);
}

/// An assumed rate of memory could limit what faster links deliver.
TEST_F(FakeMachine, WhatMemoryGivesIsNotAssumed) {
  two_gpus_on_a_switch();
  const Topology topology = detected();
  for (const DeviceId numa : topology.all(DeviceKind::numa))
    EXPECT_EQ(topology.resource(*topology.memory_of(numa)).bandwidth_gbps, 0);
}

TEST_F(FakeMachine, WithoutNvmlP2pIsUnknownAndGoesThroughTheHost) {
  two_gpus_on_a_switch();
  const Topology topology = detected("/nonexistent/libnvidia-ml.so.1");
  EXPECT_EQ(between_gpus(topology).kind, PathKind::host);
  EXPECT_EQ(between_gpus(topology).reason, P2pStatus::unknown);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("NVML cannot be loaded")));
}

TEST_F(FakeMachine, NvmlGivesNvlinksTheirRateAndNames) {
  two_gpus_on_a_switch();
  const Topology topology = detected(FAKE_NVML_GOOD);
  const Path path = between_gpus(topology);
  EXPECT_EQ(path.kind, PathKind::nvlink);
  EXPECT_NEAR(path.bandwidth_gbps, 4 * 14.062, 0.01);
  EXPECT_EQ(topology.device(topology.all(DeviceKind::gpu)[0]).model, "Fake GPU");
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("NVLinks that are down: 4")));
}

TEST_F(FakeMachine, NvmlsReasonIsKept) {
  two_gpus_on_a_switch();
  const Path path = between_gpus(detected(FAKE_NVML_CNS));
  EXPECT_EQ(path.kind, PathKind::host);
  EXPECT_EQ(path.reason, P2pStatus::chipset_not_supported);
}

TEST_F(FakeMachine, AnOldNvmlIsUsedAsFarAsItGoes) {
  two_gpus_on_a_switch();
  const Topology topology = detected(FAKE_NVML_SPARSE);
  EXPECT_EQ(between_gpus(topology).reason, P2pStatus::unknown);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("nvmlDeviceGetP2PStatus")));
}

TEST_F(FakeMachine, NvmlThatFailsIsToldAndSurvived) {
  two_gpus_on_a_switch();
  const Topology failing = detected(FAKE_NVML_FAILING);
  EXPECT_EQ(between_gpus(failing).reason, P2pStatus::unknown);
  EXPECT_THAT(failing.data().notes, Contains(HasSubstr("GPU is lost")));
  const Topology refusing = detected(FAKE_NVML_REFUSING);
  EXPECT_EQ(refusing.all(DeviceKind::gpu).size(), 2U);
  EXPECT_THAT(refusing.data().notes, Contains(HasSubstr("Driver Not Loaded")));
}

TEST_F(FakeMachine, ASharedLibraryThatIsNoNvmlIsRefused) {
  two_gpus_on_a_switch();
  EXPECT_THAT(detected("libc.so.6").data().notes, Contains(HasSubstr("lacks functions")));
}

TEST_F(FakeMachine, GpusThatAContainerHidesFromSysfsAreFoundByNvml) {
  const Topology topology = detected(FAKE_NVML_CNS);
  EXPECT_EQ(topology.all(DeviceKind::gpu).size(), 2U);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("container hides it")));
}

TEST_F(FakeMachine, GpusThatNvmlDoesNotListAreLeftOut) {
  two_gpus_on_a_switch();
  pci("pci0000:60/0000:61:00.0", display, "0x10de", 0);
  const Topology topology = detected(FAKE_NVML_CNS);
  EXPECT_EQ(topology.all(DeviceKind::gpu).size(), 2U);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("0000:61:00.0 is left out")));
}

TEST_F(FakeMachine, GrantedP2pIsP2pOverPcie) {
  two_gpus_on_a_switch();
  set_acs(0);
  const Topology topology = detected(FAKE_NVML_GRANTED);
  EXPECT_EQ(between_gpus(topology).kind, PathKind::pcie);
  EXPECT_EQ(between_gpus(topology).crosses.size(), 2U);  // up to the switch, and down
}

TEST_F(FakeMachine, AcsTakesP2pAway) {
  two_gpus_on_a_switch();
  set_acs(0x1d);
  const Path path = between_gpus(detected(FAKE_NVML_GRANTED));
  EXPECT_EQ(path.kind, PathKind::host);
  EXPECT_EQ(path.reason, P2pStatus::acs);
}

TEST_F(FakeMachine, AcsThatOnlyRootMayReadIsToldAsUnknown) {
  two_gpus_on_a_switch();
  const auto notes_where_bridges_show = [&](const std::string& config) {
    for (const char* bus_id : {"0000:40:01.0", "0000:43:00.0", "0000:44:01.0", "0000:44:02.0"})
      write(std::string("sys/bus/pci/devices/") + bus_id + "/config", config);
    return detected(FAKE_NVML_GRANTED).data().notes;
  };
  const auto unknown = Contains(HasSubstr("(ACS): not known here"));
  EXPECT_THAT(notes_where_bridges_show(acs_config(0)), Not(unknown));
  for (const std::size_t bytes : {0, 64, 256})
    EXPECT_THAT(notes_where_bridges_show(std::string(bytes, '\0')), unknown) << bytes;
}

TEST_F(FakeMachine, ATranslatingIommuTakesP2pAway) {
  two_gpus_on_a_switch();
  for (const char* translated : {"0000:41:00.0", "0000:42:00.0"}) {
    const std::string group = std::string("sys/bus/pci/devices/") + translated + "/iommu_group";
    write(group + "/type", "DMA-FQ\n");
    EXPECT_EQ(between_gpus(detected(FAKE_NVML_GRANTED)).reason, P2pStatus::iommu) << translated;
    fs::remove_all(root_.path(group));
  }
}

TEST_F(FakeMachine, AnIommuThatPassesThroughDoesNot) {
  two_gpus_on_a_switch();
  write("sys/bus/pci/devices/0000:41:00.0/iommu_group/type", "identity\n");
  EXPECT_EQ(between_gpus(detected(FAKE_NVML_GRANTED)).kind, PathKind::pcie);
}

TEST_F(FakeMachine, CpuLists) {
  EXPECT_THAT(parse_cpu_list("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list("x,3,-,5-4"), ElementsAre(3));
}

TEST_F(FakeMachine, LastLevelCachesAreCountedOnce) {
  numa(0, "0-3");
  for (const int cpu : {0, 1, 2, 3}) {
    const std::string at = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/";
    write(at + "index0/level", "1\n");
    write(at + "index0/size", "32K\n");
    write(at + "index3/level", "3\n");
    write(at + "index3/size", "16384K\n");
    write(at + "index3/shared_cpu_list", cpu < 2 ? "0-1\n" : "2-3\n");
  }
  const Topology topology = detected();
  EXPECT_EQ(topology.device(topology.all(DeviceKind::numa)[0]).cache_bytes, 32ULL << 20);
}

TEST_F(FakeMachine, NicsOfAllKinds) {
  numa(0, "0-3");
  pci("pci0000:00/0000:00:02.0", "0x020000", "0x8086", 0);
  pci("pci0000:00/0000:00:03.0", "0x020000", "0x8086", 0);
  pci("pci0000:00/0000:00:04.0", "0x020700", "0x15b3", 0);
  for (const auto& [name, bus_id] :
       {std::pair{"eth0", "0000:00:02.0"}, {"eth1", "0000:00:03.0"}, {"ib0", "0000:00:04.0"}}) {
    write(std::string("sys/class/net/") + name + "/speed", "10000\n");
    write(std::string("sys/class/net/") + name + "/operstate", "up\n");
    link(std::string("sys/class/net/") + name + "/device", std::string("sys/devices/pci0000:00/") + bus_id);
  }
  write("sys/class/net/bond0/bonding/slaves", "eth0 eth1\n");
  write("sys/class/net/docker0/operstate", "up\n");
  const std::string card = "sys/class/infiniband/mlx5_0";
  link(card + "/device", "sys/devices/pci0000:00/0000:00:04.0");
  write(card + "/ports/1/rate", "400 Gb/sec (4X NDR)\n");
  write(card + "/ports/1/state", "4: ACTIVE\n");
  write(card + "/ports/1/link_layer", "InfiniBand\n");
  write(card + "/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n");
  write(card + "/ports/2/state", "1: DOWN\n");
  const Topology topology = detected();
  std::map<std::string, double> rates;
  for (const Link& link : topology.data().links)
    if (link.kind == LinkKind::network) {
      const std::string name = topology.device(link.lower).name;
      rates[name.substr(name.find('/') + 1)] = link.up_gbps;
    }
  EXPECT_EQ(rates, (std::map<std::string, double>{{"bond0", 2.5}, {"mlx5_0", 50}}));
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("mlx5_0 port 2 is in state 1: DOWN")));
  EXPECT_THAT(topology.data().notes, Not(Contains(HasSubstr("GID"))));
}

TEST_F(FakeMachine, AVirtualInterfaceCountsWhereThereIsNoOther) {
  write("sys/class/net/eth0/operstate", "up\n");
  write("sys/class/net/eth0/speed", "10000\n");
  write("sys/class/net/lo/operstate", "unknown\n");
  const Topology topology = detected();
  EXPECT_EQ(topology.all(DeviceKind::nic).size(), 1U);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("eth0 is virtual")));
}

TEST_F(FakeMachine, WhatIsDetectedCanBeWrittenAndReadAgain) {
  two_gpus_on_a_switch();
  const std::string json = to_json(detected(FAKE_NVML_GOOD));
  const auto again = parse_topology_json(json, "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), json);
}

TEST(Detection, ThisMachine) {
  const auto topology = detect();
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_FALSE(topology->ranks().empty());
}

TEST(Assemble, PairsThatAreUnlikeTheOthersKeepTheirStatus) {
  HostSurvey host;
  for (const char* bus_id : {"0000:41:00.0", "0000:42:00.0", "0000:43:00.0"}) host.gpus.push_back({.bus_id = bus_id});
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b) host.p2p[{a, b}] = P2pStatus::ok;
  host.p2p[{0, 2}] = P2pStatus::chipset_not_supported;
  const auto topology = assemble("a machine", {host});
  ASSERT_TRUE(topology) << topology.error().message;
  const auto gpus = topology->ranks();
  EXPECT_EQ(topology->p2p(gpus[0], gpus[1]), P2pStatus::ok);
  EXPECT_EQ(topology->p2p(gpus[0], gpus[2]), P2pStatus::chipset_not_supported);
  EXPECT_EQ(topology->p2p(gpus[2], gpus[0]), P2pStatus::ok);
}

TEST(Assemble, AHostMayBeCalledNetwork) {
  HostSurvey host;
  host.name = "network";
  host.nics.push_back({.name = "eth0", .gbps = 1});
  const auto topology = assemble("a machine", {host});
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_TRUE(topology->find("network/eth0"));
  EXPECT_EQ(topology->all(DeviceKind::network_switch).size(), 1U);
}

}  // namespace
}  // namespace strait
