#include "select/calibration.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "support/temporary_folder.hpp"

namespace strait {
namespace {

constexpr std::string_view machine = "0123456789abcdef";

Calibration sample(double copy_gbps = 42) {
  Calibration calibration;
  calibration.host.copy_gbps = copy_gbps;
  calibration.host.memory.fetch_gbps = 7;
  calibration.host.memory.core_cache_bytes = 123456;
  calibration.fingerprint = machine;
  calibration.time = "2026-01-31T12:00:00Z";
  calibration.links["00000000000000aa"] = {{"gpu0", "port0", 11.5, 0, "copy engine, alone"}};
  calibration.gpus["00000000000000aa"] = {.call_us = 4.5, .step_us = 1.5};
  calibration.plans["shm/4"].add(Collective::all_reduce, "ring", 1 << 20, 1.25);
  return calibration;
}

Status save_calibration(const Calibration& calibration, const std::string& path) {
  return update_calibration(path, calibration.fingerprint, [&](Calibration& kept) { kept = calibration; });
}

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Replaces the first occurrence of `from`, and expects that there is one.
std::string changed(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(Calibration, ComesBackAsItWasSaved) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("new/folders/machine.json");
  ASSERT_TRUE(save_calibration(sample(), path));
  const auto loaded = load_calibration(path, machine);
  ASSERT_TRUE(loaded) << loaded.error().message;
  for (const RateField& field : rate_fields())
    EXPECT_EQ(field.get(loaded->host), field.get(sample().host)) << field.name;
  EXPECT_EQ(loaded->time, sample().time);
  EXPECT_EQ(loaded->links, sample().links);
  EXPECT_EQ(loaded->gpus, sample().gpus);
  EXPECT_EQ(loaded->plans, sample().plans);
}

TEST(Calibration, ShippedDefaultsArePlausible) {
  for (const RateField& field : rate_fields()) {
    EXPECT_GE(field.get(HostRates{}), field.least) << field.name;
    EXPECT_LE(field.get(HostRates{}), field.most) << field.name;
  }
}

TEST(Calibration, BadFilesAreToldByNameAndRemedy) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("machine.json");
  ASSERT_TRUE(save_calibration(sample(), path));
  const std::string good = text_of(path);
  const std::vector<std::pair<std::string, std::string>> bad{
      {"", "not JSON"},
      {good.substr(0, good.size() / 2), "not JSON"},
      {std::string(64, '\0'), "not JSON"},
      {"[]", "not JSON"},
      {"{}", "not one of Strait's"},
      {changed(good, "\"strait_calibration\": 4", "\"strait_calibration\": 5"), "version 5"},
      {changed(good, std::string(machine), "fedcba9876543210"), "another machine"},
      {changed(good, "\"copy_gbps\": 42.0", "\"copy_gbps\": -1"), "copy_gbps = -1"},
      {changed(good, "\"copy_gbps\": 42.0", "\"copy_gbps\": 1e99"), "no machine has"},
      {changed(good, "\"copy_gbps\": 42.0", "\"copy_gbps\": \"fast\""), "lacks the number copy_gbps"},
      {changed(good, "\"host\"", "\"guest\""), "lacks the rates"},
      {changed(good, "\"gbps\": 11.5", "\"gbps\": -1"), "no rate of a link"},
      {changed(good, "\"from\": \"gpu0\"", "\"from\": 3"), "no rate of a link"},
      {changed(good, "\"links\": {", "\"links\": 5, \"more\": {"), "other than rates of links"},
      {changed(good, "\"transports\": {}", "\"transports\": {\"cuda\": {\"push_gbps\": -3}}"), "push_gbps = -3"},
      {changed(good, "\"call_us\": 4.5", "\"call_us\": -4"), "call_us = -4"},
      {changed(good, "\"gpus\": {", "\"gpus\": 5, \"more\": {"), "other than rates of GPUs"},
      {changed(good, "\"transports\": {}", "\"transports\": 7"), "other than rates of transports"},
      {good + std::string(std::size_t{2} << 20, ' '), "too long"},
  };
  for (const auto& [text, problem] : bad) {
    tree.write("machine.json", text);
    const auto loaded = load_calibration(path, machine);
    ASSERT_FALSE(loaded) << problem;
    EXPECT_NE(loaded.error().message.find(problem), std::string::npos) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find(path), std::string::npos) << loaded.error().message;
    EXPECT_NE(loaded.error().message.find("strait doctor --calibrate"), std::string::npos) << loaded.error().message;
  }
}

/// Not only parsing but also printing nested values uses the stack: even a file short enough to be read must not crash
/// the program.
TEST(Calibration, DeepNestingIsBadLikeAnythingElse) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("machine.json");
  ASSERT_TRUE(save_calibration(sample(), path));
  const std::string good = text_of(path), deep = std::string(400'000, '[') + std::string(400'000, ']');
  for (const std::string& text :
       {changed(good, "1.25", deep), changed(good, "11.5", deep), changed(good, "4.5", deep),
        changed(good, "\"transports\": {}", "\"transports\": {\"cuda\": {\"push_gbps\": " + deep + "}}")}) {
    tree.write("machine.json", text);
    const auto loaded = load_calibration(path, machine);
    ASSERT_FALSE(loaded);
    EXPECT_LT(loaded.error().message.size(), 1000u);
    EXPECT_TRUE(save_calibration(sample(), path)) << "the remedy";
  }
  EXPECT_FALSE(parse_ratios(deep));
}

TEST(Calibration, TimesOfPlansTravelAsText) {
  const PlanRatios ratios = sample().plans.at("shm/4");
  const auto parsed = parse_ratios(ratios_text(ratios));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, ratios);
  EXPECT_TRUE(parse_ratios("[]"));
  for (const char* bad : {"", "7", "{}", "[7]", R"([{"collective":"all-reduce","algorithm":"ring"}])",
                          R"([{"collective":"all-produce","algorithm":"ring","points":[]}])",
                          R"([{"collective":"all-reduce","algorithm":"sting","points":[]}])",
                          R"([{"collective":7,"algorithm":"ring","points":[]}])",
                          R"([{"collective":"all-reduce","algorithm":"ring","points":[[1024]]}])",
                          R"([{"collective":"all-reduce","algorithm":"ring","points":[[-1,1.0]]}])",
                          R"([{"collective":"all-reduce","algorithm":"ring","points":[[1024,1000]]}])",
                          R"([{"collective":"all-reduce","algorithm":"ring","points":[[1024,0]]}])"})
    EXPECT_FALSE(parse_ratios(bad)) << bad;
}

TEST(Calibration, ANewMeasurementOfTheHostKeepsWhatTransportsMeasured) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("machine.json");
  ASSERT_TRUE(update_calibration(path, machine, [](Calibration& kept) { kept.transports["cuda"]["push_gbps"] = 391; }));
  ASSERT_TRUE(update_calibration(path, machine, [](Calibration& kept) { kept.host.copy_gbps = 7; }));
  const auto loaded = load_calibration(path, machine);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->transports.at("cuda").at("push_gbps"), 391);
  EXPECT_EQ(loaded->host.copy_gbps, 7);
  tree.write("machine.json", "{ cut sho");
  ASSERT_TRUE(update_calibration(path, machine, [](Calibration& kept) { kept.host.copy_gbps = 8; }));
  EXPECT_EQ(load_calibration(path, machine)->host.copy_gbps, 8);
}

TEST(Calibration, ABadFileLeavesTheDefaults) {
  set_log_level(LogLevel::off);
  const testing::TemporaryFolder tree;
  tree.write("machine.json", "{");
  const std::string path = tree.path("machine.json");
  const Environment environment(
      [&](const char* name) { return std::string_view(name) == "STRAIT_CALIBRATION" ? path.c_str() : nullptr; });
  const KnownRates known = known_rates(environment);
  EXPECT_EQ(known.host.copy_gbps, HostRates{}.copy_gbps);
  EXPECT_NE(known.source.find("shipped defaults"), std::string::npos);
  EXPECT_NE(known.source.find(path), std::string::npos);
}

TEST(Calibration, IsFoundInTheCacheFolderAndCanBeTurnedOff) {
  const testing::TemporaryFolder tree;
  Calibration own = sample();
  own.fingerprint = machine_fingerprint();
  const auto with = [&](const char* calibration) {
    return Environment([&tree, calibration, folder = tree.path()](const char* name) -> const char* {
      if (std::string_view(name) == "XDG_CACHE_HOME") return folder.c_str();
      return std::string_view(name) == "STRAIT_CALIBRATION" ? calibration : nullptr;
    });
  };
  const auto path = calibration_path(with(nullptr), own.fingerprint);
  ASSERT_TRUE(path);
  EXPECT_EQ(*path, tree.path("strait/" + own.fingerprint + ".json"));
  ASSERT_TRUE(save_calibration(own, *path));
  EXPECT_EQ(known_rates(with(nullptr)).host.copy_gbps, 42);
  EXPECT_EQ(known_rates(with("off")).host.copy_gbps, HostRates{}.copy_gbps);
  EXPECT_FALSE(calibration_path(Environment([](const char*) -> const char* { return nullptr; }), machine));
}

TEST(Calibration, APlaceThatCannotBeWrittenToIsToldWithWhatFitsIt) {
  const testing::TemporaryFolder tree;
  tree.write("file", "");
  EXPECT_NE(save_calibration(sample(), tree.path("file/machine.json"))
                .error()
                .message.find("Not a directory. Name a file elsewhere"),
            std::string::npos);
  tree.write("folder.json/other", "");
  EXPECT_NE(save_calibration(sample(), tree.path("folder.json"))
                .error()
                .message.find("Is a directory. Name a file, such as one in it"),
            std::string::npos);
}

/// A reader that runs at the same time as writers never finds a partly written file.
TEST(Calibration, WritersAtOnceLeaveAWholeFile) {
  const testing::TemporaryFolder tree;
  const std::string path = tree.path("machine.json");
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 3; ++writer) {
    writers.push_back(fork());
    if (writers.back() != 0) continue;
    bool saved = true;
    for (int i = 0; i < 10; ++i) {
      saved = saved && save_calibration(sample(writer + 1), path);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // otherwise one writer would take all turns
    }
    _exit(saved ? 0 : 1);
  }
  bool was_there = false;
  for (std::size_t ended = 0; ended < writers.size();) {
    const auto loaded = load_calibration(path, machine);
    EXPECT_TRUE(loaded || (!was_there && loaded.error().code == Code::unsupported))
        << (loaded ? "" : loaded.error().message);
    was_there |= loaded.has_value();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    int status = -1;
    if (waitpid(writers[ended], &status, WNOHANG) == 0) continue;
    EXPECT_EQ(status, 0);
    ++ended;
  }
  EXPECT_TRUE(load_calibration(path, machine));
}

TEST(Calibration, TheLastCacheHoldsNoLessThanACoresOwn) {
  const testing::TemporaryFolder tree;
  const std::string caches = "sys/devices/system/cpu/cpu0/cache/";
  tree.write(caches + "index2/level", "2\n");
  tree.write(caches + "index2/size", "1024K\n");
  tree.write(caches + "index3/level", "3\n");
  for (const auto& [size, shared_bytes] : {std::pair{"32M\n", 32U << 20}, {"512K\n", 1U << 20}}) {
    tree.write(caches + "index3/size", size);
    EXPECT_EQ(cache_sizes(tree.path()).core_bytes, 1U << 20);
    EXPECT_EQ(cache_sizes(tree.path()).shared_bytes, shared_bytes);
  }
}

TEST(Calibration, TheFingerprintFollowsTheMachineAlone) {
  const testing::TemporaryFolder tree;
  tree.write("proc/cpuinfo", "processor : 0\nmodel name : One\ncpu MHz : 1000\n\n");
  tree.write("proc/meminfo", "MemTotal: 16000000 kB\n");
  tree.write("sys/devices/system/cpu/present", "0-7\n");
  const std::string first = machine_fingerprint(tree.path());
  EXPECT_EQ(first.size(), 16U);
  tree.write("proc/cpuinfo", "processor : 0\nmodel name : One\ncpu MHz : 2000\n\n");
  EXPECT_EQ(machine_fingerprint(tree.path()), first);
  tree.write("proc/meminfo", "MemTotal: 16777216 kB\n");  // kernels on the same machine reserve different amounts
  EXPECT_EQ(machine_fingerprint(tree.path()), first);
  tree.write("proc/meminfo", "MemTotal: 33000000 kB\n");
  EXPECT_NE(machine_fingerprint(tree.path()), first);
  tree.write("proc/meminfo", "MemTotal: 16000000 kB\n");
  tree.write("sys/devices/system/cpu/present", "0-15\n");
  EXPECT_NE(machine_fingerprint(tree.path()), first);
  tree.write("sys/devices/system/cpu/present", "0-7\n");
  tree.write("proc/cpuinfo", "processor : 0\nmodel name : Two\n\n");
  EXPECT_NE(machine_fingerprint(tree.path()), first);
}

}  // namespace
}  // namespace strait
