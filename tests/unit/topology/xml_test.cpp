#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "topology/builtin_machines.hpp"
#include "topology/json.hpp"
#include "topology/load.hpp"

namespace strait {
namespace {

using ::testing::HasSubstr;

// Elements of two hosts, as NCCL 2.18 and later write them, with invented values.
const std::string nccl = R"(<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="0000ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:16:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="1" gdr="1">
          <nvlink target="0000:07:00.0" count="9" tclass="0x068000"/>
          <nvlink target="0000:08:00.0" count="9" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020700" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" latency="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="ffff0000" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:98:00.0" class="0x030200" vendor="0x10de" device="0x2330" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="90" rank="0" gdr="1">
        <nvlink target="0000:07:00.0" count="18" tclass="0x068000"/>
      </gpu>
    </pci>
  </cpu>
</system>
)";

const std::string hwloc2 = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0">
    <object type="Package" os_index="0">
      <object type="NUMANode" os_index="0" local_memory="1"/>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-3f]">
        <object type="Bridge" bridge_type="1-1" pci_busid="0000:00:01.0" pci_type="0604 [8086:2030] [0000:0000] 04" pci_link_speed="15.753846">
          <object type="PCIDev" pci_busid="0000:1b:00.0" pci_type="0300 [10de:2204] [0000:0000] a1" pci_link_speed="15.753846">
            <info name="PCIDevice" value="GeForce RTX 3090"/>
          </object>
        </object>
      </object>
    </object>
    <object type="Package" os_index="1">
      <object type="NUMANode" os_index="1" local_memory="1"/>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[80-ff]">
        <object type="PCIDev" pci_busid="0000:82:00.0" pci_type="0200 [8086:1563] [0000:0000] 01" pci_link_speed="3.938462">
          <object type="OSDev" name="eth0" osdev_type="2"/>
        </object>
      </object>
    </object>
  </object>
</topology>
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string nccl_error(const std::string& text) {
  const auto topology = parse_nccl_xml(text, "dump.xml");
  return topology ? "no error" : topology.error().message;
}

std::string hwloc_error(const std::string& text) {
  const auto topology = parse_hwloc_xml(text, "lstopo.xml");
  return topology ? "no error" : topology.error().message;
}

TEST(NcclXml, GpusInTheOrderOfRanksOnOneNvlinkSwitch) {
  const auto topology = parse_nccl_xml(nccl, "dump.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  const auto gpus = topology->ranks();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(topology->device(gpus[0]).bus_id, "0000:98:00.0");
  const Path path = topology->path(gpus[0], gpus[1]);
  EXPECT_EQ(path.kind, PathKind::nvlink);
  EXPECT_DOUBLE_EQ(path.bandwidth_gbps, 18 * 25);
  EXPECT_EQ(topology->all(DeviceKind::numa).size(), 2U);
  EXPECT_EQ(topology->device(topology->nic_of(gpus[1])).name, "host/mlx5_0");
  EXPECT_TRUE(topology->device(topology->host_of(gpus[0])).gpudirect);
}

TEST(NcclXml, HostsAreToldApartByTheirHash) {
  std::string two = nccl;
  two.replace(two.find("</system>"), 9, "");
  std::string second = nccl.substr(nccl.find('\n') + 1);
  for (std::size_t at = 0; (at = second.find("\"0x1\" numaid", at)) != std::string::npos; ++at)
    second.replace(at, 5, "\"0x2\"");
  const auto topology = parse_nccl_xml(two + second, "dump.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  const auto gpus = topology->ranks();
  ASSERT_EQ(gpus.size(), 4U);
  EXPECT_EQ(topology->path(gpus[0], gpus[3]).kind, PathKind::net);
  EXPECT_DOUBLE_EQ(topology->path(gpus[1], gpus[3]).bandwidth_gbps, 50);
}

TEST(NcclXml, WhereNcclFoundNoNumaNodeThereIsOne) {
  const auto topology = parse_nccl_xml(replaced(nccl, "numaid=\"0\"", "numaid=\"-1\""), "dump.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_TRUE(topology->find("host/numa0"));
}

TEST(NcclXml, RoundTripsThroughJson) {
  const auto topology = parse_nccl_xml(nccl, "dump.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  const auto again = parse_topology_json(to_json(*topology), "again");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(*topology));
}

TEST(NcclXml, NamesInAnyEncodingBecomeJson) {
  std::string strange = nccl;
  strange.replace(strange.find("mlx5_0"), 6, "m\xfc");
  const auto topology = parse_nccl_xml(strange, "dump.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  const std::string json = to_json(*topology);
  EXPECT_THAT(json, HasSubstr("m\xef\xbf\xbd"));
  EXPECT_TRUE(parse_topology_json(json, "again"));
}

TEST(NcclXml, CutShortAnywhereIsAnErrorWithTheLine) {
  for (std::size_t size = 0; size + 12 < nccl.size(); size += 11)
    ASSERT_THAT(nccl_error(nccl.substr(0, size)), HasSubstr("dump.xml, line ")) << size;
}

TEST(NcclXml, MistakesNameTheLine) {
  EXPECT_THAT(nccl_error(replaced(nccl, "0000:16:00.0", "0000:xx:00.0")),
              AllOf(HasSubstr("line 3"), HasSubstr("no PCI address")));
  EXPECT_THAT(nccl_error(replaced(nccl, "0000:98:00.0", "0000:18:00.0")),
              HasSubstr("second device at busid 0000:18:00.0"));
  EXPECT_THAT(nccl_error(replaced(nccl, "numaid=\"1\"", "numaid=\"0\"")),
              AllOf(HasSubstr("line 17"), HasSubstr("second <cpu>")));
  EXPECT_THAT(nccl_error(replaced(nccl, "<nvlink target=\"0000:07:00.0\" count=\"9\" tclass=\"0x068000\"",
                                  "<nvlink target=\"0000:33:00.0\" count=\"9\" tclass=\"0x030200\"")),
              AllOf(HasSubstr("line 6"), HasSubstr("0000:33:00.0 is no GPU")));
  EXPECT_THAT(nccl_error(replaced(nccl, "count=\"9\"", "count=\"-1\"")), HasSubstr("count"));
  EXPECT_THAT(nccl_error(replaced(nccl, "speed=\"400000\"", "speed=\"-1\"")),
              AllOf(HasSubstr("line 12"), HasSubstr("speed is negative")));
  EXPECT_THAT(nccl_error(replaced(nccl, "<nic>", "<fpga/><nic>")), HasSubstr("<fpga>: unknown element"));
  EXPECT_THAT(nccl_error("<graph/>"), HasSubstr("begins with <system>"));
}

TEST(HwlocXml, DevicesAtTheirNumaNodes) {
  const auto topology = parse_hwloc_xml(hwloc2, "lstopo.xml");
  ASSERT_TRUE(topology) << topology.error().message;
  const auto gpus = topology->ranks();
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(topology->device(gpus[0]).model, "GeForce RTX 3090");
  EXPECT_EQ(topology->device(topology->numa_of(gpus[0])).name, "host/numa0");
  EXPECT_EQ(topology->device(topology->device(gpus[0]).parent).kind, DeviceKind::root_port);
  EXPECT_EQ(topology->device(topology->numa_of(*topology->find("host/eth0"))).name, "host/numa1");
}

TEST(HwlocXml, MistakesNameTheLine) {
  for (std::size_t size = 0; size + 12 < hwloc2.size(); size += 11)
    ASSERT_THAT(hwloc_error(hwloc2.substr(0, size)), HasSubstr("lstopo.xml, line ")) << size;
  EXPECT_THAT(hwloc_error(replaced(hwloc2, "os_index=\"1\" local", "os_index=\"0\" local")),
              AllOf(HasSubstr("line 16"), HasSubstr("second NUMA node 0")));
  EXPECT_THAT(hwloc_error(replaced(hwloc2, "0300 [10de", "0300 10de")), HasSubstr("pci_type"));
  EXPECT_THAT(hwloc_error(replaced(hwloc2, "0000:82:00.0", "0000:1b:00.0")),
              HasSubstr("second device at 0000:1b:00.0"));
  EXPECT_THAT(hwloc_error(replaced(hwloc2, "type=\"Machine\"", "type=\"Cluster\"")), HasSubstr("Machine"));
}

// The parsers recurse once for each level of the file.
TEST(Xml, WhatIsNestedDeeperThanAnyMachineIsAnErrorWithTheLine) {
  constexpr int depth = 60000;
  std::string pci = "<system>\n<cpu host_hash=\"0x1\" numaid=\"0\">\n";
  std::string objects = "<topology>\n<object type=\"Machine\">\n";
  std::string pci_ends, objects_end;
  for (int i = 0; i < depth; ++i) {
    std::array<char, 64> function{};
    std::snprintf(function.data(), function.size(), "<pci busid=\"%04x:%02x:00.0\">\n", i >> 8, i & 0xff);
    pci += function.data();
    objects += "<object type=\"Group\">\n";
    pci_ends += "</pci>";
    objects_end += "</object>";
  }
  EXPECT_THAT(nccl_error(pci + pci_ends + "</cpu></system>"), AllOf(HasSubstr("dump.xml, line "), HasSubstr("nested")));
  EXPECT_THAT(hwloc_error(objects + objects_end + "</object></topology>"),
              AllOf(HasSubstr("lstopo.xml, line "), HasSubstr("nested")));
}

TEST(TopologyFile, KindsAreToldApart) {
  std::string path = ::testing::TempDir() + "strait-topology-file-XXXXXX";
  const int fd = ::mkstemp(path.data());
  ASSERT_GE(fd, 0);
  ::close(fd);
  for (const std::string& text : {nccl, hwloc2, std::string(builtin_machines().front().json)}) {
    std::ofstream(path, std::ios::trunc) << text;
    const auto topology = load_topology_file(path);
    EXPECT_TRUE(topology) << topology.error().message;
  }
  for (const char* nothing : {"", "\n"}) {
    std::ofstream(path, std::ios::trunc) << nothing;
    EXPECT_THAT(load_topology_file(path).error().message, HasSubstr("is empty"));
  }
  ASSERT_EQ(::truncate(path.c_str(), off_t{1} << 40), 0);  // a sparse file, as no disk is that large
  EXPECT_THAT(load_topology_file(path).error().message, HasSubstr("far too long"));
  EXPECT_THAT(load_topology_file("/dev/zero").error().message, HasSubstr("far too long"));
  EXPECT_THAT(load_topology_file(::testing::TempDir()).error().message, HasSubstr("Is a directory"));
  ::unlink(path.c_str());
  EXPECT_THAT(load_topology_file(path).error().message, HasSubstr("No such file"));
}

}  // namespace
}  // namespace strait
