#include "base/environment.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "base/unknown_variables.hpp"

namespace strait {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Environment environment_of(std::map<std::string, std::string> variables) {
  auto shared = std::make_shared<std::map<std::string, std::string>>(std::move(variables));
  return Environment([shared](const char* name) -> const char* {
    auto it = shared->find(name);
    return it == shared->end() ? nullptr : it->second.c_str();
  });
}

TEST(Environment, GivesDefaultsWhereNothingIsSet) {
  Environment environment = environment_of({});
  EXPECT_EQ(*environment.text("STRAIT_TRANSPORT"), "auto");
  EXPECT_EQ(*environment.integer("STRAIT_INIT_TIMEOUT_MS"), 60000);
  EXPECT_EQ(*environment.text("STRAIT_SOCKET_IFNAME"), "");
  EXPECT_FALSE(environment.is_set("STRAIT_RANK"));
  EXPECT_THAT(environment.integer("STRAIT_RANK").error().message, HasSubstr("STRAIT_RANK is not set"));
  EXPECT_TRUE(environment.validate());
}

TEST(Environment, AProcessMayHaveOtherDefaults) {
  ASSERT_EQ(::unsetenv("STRAIT_HOSTID"), 0);
  ASSERT_TRUE(Environment::set_default("STRAIT_HOSTID", "first"));
  ASSERT_TRUE(Environment::set_default("STRAIT_HOSTID", "second"));
  EXPECT_EQ(*Environment().text("STRAIT_HOSTID"), "second");
  EXPECT_EQ(*Environment().value("STRAIT_HOSTID"), "second");
  EXPECT_TRUE(Environment().is_set("STRAIT_HOSTID"));
  ASSERT_EQ(::setenv("STRAIT_HOSTID", "the environment's", 1), 0);
  EXPECT_EQ(*Environment().text("STRAIT_HOSTID"), "the environment's");
  ASSERT_EQ(::setenv("STRAIT_HOSTID", "", 1), 0);
  EXPECT_EQ(*Environment().text("STRAIT_HOSTID"), "second");
  EXPECT_FALSE(Environment::set_default("STRAIT_HOST", "x"));
  EXPECT_FALSE(Environment::set_default("STRAIT_TIMEOUT_MS", "soon"));
  EXPECT_EQ(environment_of({}).raw("STRAIT_HOSTID"), "") << "a stand-in for the environment has all there is";
}

TEST(Environment, DefaultsAreAcceptedValues) {
  for (const Variable& variable : environment_table) {
    if (variable.default_value.empty()) continue;
    Environment environment = environment_of({{std::string(variable.name), std::string(variable.default_value)}});
    EXPECT_TRUE(environment.validate()) << variable.name;
  }
}

TEST(Environment, ReadsBytesWithUnits) {
  for (auto [text, bytes] : {std::pair{"4096", 4096}, {"64K", 65536}, {"2m", 2 << 20}, {"1G", 1 << 30}})
    EXPECT_EQ(*environment_of({{"STRAIT_SLICE_BYTES", text}}).integer("STRAIT_SLICE_BYTES"), bytes);
}

TEST(Environment, AWordMayStandForANumber) {
  const Environment none = environment_of({{"STRAIT_MAX_SMS", "none"}});
  EXPECT_EQ(*none.text("STRAIT_MAX_SMS"), "none");
  EXPECT_TRUE(none.validate());
  EXPECT_THAT(none.integer("STRAIT_MAX_SMS").error().message, HasSubstr("STRAIT_MAX_SMS is none, no number"));
  EXPECT_EQ(*environment_of({{"STRAIT_MAX_SMS", "07"}}).text("STRAIT_MAX_SMS"), "7");
  const auto refused = environment_of({{"STRAIT_MAX_SMS", "nobody"}}).text("STRAIT_MAX_SMS");
  EXPECT_THAT(refused.error().message, HasSubstr("a whole number from 0 to 1024, or none"));
  EXPECT_FALSE(environment_of({{"STRAIT_RANK", "none"}}).text("STRAIT_RANK"));
}

TEST(Environment, ChoicesAreAcceptedInEitherCase) {
  EXPECT_EQ(*environment_of({{"STRAIT_DEBUG", "INFO"}}).text("STRAIT_DEBUG"), "info");
  EXPECT_EQ(*environment_of({{"STRAIT_MAX_SMS", "None"}}).text("STRAIT_MAX_SMS"), "none");
  EXPECT_EQ(*environment_of({{"STRAIT_FLIGHT_RECORDER", "/Tmp"}}).text("STRAIT_FLIGHT_RECORDER"), "/Tmp");
  const auto upper = environment_of({{"STRAIT_WIRE", "INT8"}}).shared_settings();
  ASSERT_TRUE(upper);
  EXPECT_THAT(*upper, ::testing::Contains(Setting{"STRAIT_WIRE", "int8"}));
}

TEST(Environment, RefusesMalformedValuesByName) {
  for (auto [name, value, accepted] : {std::tuple{"STRAIT_TIMEOUT_MS", "soon", "a whole number from 0 to 86400000"},
                                       {"STRAIT_TIMEOUT_MS", "-1", "a whole number"},
                                       {"STRAIT_TIMEOUT_MS", "10K", "a whole number"},
                                       {"STRAIT_TIMEOUT_MS", "99999999999999999999", "a whole number"},
                                       {"STRAIT_SLICE_BYTES", "4T", "64K"},
                                       {"STRAIT_SLICE_BYTES", "2G", "1073741824"},
                                       {"STRAIT_SLICE_BYTES", "9223372036854775807K", "64K"},
                                       {"STRAIT_SLICE_BYTES", "18014398509482048K", "64K"},  // would be 64K modulo 2^64
                                       {"STRAIT_SIMD", "sse", "auto, portable, avx2, avx512"},
                                       {"STRAIT_SIMD", "auto|portable", "one of"},
                                       {"STRAIT_DEBUG", "loud", "off, warn, info, trace"}}) {
    auto status = environment_of({{name, value}}).validate();
    ASSERT_FALSE(status) << name << "=" << value;
    EXPECT_EQ(status.error().code, Code::invalid_argument);
    EXPECT_THAT(status.error().message,
                AllOf(HasSubstr(name), HasSubstr("\"" + std::string(value) + "\""), HasSubstr(accepted)));
  }
}

TEST(Environment, SharedSettingsHaveOneSpelling) {
  auto kilo = environment_of({{"STRAIT_SLICE_BYTES", "64K"}}).shared_settings();
  auto plain = environment_of({{"STRAIT_SLICE_BYTES", "65536"}}).shared_settings();
  ASSERT_TRUE(kilo && plain);
  EXPECT_EQ(*kilo, *plain);
  EXPECT_THAT(*kilo, ::testing::Contains(Setting{"STRAIT_SLICE_BYTES", "65536"}));
  EXPECT_THAT(*kilo, ::testing::Contains(Setting{"STRAIT_ALGORITHM", "auto"}));
  for (const Setting& setting : *kilo) EXPECT_NE(setting.name, "STRAIT_RANK");
}

TEST(Environment, EveryVariableIsDocumented) {
  std::ostringstream page;
  print_markdown(page);
  std::set<std::string_view> names;
  for (const Variable& variable : environment_table) {
    EXPECT_THAT(page.str(), HasSubstr("| `" + std::string(variable.name) + "` |"));
    EXPECT_FALSE(variable.meaning.empty());
    EXPECT_TRUE(names.insert(variable.name).second) << variable.name << " appears twice";
  }
}

TEST(UnknownVariables, TheNearestNameIsSaid) {
  for (const auto& [given, meant] : {std::pair{"STRAIT_TIMOUT_MS", "STRAIT_TIMEOUT_MS"},
                                     {"STRAIT_TIMEOUT", "STRAIT_TIMEOUT_MS"},
                                     {"STRAIT_INIT_TIMEOUT", "STRAIT_INIT_TIMEOUT_MS"},
                                     {"STRAIT_ALGORITM", "STRAIT_ALGORITHM"},
                                     {"STRAIT_RNAK", "STRAIT_RANK"},
                                     {"STRAIT_FLIGHT_RECORDER_DIR", "STRAIT_FLIGHT_RECORDER"},
                                     {"STRAIT_NONSENSE", ""},
                                     {"STRAIT_", ""},
                                     {"NCCL_DEBUG", ""}})
    EXPECT_EQ(nearest_variable(given), meant) << given;
  EXPECT_EQ(nearest_variable("STRAIT_" + std::string(1 << 20, 'X')), "");
}

TEST(UnknownVariables, AreThoseThatNothingReads) {
  const char* const entries[] = {"STRAIT_TIMOUT_MS=500", "STRAIT_TIMEOUT_MS=500",    "PATH=/bin:STRAIT_X",
                                 "STRAIT_NONSENSE",      "STRAIT_NCCL_HOST_RANKS=1", "STRAIT_HUNT_SECONDS=1",
                                 "NCCL_STRAIT_X=",       "STRAIT_HUNT_SEED=7",       nullptr};
  EXPECT_THAT(describe_unknown_variables(entries),
              ::testing::ElementsAre(
                  "STRAIT_TIMOUT_MS is no variable of Strait: it changes nothing. Did you mean STRAIT_TIMEOUT_MS?",
                  "STRAIT_NONSENSE is no variable of Strait: it changes nothing. `strait env` prints those that there "
                  "are"));
  EXPECT_TRUE(describe_unknown_variables(nullptr).empty());
}

TEST(Deadline, CountsDown) {
  Deadline deadline = Deadline::after_ms(1000);
  EXPECT_FALSE(deadline.expired());
  EXPECT_LE(deadline.remaining_ms(), 1000);
  EXPECT_GT(deadline.remaining_ms(), 0);
  EXPECT_EQ(Deadline::after_ms(1000).poll_ms(), 50);
  std::this_thread::sleep_for(std::chrono::milliseconds(1001));
  EXPECT_TRUE(deadline.expired());
  EXPECT_EQ(deadline.remaining_ms(), 0);
  EXPECT_EQ(deadline.poll_ms(), 0);
}

TEST(Deadline, NeverAndHugeDurationsDoNotExpire) {
  for (Deadline deadline : {Deadline::never(), Deadline::after_ms(Deadline::never().remaining_ms())}) {
    EXPECT_TRUE(deadline.is_never());
    EXPECT_FALSE(deadline.expired());
    EXPECT_EQ(deadline.poll_ms(), 50);
  }
  EXPECT_TRUE(Deadline::after_ms(-5).expired());
  EXPECT_FALSE(earlier(Deadline::never(), Deadline::after_ms(5)).is_never());
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesOnceAndMoves) {
  int number = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  {
    UniqueFd first(number);
    UniqueFd second(std::move(first));
    EXPECT_FALSE(first);
    EXPECT_TRUE(is_open(number));
    first = std::move(second);
    EXPECT_EQ(first.get(), number);
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Log, WritesWholeLinesOfEnabledLevels) {
  set_log_level(LogLevel::info);
  ::testing::internal::CaptureStderr();
  log_info(3, "one\ntwo");
  log_warn(-1, "three");
  log_trace(3, "not shown");
  std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, ::testing::MatchesRegex("strait: [^ ]+:[0-9]+ rank 3: one two\nstrait: [^ ]+:[0-9]+: three\n"));
  set_log_level(LogLevel::off);
  EXPECT_FALSE(log_enabled(LogLevel::warn));
}

}  // namespace
}  // namespace strait
