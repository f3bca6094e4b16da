// `strait doctor --plans` as a user runs it, on two ranks and with one size, and how other commands use its results.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/cpus.hpp"
#include "doctor/team.hpp"
#include "select/calibration.hpp"
#include "select/select.hpp"
#include "support/temporary_folder.hpp"

namespace strait {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t ranks = 2;
constexpr std::size_t bytes = 8 << 10;

/// Returns the output of a shell command; a command that fails fails the test.
std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) {
    ADD_FAILURE() << command;
    return output;
  }
  char piece[4096];
  while (const std::size_t read = fread(piece, 1, sizeof piece, pipe)) output.append(piece, read);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command << "\n" << output;
  return output;
}

class DoctorPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    // The latency of a signal must be true, because it shows how the processors are related.
    if (doctor::usable_cores().size() > 1) {
      doctor::Team pair({doctor::usable_cores().front(), doctor::usable_cores().back()});
      rates_.latency_us = doctor::handover_us(pair, false);
    }
    ASSERT_TRUE(update_calibration(path_, machine_fingerprint(), [this](Calibration& kept) {
      kept.host = rates_;
      kept.plans["shm/2"].add(Collective::all_reduce, "ring", 4 * bytes, 1.5);  // from an earlier run
    }));
    setenv("STRAIT_CALIBRATION", path_.c_str(), 1);
    setenv("XDG_CACHE_HOME", tree_.path("cache").c_str(), 1);  // where `strait perf` keeps its times
  }
  void TearDown() override {
    unsetenv("STRAIT_CALIBRATION");
    unsetenv("XDG_CACHE_HOME");
  }

  static PlanRequest request(Collective collective, bool peer_memory) {
    PlanRequest request;
    request.collective = collective;
    request.ranks = ranks;
    request.peer_memory = peer_memory;
    return request;
  }

  /// Returns what communicators choose over shm.
  Choice choice_with(const PlanRatios& ratios) const {
    ClockModel model = host_model(ranks, within_quota(doctor::usable_cores().size(), cpu_quota()), rates_);
    model.ratios = ratios;
    auto choice = choose(request(Collective::all_reduce, false), DataType::int32, ReduceOp::sum, bytes / 4, model);
    EXPECT_TRUE(choice);
    return choice ? *choice : Choice{};
  }

  const testing::TemporaryFolder tree_;
  const std::string path_ = tree_.path("machine.json");
  HostRates rates_;
};

TEST_F(DoctorPlans, EveryPlanIsTimedAndChoicesAreByWhatWasFound) {
  const std::string strait = STRAIT_COMMAND;
  EXPECT_THAT(
      output_of(fmt::format("{} doctor --plans --ranks {} --sizes {} --output {}", strait, ranks, bytes, path_)),
      HasSubstr("saved as " + path_));
  const auto found = load_calibration(path_, machine_fingerprint());
  ASSERT_TRUE(found) << found.error().message;
  for (const RateField& field : rate_fields())
    EXPECT_NEAR(field.get(found->host), field.get(rates_), 1e-9 * std::abs(field.get(rates_))) << field.name;
  for (const bool peer_memory : {true, false}) {
    const auto of_transport = found->plans.find(ratios_key(peer_memory ? "loopback" : "shm", ranks));
    ASSERT_NE(of_transport, found->plans.end());
    const auto& points = of_transport->second.points();
    std::size_t plans = 0;
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
      for (const Algorithm& algorithm : catalogue()) {
        if (!algorithm.supports(request(collective, peer_memory))) continue;
        ++plans;
        const auto point = points.find({collective, std::string(algorithm.name)});
        ASSERT_NE(point, points.end()) << algorithm.name;
        ASSERT_TRUE(point->second.contains(bytes)) << algorithm.name;
        EXPECT_TRUE(std::isfinite(point->second.at(bytes)) && point->second.at(bytes) > 0) << algorithm.name;
      }
    EXPECT_GT(plans, 12U);
    EXPECT_EQ(points.size(), plans);
  }
  const PlanRatios& ratios = found->plans.at("shm/2");
  EXPECT_EQ(ratios.of(Collective::all_reduce, "ring", 4 * bytes), 1.5) << "other sizes stay";

  const Choice by_rates = choice_with({}), expected = choice_with(ratios);
  ASSERT_GT(std::abs(expected.predicted_us / by_rates.predicted_us - 1), 1e-3) << "else this test shows little";
  const auto explained = nlohmann::json::parse(
      output_of(fmt::format("{} explain all-reduce {} --host --ranks {} --type int32 --json", strait, bytes, ranks)),
      nullptr, false);
  ASSERT_TRUE(explained.is_object());
  const auto& first = explained.at("plans").at(0);
  EXPECT_EQ(first.at("algorithm"), expected.algorithm);
  EXPECT_NEAR(first.at("predicted_us").get<double>(), expected.predicted_us, 0.01 * expected.predicted_us);
  // A communicator gives the same reason for its choice.
  EXPECT_THAT(
      output_of(fmt::format("STRAIT_DEBUG=trace STRAIT_TRANSPORT=shm {} perf all-reduce -d int32 -b {} -e {} -t {}",
                            strait, bytes, bytes, ranks)),
      HasSubstr(expected.why.substr(0, expected.why.find(" in slices"))));
}

}  // namespace
}  // namespace strait
