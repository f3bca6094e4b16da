// How a program's ncclConfig_t is read, whichever version of NCCL's header it was built with.
#include "nccl/config.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "nccl/settings.hpp"
#include "strait/strait.h"

namespace strait::nccl {
namespace {

const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;

TEST(Settings, VersionThatIsServedHasOneDefault) {
  EXPECT_EQ(VariableName("STRAIT_NCCL_VERSION").variable().default_value, std::to_string(default_version));
}

/// Prints the value of Strait's setting `ours` for an NCCL program whose environment has `variable`=`value`, and exits.
[[noreturn]] void say(const char* ours, const char* variable = "NCCL_DEBUG", const char* value = "WARN") {
  setenv(variable, value, 1);
  apply_settings();
  const char* found = nullptr;
  straitGetSetting(ours, &found);
  std::fprintf(stderr, "%s", found);
  std::_Exit(0);
}

using ::testing::ExitedWithCode;

TEST(Settings, AreThoseThatProgramsOfNcclsRelyOn) {
  EXPECT_EXIT(say("STRAIT_INIT_TIMEOUT_MS"), ExitedWithCode(0), "^1800000$");
  EXPECT_EXIT(say("STRAIT_COPY_MESSAGES"), ExitedWithCode(0), "^0$");
  EXPECT_EXIT(say("STRAIT_COPY_MESSAGES", "STRAIT_COPY_MESSAGES", "1"), ExitedWithCode(0), "^1$");
}

TEST(Settings, AreReadAsNcclReadsThem) {
  for (const char* yes : {"1", "2", "-1"})
    EXPECT_EXIT(say("STRAIT_P2P", "NCCL_P2P_DISABLE", yes), ExitedWithCode(0), "^off$");
  EXPECT_EXIT(say("STRAIT_P2P", "NCCL_P2P_DISABLE", "0"), ExitedWithCode(0), "^auto$");
  EXPECT_EXIT(say("STRAIT_MAX_SMS", "NCCL_CTA_POLICY", "2|1"), ExitedWithCode(0), "^none$");
}

ncclConfig_t filled(unsigned version, std::size_t size_bytes) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = size_bytes;
  config.version = version;
  config.blocking = 0;
  config.cgaClusterSize = 2;
  config.minCTAs = 3;
  config.maxCTAs = 4;
  config.trafficClass = 5;
  config.CTAPolicy = 1;
  config.nvlsCTAs = 6;
  config.nvlinkCentricSched = 1;
  config.graphUsageMode = 2;
  config.graphStreamOrdering = 1;
  return config;
}

ncclResult_t read(const ncclConfig_t* config, ncclConfig_t& out) {
  std::string problem;
  const ncclResult_t result = read_config(config, out, problem);
  EXPECT_EQ(result == ncclSuccess, problem.empty()) << problem;
  return result;
}

TEST(Config, NoneMeansDefaults) {
  ncclConfig_t out;
  ASSERT_EQ(read(nullptr, out), ncclSuccess);
  EXPECT_EQ(out.blocking, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(out.maxCTAs, NCCL_CONFIG_UNDEF_INT);
}

TEST(Config, FullIsTakenAsItIs) {
  const ncclConfig_t config = filled(NCCL_ABI_VERSION, sizeof config);
  ncclConfig_t out;
  ASSERT_EQ(read(&config, out), ncclSuccess);
  EXPECT_EQ(std::memcmp(&config, &out, sizeof out), 0);
}

TEST(Config, ABoundOrNoSMs) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(max_sms_of(config), 0);
  for (const int policy : {NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY}) {
    config.CTAPolicy = policy;
    EXPECT_EQ(max_sms_of(config), 0);
  }
  for (const int policy : {NCCL_CTA_POLICY_ZERO, NCCL_CTA_POLICY_ZERO | NCCL_CTA_POLICY_EFFICIENCY}) {
    config.CTAPolicy = policy;
    EXPECT_EQ(max_sms_of(config), STRAIT_NO_SMS);
  }
  config.maxCTAs = 16;
  EXPECT_EQ(max_sms_of(config), 16) << "a number says more";
}

/// The struct of 2.14 ended after `blocking`; memory behind it must not be read.
TEST(Config, ShortOneOfAnOldVersion) {
  struct {
    std::size_t size;
    unsigned magic, version;
    int blocking;
    int not_ours[40];
  } old;
  std::memset(&old, 0x11, sizeof old);
  old = {24, NCCL_API_MAGIC, 21403, 0, {}};
  for (int& value : old.not_ours) value = -77;
  ncclConfig_t out;
  ASSERT_EQ(read(reinterpret_cast<const ncclConfig_t*>(&old), out), ncclSuccess);
  EXPECT_EQ(out.blocking, 0);
  EXPECT_EQ(out.minCTAs, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(out.graphStreamOrdering, NCCL_CONFIG_UNDEF_INT);
}

/// A later NCCL's struct is longer: fields that Strait does not know must not be copied into its shorter struct.
TEST(Config, LongerThanOurs) {
  struct {
    ncclConfig_t known;
    char more[256];
  } later;
  std::memset(&later, 0x22, sizeof later);
  later.known = filled(29900, sizeof later);
  struct {
    ncclConfig_t out;
    char guard[64];
  } here;
  std::memset(&here, 0x33, sizeof here);
  ASSERT_EQ(read(&later.known, here.out), ncclSuccess);
  EXPECT_EQ(here.out.graphStreamOrdering, 1);
  for (const char c : here.guard) EXPECT_EQ(c, 0x33);
}

TEST(Config, FieldsNewerThanTheVersionKeepTheirDefault) {
  const struct {
    unsigned version;
    int blocking, min_ctas, traffic_class, cta_policy, sched, graph_usage, ordering;
  } cases[] = {
      {21300, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
      {21400, 0, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
      {21700, 0, 3, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
      {22500, 0, 3, 5, INT_MIN, INT_MIN, INT_MIN, INT_MIN},
      {22703, 0, 3, 5, 1, INT_MIN, INT_MIN, INT_MIN},
      {22809, 0, 3, 5, 1, 1, INT_MIN, INT_MIN},
      {22900, 0, 3, 5, 1, 1, 2, INT_MIN},
      {23007, 0, 3, 5, 1, 1, 2, 1},
  };
  for (const auto& expected : cases) {
    const ncclConfig_t config = filled(expected.version, sizeof config);
    ncclConfig_t out;
    ASSERT_EQ(read(&config, out), ncclSuccess);
    EXPECT_EQ(out.blocking, expected.blocking) << expected.version;
    EXPECT_EQ(out.minCTAs, expected.min_ctas) << expected.version;
    EXPECT_EQ(out.trafficClass, expected.traffic_class) << expected.version;
    EXPECT_EQ(out.CTAPolicy, expected.cta_policy) << expected.version;
    EXPECT_EQ(out.nvlinkCentricSched, expected.sched) << expected.version;
    EXPECT_EQ(out.graphUsageMode, expected.graph_usage) << expected.version;
    EXPECT_EQ(out.graphStreamOrdering, expected.ordering) << expected.version;
  }
}

TEST(Config, FieldsThatMeanNothingHereAreNamed) {
  ncclConfig_t config = defaults;
  EXPECT_TRUE(ignored_fields(config).empty());
  config.blocking = 0;
  config.maxCTAs = 4;
  EXPECT_TRUE(ignored_fields(config).empty());
  config.minCTAs = 2;
  config.trafficClass = 0;
  config.commName = "data parallel";
  const std::vector<std::string> expected = {"minCTAs", "trafficClass", "commName"};
  const std::vector<const char*> names = ignored_fields(config);
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.end()), expected);
  // Fields that the program's version did not have are not reported.
  const ncclConfig_t old = filled(21700, sizeof old);
  ncclConfig_t out;
  ASSERT_EQ(read(&old, out), ncclSuccess);
  EXPECT_EQ(ignored_fields(out).size(), 2u) << "cgaClusterSize, minCTAs";
}

TEST(Config, GarbageIsRefused) {
  ncclConfig_t config = defaults;
  config.magic = 0x12345678;
  ncclConfig_t out;
  EXPECT_EQ(read(&config, out), ncclInvalidArgument);
  for (const std::size_t size_bytes : {0ul, 1ul, 8ul, 15ul}) {
    config = defaults;
    config.size = size_bytes;
    EXPECT_EQ(read(&config, out), ncclInvalidArgument) << size_bytes;
  }
  std::memset(&config, 0, sizeof config);
  EXPECT_EQ(read(&config, out), ncclInvalidArgument);
  std::memset(&config, 0xff, sizeof config);
  EXPECT_EQ(read(&config, out), ncclInvalidArgument);
}

/// With a wrong magic number, the size means nothing: only the head may be read. (AddressSanitizer checks.)
TEST(Config, OnlyTheHeadIsReadBeforeTheMagicIsSeen) {
  const auto head = std::make_unique<std::size_t[]>(2);
  head[0] = std::numeric_limits<std::size_t>::max();
  head[1] = 0;
  ncclConfig_t out;
  EXPECT_EQ(read(reinterpret_cast<const ncclConfig_t*>(head.get()), out), ncclInvalidArgument);
}

TEST(Config, ValuesOutOfRangeAreRefusedByName) {
  const struct {
    int ncclConfig_t::*field;
    int value;
    const char* name;
  } cases[] = {{&ncclConfig_t::blocking, 2, "blocking"},     {&ncclConfig_t::cgaClusterSize, -1, "cgaClusterSize"},
               {&ncclConfig_t::minCTAs, 0, "minCTAs"},       {&ncclConfig_t::maxCTAs, -4, "maxCTAs"},
               {&ncclConfig_t::splitShare, 3, "splitShare"}, {&ncclConfig_t::graphUsageMode, 3, "graphUsageMode"}};
  for (const auto& wrong : cases) {
    ncclConfig_t config = defaults;
    config.*wrong.field = wrong.value;
    ncclConfig_t out;
    std::string problem;
    EXPECT_EQ(read_config(&config, out, problem), ncclInvalidArgument);
    EXPECT_NE(problem.find(wrong.name), std::string::npos) << problem;
  }
  ncclConfig_t config = defaults;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  ncclConfig_t out;
  EXPECT_EQ(read(&config, out), ncclInvalidArgument);
}

}  // namespace
}  // namespace strait::nccl
