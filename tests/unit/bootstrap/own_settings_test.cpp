// Ranks whose own environment is wrong.
#include <chrono>
#include <list>

#include "bootstrap/launch.hpp"
#include "ranks.hpp"
#include "support/free_port.hpp"
#include "support/stopwatch.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// One of two ranks that meet at a free port of this host, or at a unix socket of their own.
LaunchInfo launched(Meeting meeting, int rank) {
  static std::list<FreePort> ports;
  const FreePort& port = ports.emplace_back();
  LaunchInfo info;
  info.rank = rank;
  info.ranks = 2;
  info.meeting = meeting;
  info.root = {"127.0.0.1", port.number()};
  info.job = "own settings " + port.text();
  return info;
}

/// It does not wait for the others, which may never come.
TEST(OwnSettings, ARankWithAWrongValueOfItsOwnSaysSoAtOnce) {
  for (const Meeting meeting : {Meeting::address, Meeting::local})
    for (const auto& [name, value] : Variables{{"STRAIT_SIMD", "neon"}, {"STRAIT_WIRE", "int9"}}) {
      const Stopwatch watch;
      EXPECT_THAT(join_launched(launched(meeting, 1), options_of(1, 2, 20'000, {{name, value}})),
                  FailsWith(Code::invalid_argument,
                            AllOf(HasSubstr("rank 1 cannot join"), HasSubstr(name + "=\"" + value + "\""))));
      EXPECT_LT(watch.elapsed(), std::chrono::seconds(3));
    }
}

/// All have the same wrong value: each says so by itself, whoever comes first.
TEST(OwnSettings, AWrongValueOnAllRanksIsNamedOnAll) {
  for (int round = 0; round < 10; ++round) {
    const LaunchInfo first = launched(Meeting::address, 0);
    on_ranks(2, [&](int rank) {
      LaunchInfo info = first;
      info.rank = rank;
      EXPECT_THAT(join_launched(info, options_of(rank, 2, 20'000, {{"STRAIT_MAX_SMS", "-1"}})),
                  FailsWith(Code::invalid_argument, AllOf(HasSubstr("rank " + std::to_string(rank) + " cannot join"),
                                                          HasSubstr("STRAIT_MAX_SMS"))));
    });
  }
}

/// What only layers above can judge is told just as soon.
TEST(OwnSettings, WhatTheCallerHasFoundWrongIsToldAtOnce) {
  for (const Meeting meeting : {Meeting::address, Meeting::local}) {
    JoinOptions options = options_of(1, 2);
    options.own_settings = fail(Code::invalid_usage, "that names no algorithm");
    const Stopwatch watch;
    EXPECT_THAT(join_launched(launched(meeting, 1), options),
                FailsWith(Code::invalid_usage, AllOf(HasSubstr("rank 1 cannot join"), HasSubstr("no algorithm"))));
    EXPECT_LT(watch.elapsed(), std::chrono::seconds(3));
  }
}

TEST(OwnSettings, AWrongSettingOfOneIsToldToTheOthers) {
  UniqueId id = make_id();
  const Stopwatch watch;
  const auto results = join_all(id, {options_of(0, 2), options_of(1, 2, 20'000, {{"STRAIT_SIMD", "neon"}})});
  const auto is_named = AllOf(HasSubstr("rank 1 cannot join"), HasSubstr("STRAIT_SIMD=\"neon\""));
  EXPECT_THAT(results[0], FailsWith(Code::remote_error, is_named));
  EXPECT_THAT(results[1], FailsWith(Code::invalid_argument, is_named));
  EXPECT_LT(watch.elapsed(), std::chrono::seconds(3));
}

}  // namespace
}  // namespace strait::testing
