#include "perf/last_times.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "select/calibration.hpp"
#include "support/temporary_folder.hpp"

namespace strait::perf {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Environment environment(std::map<std::string, std::string> values = {}) {
  return Environment([values](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

class LastTimes : public ::testing::Test {
 protected:
  /// Returns a report of two ranks on GPUs of one host, with one size.
  static Report report(double time_us = 20, std::size_t bytes = 1 << 20) {
    Report report{};
    report.ranks = {{0, 1, "a", 0, "0000:41:00.0", "GPU"}, {1, 1, "a", 1, "0000:42:00.0", "GPU"}};
    report.transport.name = "cuda_p2p";
    Row row{.bytes = bytes,
            .count = bytes / 4,
            .subject = {DataType::float32, ReduceOp::sum, -1},
            .out_of_place = {},
            .in_place = {}};
    row.out_of_place.time_us = time_us;
    row.out_of_place.bus_gbps = 50;
    report.rows = {row};
    return report;
  }
  static TimedOperation same() {
    return {.collective = Collective::all_reduce,
            .bytes = 1 << 20,
            .subject = {DataType::float32, ReduceOp::sum, -1},
            .ranks = 2,
            .bus_ids = {"0000:42:00.0", "0000:41:00.0"},
            .settings = ""};
  }
  void keep(const Report& report, const Environment& with = environment()) const {
    const Status kept = keep_times(path_, report, with);
    EXPECT_TRUE(kept) << kept.error().message;
  }
  /// Returns 0 if no time is known.
  double time_of(const TimedOperation& operation) const {
    const auto found = find_last_time(path_, operation);
    EXPECT_TRUE(found) << found.error().message;
    return found && *found ? (*found)->time_us : 0;
  }
  const testing::TemporaryFolder folder_;
  const std::string path_ = folder_.path("below/times.json");
};

TEST_F(LastTimes, TheLastOneIsFound) {
  EXPECT_EQ(time_of(same()), 0);
  keep(report(20));
  keep(report(30));
  keep(report(7, 64));
  const auto found = find_last_time(path_, same());
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->time_us, 30);
  EXPECT_EQ((*found)->bus_gbps, 50);
  EXPECT_EQ((*found)->transport, "cuda_p2p");
  EXPECT_EQ((*found)->when.size(), 20U);
}

TEST_F(LastTimes, OfAnotherOperationOrMachineItIsNotThatOne) {
  keep(report());
  EXPECT_EQ(time_of(same()), 20);
  for (const auto& change : std::vector<void (*)(TimedOperation&)>{
           [](TimedOperation& o) { o.collective = Collective::reduce_scatter; },
           [](TimedOperation& o) { o.bytes /= 2; },
           [](TimedOperation& o) { o.subject.type = DataType::int32; },
           [](TimedOperation& o) { o.subject.op = ReduceOp::max; },
           [](TimedOperation& o) { o.subject.root = 0; },
           [](TimedOperation& o) { o.ranks = 3; },
           [](TimedOperation& o) { o.bus_ids.clear(); },
           [](TimedOperation& o) { o.bus_ids[0] = "0000:43:00.0"; },
           [](TimedOperation& o) { o.settings = "STRAIT_P2P=off"; },
       }) {
    TimedOperation other = same();
    change(other);
    EXPECT_EQ(time_of(other), 0);
  }
}

TEST_F(LastTimes, SettingsThatMatterArePartOfIt) {
  EXPECT_EQ(*settings_text(environment({{"STRAIT_P2P", "auto"}, {"STRAIT_DEBUG", "info"}})), "");
  const Environment without = environment({{"STRAIT_P2P", "off"}, {"STRAIT_PIPED_BYTES", "2M"}});
  EXPECT_EQ(*settings_text(without), "STRAIT_P2P=off");
  keep(report(), without);
  EXPECT_EQ(time_of(same()), 0);
  TimedOperation operation = same();
  operation.settings = "STRAIT_P2P=off";
  EXPECT_EQ(time_of(operation), 20);
}

TEST_F(LastTimes, RunsThatSayNothingOfChoicesAreNotKept) {
  for (const auto& change : std::vector<void (*)(Report&)>{
           [](Report& r) { r.ranks[1].host = "b"; },
           [](Report& r) { r.predicted_on.machine = "10x RTX 3090"; },
           [](Report& r) { r.options.registration = 1; },
           [](Report& r) { r.options.graph_launches = 1; },
           [](Report& r) { r.options.wire = WireFormat::off; },
           [](Report& r) { r.options.blocking = Blocking::wait; },
           [](Report& r) { r.options.aggregated = 16; },
           [](Report& r) { r.options.offset_bytes = 4; },
           [](Report& r) { r.options.extra_elements = 3; },
           [](Report& r) { r.rows[0].out_of_place.wrong = 1; },
       }) {
    Report other = report();
    change(other);
    keep(other);
    EXPECT_EQ(time_of(same()), 0);
  }
  keep(report(), environment({{"STRAIT_TUNING_FILE", "x.toml"}}));
  EXPECT_EQ(time_of(same()), 0);
}

TEST_F(LastTimes, ABadFileIsToldAndBegunAnew) {
  keep(report());
  std::string good;
  std::getline(std::ifstream(path_), good, '\0');
  const std::string own = machine_fingerprint();
  std::string foreign = good, newer = good;
  foreign.replace(foreign.find(own), own.size(), "0123456789abcdef");
  newer.replace(newer.find("\"strait_times\": 1"), 17, "\"strait_times\": 2");
  for (const std::string& text :
       {good.substr(0, good.size() / 2), std::string("[]"), std::string("{}"), foreign, newer}) {
    std::ofstream(path_) << text;
    const auto found = find_last_time(path_, same());
    ASSERT_FALSE(found) << text;
    EXPECT_THAT(found.error().message, AllOf(HasSubstr(path_), HasSubstr("Delete it")));
  }
  keep(report(25));
  EXPECT_EQ(time_of(same()), 25);
}

TEST_F(LastTimes, OfTooManyTheStrangeAndTheOldestLeave) {
  keep(report(20));
  std::ifstream in(path_);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string begin = "\"times\": {";
  std::string others;
  for (int i = 0; i < 9000; ++i)
    others += "\"k" + std::to_string(i) + "\": " + (i % 2 == 0 ? "5, " : "{\"time\": 5}, ");
  ASSERT_NE(text.find(begin), std::string::npos);
  std::ofstream(path_) << text.insert(text.find(begin) + begin.size(), others);
  keep(report(30, 64));
  EXPECT_EQ(time_of(same()), 20);
  std::getline(std::ifstream(path_), text, '\0');
  EXPECT_EQ(text.find("\"k0\""), std::string::npos);
  EXPECT_NE(text.find("\"k8999\""), std::string::npos);
}

TEST_F(LastTimes, SeveralWritersLoseNothing) {
  {
    std::vector<std::jthread> writers;
    for (std::size_t i = 1; i <= 8; ++i) writers.emplace_back([&, i] { keep(report(static_cast<double>(i), i * 64)); });
  }
  TimedOperation operation = same();
  for (std::size_t i = 1; i <= 8; ++i) {
    operation.bytes = i * 64;
    EXPECT_EQ(time_of(operation), static_cast<double>(i));
  }
}

TEST_F(LastTimes, TheFileLiesInTheCacheFolder) {
  EXPECT_EQ(*last_times_path(environment({{"XDG_CACHE_HOME", "/c"}})),
            "/c/strait/" + machine_fingerprint() + ".times.json");
  const auto nowhere = last_times_path(environment());
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message, HasSubstr("neither XDG_CACHE_HOME nor HOME"));
}

}  // namespace
}  // namespace strait::perf
