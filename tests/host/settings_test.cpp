// Ranks may know different things of the machine and have different settings; all must make the same choice.
#include <filesystem>
#include <fstream>

#include "fault/rank_processes.hpp"
#include "select/calibration.hpp"
#include "select/select.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int ranks = 3;
constexpr std::array<std::size_t, 5> counts{1, 300, 5000, 70'000, 900'000};

class Settings : public ::testing::Test {
 protected:
  Settings() { std::filesystem::create_directories(folder_); }
  ~Settings() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }

  /// Expects right sums on all ranks, each of which first runs `prepare`.
  static void expect_right_sums(const std::function<void(int rank)>& prepare) {
    RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
      prepare(rank);
      straitComm_t comm = join(id, rank, ranks, report);
      ASSERT_NE(comm, nullptr) << report.message;
      std::vector<std::int32_t> buffer;
      for (const std::size_t count : counts) STRAIT_EXPECT_OK(checked_all_reduce(comm, rank, ranks, count, 7, buffer));
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
    processes.expect_all_end_well();
  }

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("strait_settings_" + std::to_string(getpid()));
};

/// Returns the rates that `rank` assumes: with them, the clock would choose different algorithms on different ranks.
HostRates rates_of(int rank) {
  HostRates rates;
  if (rank == 1) rates.step_us = rates.latency_us = 500;
  if (rank == 2) {
    rates.copy_gbps = 0.05;
    rates.memory = {};
    rates.memory.core_cache_bytes = 1 << 20;
    rates.memory.dram_read_gbps = rates.memory.dram_write_gbps = rates.memory.stream_gbps = 0.05;
    rates.memory.fetch_gbps = rates.memory.replace_gbps = rates.memory.two_copies_gbps = 0.05;
    rates.memory.replace_beside_gbps = 0.05;
    rates.memory.shared_read_gbps = rates.memory.shared_write_gbps = 0.05;
  }
  return rates;
}

std::string chosen_with(const ClockModel& model, std::size_t count) {
  PlanRequest request;
  request.ranks = ranks;
  const auto choice = choose(request, DataType::int32, ReduceOp::sum, count, model);
  return choice ? choice->algorithm + " " + std::to_string(choice->slice_bytes) : choice.error().message;
}
std::string chosen_with(const HostRates& rates, std::size_t count) {
  return chosen_with(host_model(ranks, 2, rates), count);
}

TEST_F(Settings, RanksWithDifferentCalibrationsChooseAlike) {
  bool differ = false;
  for (const std::size_t count : counts) differ |= chosen_with(rates_of(0), count) != chosen_with(rates_of(1), count);
  ASSERT_TRUE(differ) << "else this test shows nothing";
  for (int rank = 0; rank < ranks; ++rank)
    ASSERT_TRUE(update_calibration(path(std::to_string(rank)), machine_fingerprint(),
                                   [&](Calibration& calibration) { calibration.host = rates_of(rank); }));
  expect_right_sums([&](int rank) { setenv("STRAIT_CALIBRATION", path(std::to_string(rank)).c_str(), 1); });
}

TEST_F(Settings, WhatRankZeroHasMeasuredOfPlansCountsForAll) {
  constexpr double far_slower = 40;
  const std::string usual = chosen_with(rates_of(0), counts[3]);
  const std::string algorithm = usual.substr(0, usual.find(' '));
  PlanRatios ratios;
  ratios.add(Collective::all_reduce, algorithm, 1, far_slower);
  ASSERT_TRUE(update_calibration(path("0"), machine_fingerprint(), [&](Calibration& calibration) {
    calibration.host = rates_of(0);
    for (const char* transport : {"shm", "shm_file", "tcp"}) calibration.plans[ratios_key(transport, ranks)] = ratios;
  }));
  ClockModel model = host_model(ranks, 2, rates_of(0));
  model.ratios = ratios;
  EXPECT_NE(chosen_with(model, counts[3]), usual) << "else this test shows nothing";
  expect_right_sums([&](int rank) { setenv("STRAIT_CALIBRATION", rank == 0 ? path("0").c_str() : "off", 1); });
}

TEST_F(Settings, ADamagedCalibrationOfOneRankDoesNoHarm) {
  write("bad", "{\"strait_calibration\": 2, \"fingerp");
  expect_right_sums([&](int rank) {
    setenv("STRAIT_DEBUG", "off", 1);
    setenv("STRAIT_CALIBRATION", rank == 0 ? path("bad").c_str() : "off", 1);
  });
}

TEST_F(Settings, OverridesRunWhatTheyAskFor) {
  write("tuning.toml", R"(
    [[override]]
    collective = "all-reduce"
    max_bytes = "4K"
    algorithm = "ring"

    [[override]]
    collective = "all-reduce"
    algorithm = "tree"
    lanes = 2
    slice_bytes = "32K"
  )");
  expect_right_sums([&](int) {
    setenv("STRAIT_DEBUG", "off", 1);
    setenv("STRAIT_TUNING_FILE", path("tuning.toml").c_str(), 1);
  });
}

TEST_F(Settings, TuningThatDiffersIsAnErrorOnAllRanks) {
  write("one.toml", "[[override]]\ncollective = 'all-reduce'\nalgorithm = 'ring'\n");
  write("same.toml", "# The same.\n[[override]]\nalgorithm = 'ring'\ncollective = 'all-reduce'\n");
  write("other.toml", "[[override]]\ncollective = 'all-reduce'\nalgorithm = 'tree'\n");
  const std::array<const char*, ranks> files{"one.toml", "same.toml", "other.toml"};
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    setenv("STRAIT_TUNING_FILE", path(files[static_cast<std::size_t>(rank)]).c_str(), 1);
    EXPECT_EQ(join(id, rank, ranks, report), nullptr);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(processes.report(rank).result, straitMismatch) << processes.report(rank).message;
    EXPECT_THAT(processes.report(rank).message,
                AllOf(HasSubstr("STRAIT_TUNING_FILE"), HasSubstr("rank 0"), HasSubstr("rank 2")));
  }
}

TEST_F(Settings, AMistakeInTheTuningFileStopsTheRanksOnlyWhereItIsStrict) {
  write("bad.toml", "[[override]]\ncollective = 'all-reduce'\nalgorithm = 'rnig'\n");
  const auto with_strict = [&](const char* strict) {
    setenv("STRAIT_DEBUG", "off", 1);
    setenv("STRAIT_TUNING_FILE", path("bad.toml").c_str(), 1);
    setenv("STRAIT_TUNING_STRICT", strict, 1);
  };
  expect_right_sums([&](int) { with_strict("0"); });
  RankProcesses processes(ranks, [&](int rank, const straitUniqueId& id, Report& report) {
    with_strict("1");
    EXPECT_EQ(join(id, rank, ranks, report), nullptr);
  });
  processes.expect_all_end_well();
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_THAT(processes.report(rank).message, AllOf(HasSubstr("bad.toml:3: "), HasSubstr("'rnig' is unknown")));
}

}  // namespace
}  // namespace strait::testing
