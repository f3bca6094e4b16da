#include "topology/hwloc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "support/temporary_folder.hpp"
#include "topology/detect.hpp"
#include "topology/hwloc_abi.hpp"

#if __has_include(<hwloc.h>)
#include <hwloc.h>
// The hand-written declarations match the library's.
namespace strait::hwloc_abi {
static_assert(HWLOC_API_VERSION >> 16 == api_major_version);
static_assert(bridge == int{HWLOC_OBJ_BRIDGE} && pci_device == int{HWLOC_OBJ_PCI_DEVICE});
static_assert(depth_numa == HWLOC_TYPE_DEPTH_NUMANODE && depth_bridge == HWLOC_TYPE_DEPTH_BRIDGE);
static_assert(depth_pci == HWLOC_TYPE_DEPTH_PCI_DEVICE && depth_os_device == HWLOC_TYPE_DEPTH_OS_DEVICE);
static_assert(upstream_is_pci == HWLOC_OBJ_BRIDGE_PCI);
static_assert(os_network == HWLOC_OBJ_OSDEV_NETWORK && os_verbs == HWLOC_OBJ_OSDEV_OPENFABRICS);
static_assert(leave_out_component == HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST);
static_assert(include_disallowed == HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
static_assert(keep_important == HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
static_assert(sizeof(PciAttributes) == sizeof(hwloc_obj_attr_u::hwloc_pcidev_attr_s));
static_assert(offsetof(PciAttributes, class_code) == offsetof(hwloc_obj_attr_u::hwloc_pcidev_attr_s, class_id));
static_assert(offsetof(PciAttributes, vendor) == offsetof(hwloc_obj_attr_u::hwloc_pcidev_attr_s, vendor_id));
static_assert(offsetof(PciAttributes, link_gbps) == offsetof(hwloc_obj_attr_u::hwloc_pcidev_attr_s, linkspeed));
static_assert(offsetof(BridgeAttributes, upstream_type) ==
              offsetof(hwloc_obj_attr_u::hwloc_bridge_attr_s, upstream_type));
static_assert(offsetof(Object, number) == offsetof(hwloc_obj, os_index));
static_assert(offsetof(Object, name) == offsetof(hwloc_obj, name));
static_assert(offsetof(Object, attributes) == offsetof(hwloc_obj, attr));
static_assert(offsetof(Object, parent) == offsetof(hwloc_obj, parent));
static_assert(offsetof(Object, cpus) == offsetof(hwloc_obj, cpuset));
static_assert(offsetof(Object, numas) == offsetof(hwloc_obj, nodeset));
}  // namespace strait::hwloc_abi
#endif

namespace strait {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Hwloc, TellsWhereThingsAre) {
  const HwlocSurvey survey = survey_hwloc(FAKE_HWLOC_GOOD);
  ASSERT_TRUE(survey.answered);
  EXPECT_THAT(survey.notes, IsEmpty());
  ASSERT_THAT(survey.numas, SizeIs(2));
  EXPECT_EQ(survey.numas[1].number, 1);
  EXPECT_EQ(survey.numas[1].cpus, "4-7");
  ASSERT_THAT(survey.pci, SizeIs(3));  // the host bridge has no address
  const PciFunction& gpu = survey.pci.at("0000:41:00.0");
  EXPECT_TRUE(gpu.is_gpu());
  EXPECT_EQ(gpu.parent_bus_id, "0000:40:01.0");
  EXPECT_EQ(gpu.numa, 1);
  EXPECT_EQ(gpu.width.gigatransfers, 16);
  EXPECT_EQ(gpu.width.lanes, 16U);
  EXPECT_EQ(survey.pci.at("0000:40:01.0").parent_bus_id, "");
  ASSERT_THAT(survey.nics, SizeIs(1));  // the disk is not a NIC
  EXPECT_EQ(survey.nics[0].name, "eth0");
  EXPECT_EQ(survey.nics[0].bus_id, "0000:40:02.0");
  EXPECT_EQ(survey.nics[0].numa, 1);
}

TEST(Hwloc, ADeviceAtSeveralNodesIsAtNone) {
  const HwlocSurvey survey = survey_hwloc(FAKE_HWLOC_VAGUE);
  EXPECT_EQ(survey.pci.at("0000:41:00.0").numa, -1);
  EXPECT_EQ(survey.nics.at(0).numa, -1);
}

TEST(Hwloc, WhatIsMissingOrBrokenIsTold) {
  const auto notes = [](const std::string& library) {
    const HwlocSurvey survey = survey_hwloc(library);
    EXPECT_FALSE(survey.answered) << library;
    return survey.notes;
  };
  EXPECT_THAT(notes("/nonexistent/libhwloc.so.15"), ElementsAre(HasSubstr("Install libhwloc15")));
  EXPECT_THAT(notes("libc.so.6"), ElementsAre(HasSubstr("hwloc_get_api_version")));
  EXPECT_THAT(notes(FAKE_HWLOC_SPARSE),
              ElementsAre(HasSubstr("lacks functions that every hwloc 2 has (hwloc_topology_load)")));
  EXPECT_THAT(notes(FAKE_HWLOC_OLD), ElementsAre(HasSubstr("is hwloc 1; only version 2 is known here")));
  EXPECT_THAT(notes(FAKE_HWLOC_FAILING), ElementsAre(HasSubstr("does not describe this machine: Invalid argument")));
  EXPECT_THAT(notes(FAKE_HWLOC_ELSEWHERE), ElementsAre(HasSubstr("describes another machine")));
  EXPECT_THAT(notes(FAKE_HWLOC_EMPTY), ElementsAre(HasSubstr("knows no NUMA node with CPUs")));
}

TEST(Hwloc, TheRealOneDescribesThisMachine) {
  const HwlocSurvey survey = survey_hwloc("libhwloc.so.15");
  if (!survey.answered && !survey.notes.empty() && survey.notes[0].find("Install") != std::string::npos)
    GTEST_SKIP() << survey.notes[0];
  EXPECT_TRUE(survey.answered);
  EXPECT_THAT(survey.notes, IsEmpty());
  EXPECT_FALSE(survey.numas.empty());
}

/// A /sys that shows one NUMA node, and, if a test adds them, the GPU and the NIC, but not where they are plugged in.
class MachineThatHidesPlaces : public ::testing::Test {
 protected:
  MachineThatHidesPlaces() { write("sys/devices/system/node/node0/cpulist", "0-7\n"); }
  void write(const std::string& path, const std::string& text) const { root_.write(path, text); }
  void gpu(const std::string& numa, const std::string& speed) const {
    const std::string at = "sys/bus/pci/devices/0000:41:00.0/";
    write(at + "class", "0x030200\n");
    write(at + "vendor", "0x10de\n");
    write(at + "numa_node", numa + "\n");
    write(at + "current_link_speed", speed + "\n");
    write(at + "current_link_width", "8\n");
  }
  Topology detected(const std::string& hwloc) const {
    auto result = detect({.root = root_.path(), .hwloc_library = hwloc, .nvml_library = "", .verbs_library = ""});
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return std::move(result).value();
  }
  static std::string numa_of(const Topology& topology, DeviceKind kind) {
    const std::string name = topology.device(topology.numa_of(topology.all(kind).at(0))).name;
    return name.substr(name.find('/') + 1);
  }
  static PcieWidth width_of(const Topology& topology, DeviceKind kind) {
    for (const Link& link : topology.data().links)
      if (link.lower == topology.all(kind).at(0) && link.kind == LinkKind::pcie) return link.pcie;
    return {};
  }
  const testing::TemporaryFolder root_;
};

TEST_F(MachineThatHidesPlaces, HwlocTellsThem) {
  gpu("-1", "8.0 GT/s PCIe");
  write("sys/class/net/eth0/speed", "10000\n");
  write("sys/class/net/eth0/operstate", "up\n");
  write("sys/class/net/eth0/device/vendor", "0x8086\n");
  const Topology without = detected(""), with = detected(FAKE_HWLOC_GOOD);
  EXPECT_EQ(numa_of(without, DeviceKind::gpu), "numa0");
  EXPECT_EQ(numa_of(with, DeviceKind::gpu), "numa1");
  EXPECT_EQ(numa_of(with, DeviceKind::nic), "numa1");
  EXPECT_EQ(with.device(with.all(DeviceKind::nic).at(0)).bus_id, "0000:40:02.0");
  EXPECT_THAT(with.all(DeviceKind::numa), SizeIs(2));
  EXPECT_THAT(with.all(DeviceKind::root_port), SizeIs(1));
  EXPECT_EQ(width_of(with, DeviceKind::gpu), (PcieWidth{8, 8, 0, 0}));  // as /sys has it
}

TEST_F(MachineThatHidesPlaces, ASpeedThatSysfsDoesNotTellIsHwlocs) {
  gpu("-1", "Unknown");
  EXPECT_EQ(width_of(detected(FAKE_HWLOC_GOOD), DeviceKind::gpu), (PcieWidth{16, 16, 0, 0}));
}

TEST_F(MachineThatHidesPlaces, GpusThatSysfsDoesNotShowAreHwlocs) {
  EXPECT_THAT(detected("").all(DeviceKind::gpu), IsEmpty());
  EXPECT_THAT(detected(FAKE_HWLOC_GOOD).all(DeviceKind::gpu), SizeIs(1));
}

TEST_F(MachineThatHidesPlaces, WhatHwlocDoesNotKnowStaysSysfs) {
  write("sys/devices/system/node/node1/cpulist", "8-15\n");
  gpu("1", "8.0 GT/s PCIe");
  EXPECT_EQ(numa_of(detected(FAKE_HWLOC_VAGUE), DeviceKind::gpu), "numa1");
}

TEST_F(MachineThatHidesPlaces, WithoutHwlocSysfsStandsAndANoteSaysWhatIsMissing) {
  gpu("0", "8.0 GT/s PCIe");
  for (const std::string library : {"/nonexistent/libhwloc.so.15", FAKE_HWLOC_SPARSE, FAKE_HWLOC_FAILING}) {
    const Topology topology = detected(library);
    EXPECT_EQ(numa_of(topology, DeviceKind::gpu), "numa0") << library;
    EXPECT_THAT(topology.data().notes, Contains(HasSubstr("hwloc"))) << library;
  }
}

}  // namespace
}  // namespace strait
