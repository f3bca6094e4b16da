#include "topology/verbs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>

#include "support/temporary_folder.hpp"
#include "topology/detect.hpp"
#include "topology/verbs_abi.hpp"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>
// The hand-written declarations match the library's.
namespace strait::verbs_abi {
static_assert(sizeof(DeviceAttributes) == sizeof(ibv_device_attr));
static_assert(offsetof(DeviceAttributes, ports) == offsetof(ibv_device_attr, phys_port_cnt));
static_assert(sizeof(PortAttributes) >= sizeof(ibv_port_attr));
static_assert(offsetof(PortAttributes, gids) == offsetof(ibv_port_attr, gid_tbl_len));
static_assert(offsetof(PortAttributes, active_width) == offsetof(ibv_port_attr, active_width));
static_assert(offsetof(PortAttributes, active_speed) == offsetof(ibv_port_attr, active_speed));
static_assert(offsetof(PortAttributes, link_layer) == offsetof(ibv_port_attr, link_layer));
}  // namespace strait::verbs_abi
#endif

namespace strait {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Verbs, TellsLanesTimesTheirRateAndTheLinkLayer) {
  const VerbsSurvey survey = survey_verbs(FAKE_VERBS_INFINIBAND);
  ASSERT_TRUE(survey.answered);
  EXPECT_THAT(survey.notes, IsEmpty());
  const SurveyedHca* hca = survey.find("mlx5_0");
  ASSERT_NE(hca, nullptr);
  ASSERT_EQ(hca->ports.size(), 2U);
  EXPECT_TRUE(hca->ports[0].active);
  EXPECT_EQ(hca->ports[0].gbps, 50);  // 4 x 100 Gb/s
  EXPECT_EQ(hca->ports[0].link_layer, "InfiniBand");
  ASSERT_NE(hca->ports[0].best_gid(), nullptr);
  EXPECT_EQ(hca->ports[0].best_gid()->text, "fe80::200:0:0:7");
  EXPECT_FALSE(hca->ports[1].active);
  EXPECT_EQ(hca->ports[1].state, "down");
}

TEST(Verbs, TakesTheGidThatIsRouted) {
  const VerbsSurvey survey = survey_verbs(FAKE_VERBS_ROCE);
  const SurveyedPort& port = survey.hcas.at(0).ports.at(1);
  EXPECT_EQ(port.gbps, 25);  // 2 x 100 Gb/s
  ASSERT_EQ(port.gids.size(), 4U);
  ASSERT_NE(port.best_gid(), nullptr);
  EXPECT_EQ(port.best_gid()->index, 3U);
  EXPECT_EQ(port.best_gid()->type, GidType::roce_v2);
  EXPECT_EQ(port.best_gid()->text, "::ffff:10.0.0.1");
}

TEST(Verbs, AnOldLibraryDoesNotTellTheTypesOfGids) {
  const VerbsSurvey survey = survey_verbs(FAKE_VERBS_ROCE_V1);
  const SurveyedPort& port = survey.hcas.at(0).ports.at(0);
  EXPECT_EQ(port.gids.size(), 4U);
  ASSERT_NE(port.best_gid(), nullptr);
  EXPECT_EQ(port.best_gid()->type, GidType::unknown);
}

TEST(Verbs, WhatIsMissingOrBrokenIsTold) {
  const auto notes = [](const std::string& library) { return survey_verbs(library).notes; };
  EXPECT_THAT(notes("/nonexistent/libibverbs.so.1"), ElementsAre(HasSubstr("Install rdma-core")));
  EXPECT_THAT(notes("libc.so.6"), ElementsAre(HasSubstr("ibv_get_device_list")));
  EXPECT_THAT(notes(FAKE_VERBS_SPARSE),
              ElementsAre(HasSubstr("lacks functions that every libibverbs has (ibv_query_p")));
  EXPECT_THAT(notes(FAKE_VERBS_ABSENT), ElementsAre(HasSubstr("ib_uverbs")));
  EXPECT_THAT(notes(FAKE_VERBS_CLOSED), ElementsAre(HasSubstr("mlx5_0 cannot be opened: Permission denied")));
  EXPECT_THAT(notes(FAKE_VERBS_BROKEN), ElementsAre(HasSubstr("port 1 does not answer"), HasSubstr("port 2 does")));
  EXPECT_THAT(notes(FAKE_VERBS_NO_TABLE), Contains(HasSubstr("the GIDs of mlx5_0 port 1 are unknown from number 0")));
  EXPECT_FALSE(survey_verbs(FAKE_VERBS_ABSENT).answered);
  EXPECT_TRUE(survey_verbs(FAKE_VERBS_EMPTY).answered);
}

/// A machine whose /sys shows mlx5_0, with 100 Gb/s.
class MachineWithCard : public ::testing::Test {
 protected:
  MachineWithCard() {
    write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    write("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec\n");
    write("sys/class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0002:c903:0000:0001\n");
  }
  void write(const std::string& path, const std::string& text) const { root_.write(path, text); }
  Topology detected(const std::string& verbs) const {
    auto result = detect({.root = root_.path(), .hwloc_library = "", .nvml_library = "", .verbs_library = verbs});
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    return std::move(result).value();
  }
  static double card_gbps(const Topology& topology) {
    for (const Link& link : topology.data().links)
      if (link.kind == LinkKind::network) return link.up_gbps;
    return 0;
  }
  const testing::TemporaryFolder root_;
};

TEST_F(MachineWithCard, VerbsRateTakesThePlaceOfSysfs) {
  const Topology topology = detected(FAKE_VERBS_ROCE);
  EXPECT_EQ(topology.all(DeviceKind::nic).size(), 1U);
  EXPECT_EQ(card_gbps(topology), 50);  // two ports of 200 Gb/s
  EXPECT_THAT(topology.data().notes, Not(Contains(HasSubstr("GID"))));
}

TEST_F(MachineWithCard, WithoutVerbsSysfsStandsAndANoteSaysWhatIsMissing) {
  for (const std::string library : {"/nonexistent/libibverbs.so.1", FAKE_VERBS_SPARSE, FAKE_VERBS_CLOSED}) {
    const Topology topology = detected(library);
    EXPECT_EQ(card_gbps(topology), 12.5) << library;
    EXPECT_THAT(topology.data().notes,
                Contains(::testing::AnyOf(HasSubstr("libibverbs"), HasSubstr("ibverbs-providers"))))
        << library;
  }
  EXPECT_THAT(detected(FAKE_VERBS_EMPTY).data().notes, Contains(HasSubstr("libibverbs does not list it")));
}

TEST_F(MachineWithCard, APortWithoutAGidIsTold) {
  EXPECT_THAT(detected(FAKE_VERBS_NO_GID).data().notes, Contains(HasSubstr("no GID in use")));
}

TEST_F(MachineWithCard, WithoutACardNobodyMissesVerbs) {
  std::filesystem::remove_all(root_.path("sys/class/infiniband"));
  EXPECT_THAT(detected("/nonexistent/libibverbs.so.1").data().notes, Not(Contains(HasSubstr("libibverbs"))));
  const Topology topology = detected(FAKE_VERBS_INFINIBAND);  // as in a container that hides it from /sys
  EXPECT_EQ(card_gbps(topology), 50);
  EXPECT_THAT(topology.data().notes, Contains(HasSubstr("mlx5_0 is not in /sys/class/infiniband")));
}

}  // namespace
}  // namespace strait
