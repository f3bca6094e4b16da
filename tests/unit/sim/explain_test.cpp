#include "sim/explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "perf/last_times.hpp"
#include "perf/options.hpp"
#include "plan/print.hpp"
#include "select/selector.hpp"
#include "topology/builtin_machines.hpp"

namespace strait::sim {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

Explanation explained(const MachineOptions& machine, const OperationOptions& options = {},
                      std::size_t bytes = 1 << 20) {
  auto e = explain(machine, options, bytes, "");
  EXPECT_TRUE(e) << (e ? "" : e.error().message);
  return std::move(e).value();
}

std::string error_of(const MachineOptions& machine, const OperationOptions& options = {}, std::size_t bytes = 1 << 20,
                     const std::string& algorithm = "") {
  const auto e = explain(machine, options, bytes, algorithm);
  EXPECT_FALSE(e);
  return e ? "" : e.error().message;
}

/// A file that is removed when this object is destroyed.
class File {
 public:
  explicit File(const std::string& text) : path_(testing::TempDir() + "strait_explain_test.json") {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Explain, SaysFromWhereCpuThreadsAddUp) {
  const auto text = [](const char* machine_name) { return to_text(explained({machine_name, 0, false})); };
  EXPECT_THAT(text("10x-rtx3090"), HasSubstr(", added up by CPU threads from 32K where calibrated"));
  EXPECT_THAT(text("10x-rtx3090-bridged"), HasSubstr(", sums across islands by CPU threads from 32K where calibrated"));
  EXPECT_THAT(text("4x-h200-no-p2p"), Not(HasSubstr("CPU threads")));
}

TEST(Explain, SaysHowTheRateComesToBe) {
  Explanation e = explained({"10x-rtx3090", 0, false});
  EXPECT_THAT(to_text(e), HasSubstr("0.6 GB/s each way a GPU while all exchange: ")) << "so the file says";
  e.machine.exchange.is_fixed_by_user = false;
  EXPECT_THAT(to_text(e),
              HasSubstr("0.6 GB/s each way a GPU while all exchange, unless a communicator measures clearly "
                        "less: "));
  e.machine.exchange.gbps = 0;
  EXPECT_THAT(to_text(e), HasSubstr("unknown until a communicator or `strait doctor --calibrate` measures it: "));
}

class EveryBuiltinMachine : public testing::TestWithParam<BuiltinMachine> {};

TEST_P(EveryBuiltinMachine, ExplainsEveryCollective) {
  for (int c = 0; c < collective_count; ++c) {
    const auto collective = static_cast<Collective>(c);
    if (collective == Collective::send_recv || collective == Collective::all_to_all_v) continue;
    const Explanation e = explained({std::string(GetParam().name), 4, false}, {collective, DataType::float16}, 1 << 16);
    const auto& plans = e.prediction.plans;
    ASSERT_FALSE(plans.empty());
    EXPECT_GT(plans.front().time.total_us, 0);
    bool others = false;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      others |= !plans[i].in_class;
      EXPECT_EQ(others, !plans[i].in_class) << "first those of the class";
      if (i > 0 && plans[i].in_class == plans[i - 1].in_class && plans[i].runs == plans[i - 1].runs) {
        EXPECT_LE(plans[i - 1].time.total_us, plans[i].time.total_us);
      }
      const auto plan = build_plan(e.machine, e.operation, plans[i]);
      ASSERT_TRUE(plan);
      EXPECT_THAT(to_chrome_trace(*plan, plans[i].time), HasSubstr("traceEvents"));
    }
    EXPECT_THAT(to_text(e), AllOf(HasSubstr(std::string(name(collective))), HasSubstr("not measured"),
                                  HasSubstr(plans.front().algorithm), HasSubstr("chosen")));
    const Json json = Json::parse(to_json(e));
    EXPECT_EQ(json["prediction"], true);
    EXPECT_EQ(json["plans"].size(), plans.size());
    EXPECT_EQ(json["plans"][0]["predicted_us"], plans.front().time.total_us);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryBuiltinMachine,
                         testing::ValuesIn(builtin_machines().begin(), builtin_machines().end()), [](const auto& i) {
                           std::string name(i.param.name);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Explain, SaysWhichResourceBindsAndForHowLong) {
  const Explanation e = explained({"10x-rtx3090", 0, false}, {}, 64 << 20);
  EXPECT_THAT(e.prediction.choice().time.binding, HasSubstr("port0"));
  EXPECT_GT(binding_share(e.prediction.choice().time), 0.95);
  EXPECT_THAT(to_text(e),
              AllOf(HasSubstr("busy 100%"), HasSubstr("shared PCIe"), HasSubstr("in rank order and round once")));
}

TEST(Explain, PlansThatRoundAtHopsAreShownAndNeverChosenForFloatingSums) {
  const Explanation floats = explained({"8x-h800", 0, false});
  const Explanation maxima = explained({"8x-h800", 0, false}, {.op = ReduceOp::max});
  const auto ring = [](const Explanation& e) {
    return std::find_if(e.prediction.plans.begin(), e.prediction.plans.end(),
                        [](const PredictedPlan& plan) { return plan.algorithm == "ring"; });
  };
  ASSERT_NE(ring(floats), floats.prediction.plans.end());
  ASSERT_NE(ring(maxima), maxima.prediction.plans.end());
  EXPECT_FALSE(ring(floats)->in_class);
  EXPECT_TRUE(ring(maxima)->in_class);
  EXPECT_THAT(to_text(floats), HasSubstr("never chosen"));
  EXPECT_THAT(to_text(maxima), Not(HasSubstr("never chosen")));
}

TEST(Explain, HostRanksAreChosenForAsTheLibraryDoes) {
  const Explanation e = explained({"", 2, true});
  const auto choice =
      choose(request_for(e.machine, e.operation), DataType::float32, ReduceOp::sum, e.operation.count, e.machine.clock);
  ASSERT_TRUE(choice);
  EXPECT_EQ(e.prediction.choice().algorithm, choice->algorithm);
  EXPECT_EQ(e.prediction.choice().slice_bytes, choice->slice_bytes);
  EXPECT_DOUBLE_EQ(e.prediction.choice().time.total_us, choice->predicted_us);
}

TEST(Explain, OfManyRanksTellsHowFarItIsAndWhatIsNotTried) {
  std::vector<std::string> told;
  const Progress progress = [&](const std::string& what) { told.push_back(what); };
  const auto text = [&](std::uint32_t ranks) {
    const auto e = explain({"8x-h100-superpod", ranks, false}, {}, 64 << 10, "", progress);
    return e ? to_text(*e) : e.error().message;
  };
  EXPECT_THAT(text(64), Not(HasSubstr("bounds ")));
  EXPECT_THAT(told, testing::IsEmpty());
  EXPECT_THAT(text(72),
              HasSubstr("bounds    of more than 64 ranks smaller slices are tried only until they are slower"));
  EXPECT_THAT(told, testing::Contains("simulates two_hop on 72 ranks"));
}

TEST(Explain, ManyHostRanksAreEstimatedAsTheLibraryDoes) {
  const auto e = explained({"laptop", 256, false}, {}, 64 << 20);
  Selector selector({.model = e.machine.clock, .options = {}, .tuning = {}, .shape = e.machine.request.shape});
  const auto choice = selector.choose({.collective = Collective::all_reduce,
                                       .type = DataType::float32,
                                       .peer_memory = e.machine.request.peer_memory,
                                       .count = e.operation.count});
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(e.prediction.choice().algorithm, (*choice)->algorithm);
  EXPECT_EQ(e.prediction.choice().time.total_us, (*choice)->predicted_us);
  EXPECT_THAT(to_text(e), AllOf(HasSubstr("of more than 32 host ranks the library goes by estimates"),
                                Not(HasSubstr("by level")), Not(HasSubstr("% of the time"))));
  EXPECT_EQ(Json::parse(to_json(e))["plans"][0]["estimated"], true);
  EXPECT_FALSE(explained({"laptop", 32, false}).prediction.choice().estimated);
}

TEST(Explain, AChoiceThatIsSlowerThanTheNextPlanSaysWhyItIsTaken) {
  const auto e = explained({"laptop", 4, false}, {}, 4 << 20);
  const auto& plans = e.prediction.plans;
  ASSERT_LT(plans[1].time.total_us, plans[0].time.total_us) << "this machine shows nothing";
  EXPECT_THAT(e.prediction.why, HasSubstr(": both within 3%, which the clock cannot tell apart, and two_hop has fewer "
                                          "lanes (1, not "));
}

TEST(Explain, BadOptionsAreErrorsThatSayWhatToDo) {
  EXPECT_THAT(error_of({"vax", 0, false}), AllOf(HasSubstr("no machine 'vax'"), HasSubstr("10x-rtx3090")));
  EXPECT_THAT(error_of({"/no/such/file.json", 0, false}), AllOf(HasSubstr("/no/such/file.json"), HasSubstr("No such")));
  EXPECT_THAT(error_of({"4x-h200", 5, false}), HasSubstr("more than the 4 GPUs"));
  EXPECT_THAT(error_of({"4x-h200", 0, false}, {}, 2), HasSubstr("2 bytes cannot hold an element of float32. Take 4"));
  EXPECT_THAT(error_of({"4x-h200", 0, false}, {Collective::reduce_scatter}, 15), HasSubstr("Take 16 or more"));
  EXPECT_THAT(error_of({"4x-h200", 0, false}, {Collective::send_recv}), HasSubstr("send-recv depends on"));
  EXPECT_THAT(error_of({"4x-h200", 0, false}, {.collective = Collective::broadcast, .root = 4}), HasSubstr("root 4"));
  EXPECT_THAT(error_of({"4x-h200", 0, false}, {}, 1 << 20, "rnig"), HasSubstr("'rnig' that was asked for is unknown"));
  const File broken("{\"strait_topology\": 1, \"hosts\": [");
  EXPECT_THAT(error_of({broken.path(), 0, false}), HasSubstr(broken.path()));
}

/// Returns results of all-reduces on four GPUs, as `strait perf --json` writes them.
Json measured_results() {
  const Json rank = {{"gpu", {{"device", 0}}}};
  return {{"program", "strait perf"},
          {"settings", {{"collective", "all-reduce"}}},
          {"ranks", {rank, rank, rank, rank}},
          {"provenance", {{"time", "2026-11-20T12:00:00Z"}}},
          {"results",
           {{{"bytes", 1 << 19}, {"type", "float32"}, {"op", "sum"}, {"out_of_place", {{"time_us", 1.0}}}},
            {{"bytes", 1 << 20},
             {"type", "float32"},
             {"op", "sum"},
             {"out_of_place", {{"time_us", 20.0}, {"busbw_gbps", 78.6}}}}}}};
}

TEST(Explain, ShowsWhatWasMeasured) {
  const Explanation e = explained({"4x-h200", 0, false});
  Json results = measured_results();
  {
    const File file(results.dump());
    const auto found = find_measured(file.path(), e);
    ASSERT_TRUE(found && *found);
    EXPECT_DOUBLE_EQ((*found)->time_us, 20);
    Explanation with = e;
    with.measured = *found;
    EXPECT_THAT(to_text(with), AllOf(HasSubstr("20.0 us"), HasSubstr("2026-11-20")));
  }
  results["ranks"].erase(3);
  {
    const auto other_ranks = find_measured(File(results.dump()).path(), e);
    EXPECT_TRUE(other_ranks.has_value() == false || !other_ranks->has_value());
  }
  const File foreign("{\"hello\": 1}");
  const auto wrong = find_measured(foreign.path(), e);
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, HasSubstr("no results of `strait perf --json`"));
  EXPECT_FALSE(find_measured("/no/such/file", e));
  results = measured_results();
  const auto changed = [&](const char* place, const Json& value) {
    Json other = results;
    other[Json::json_pointer(place)] = value;
    const auto found = find_measured(File(other.dump()).path(), e);
    return found ? "no error" : found.error().message;
  };
  EXPECT_EQ(changed("/unknown", 5), "no error");
  for (const char* place :
       {"/settings", "/settings/collective", "/results/1", "/results/1/bytes", "/results/1/type",
        "/results/1/out_of_place", "/results/1/out_of_place/time_us", "/provenance", "/provenance/time"})
    EXPECT_THAT(changed(place, {5}), HasSubstr("no results of `strait perf --json`")) << place;
}

TEST(Explain, ShowsNothingThatWasMeasuredOfOtherCalls) {
  const auto shows = [](const Explanation& e, const char* place, const Json& value) {
    Json other = measured_results();
    other[Json::json_pointer(place)] = value;
    const auto found = find_measured(File(other.dump()).path(), e);
    EXPECT_TRUE(found) << found.error().message;
    return found && found->has_value();
  };
  const Explanation e = explained({"4x-h200", 0, false});
  const auto plain = [](const char* name, const Json& value) {
    return std::pair("/settings/" + std::string(name), value);
  };
  for (const auto& [place, value] : {plain("wire", nullptr), plain("wire", "off"), plain("registered_memory", false),
                                     plain("graph_launches", 0), plain("aggregated", 1), plain("blocking", 0),
                                     plain("average", 1), plain("extra_elements", 0), plain("offset_bytes", 0)})
    EXPECT_TRUE(shows(e, place.c_str(), value)) << place;
  for (const auto& [place, value] :
       {plain("wire", "int8"), plain("registered_memory", true), plain("graph_launches", 2), plain("aggregated", 16),
        plain("blocking", 2), plain("average", 3), plain("extra_elements", 3), plain("offset_bytes", 4)})
    EXPECT_FALSE(shows(e, place.c_str(), value)) << place;
  EXPECT_FALSE(shows(e, "/ranks/3", {{"rank", 3}})) << "a host rank";
  EXPECT_FALSE(shows(explained({"4x-h200", 4, true}), "/settings/wire", nullptr)) << "GPUs for host ranks";
  EXPECT_FALSE(shows(e, "/prediction", {{"machine", "4x-h200"}})) << "nobody measured that";

  const char* variable = "/provenance/environment/STRAIT_WIRE";
  const Explanation int8 = explained({"4x-h200", 0, false}, {.wire = WireFormat::int8});
  EXPECT_FALSE(shows(e, variable, "INT8"));
  EXPECT_TRUE(shows(int8, variable, "INT8"));
  EXPECT_TRUE(shows(int8, "/settings/wire", "int8"));
  EXPECT_FALSE(shows(int8, "/settings/wire", "fp8"));
  EXPECT_FALSE(shows(int8, "/settings/wire", "off"));
  EXPECT_FALSE(shows(int8, "/settings/wire", nullptr));
  Json both = measured_results();
  both["settings"]["wire"] = "off";
  both["provenance"]["environment"]["STRAIT_WIRE"] = "int8";
  EXPECT_TRUE(find_measured(File(both.dump()).path(), e)->has_value()) << "the option comes first";
  Json whole_numbers = measured_results();
  whole_numbers["results"][1]["type"] = "int32";
  whole_numbers["provenance"]["environment"]["STRAIT_WIRE"] = "int8";
  EXPECT_TRUE(
      find_measured(File(whole_numbers.dump()).path(), explained({"4x-h200", 0, false}, {.type = DataType::int32}))
          ->has_value())
      << "these have no wire format";
}

TEST(Explain, ShowsWhatWasMeasuredOfTheSameRoot) {
  Json results = measured_results();
  results["settings"]["collective"] = "broadcast";
  results["results"][1].erase("op");
  results["results"][1]["root"] = 1;
  const File file(results.dump());
  for (const std::uint32_t root : {0, 1}) {
    const auto e = explained({"4x-h200", 0, false}, {.collective = Collective::broadcast, .root = root});
    EXPECT_EQ(find_measured(file.path(), e)->has_value(), root == 1);
  }
}

TEST(Explain, TellsOfSettingsThatTheChoiceDoesNotHeed) {
  const auto left_out = [](std::map<std::string, std::string> values) {
    return settings_left_out(Environment([values](const char* name) -> const char* {
      const auto found = values.find(name);
      return found == values.end() ? nullptr : found->second.c_str();
    }));
  };
  EXPECT_EQ(left_out({{"STRAIT_DEBUG", "info"}}).value(), "");
  EXPECT_EQ(left_out({{"STRAIT_ALGORITHM", "ring"}, {"STRAIT_TUNING_FILE", "my.toml"}}).value(),
            "STRAIT_ALGORITHM=ring STRAIT_TUNING_FILE=my.toml");
  EXPECT_THAT(left_out({{"STRAIT_SLICE_BYTES", "x"}}).error().message, HasSubstr("STRAIT_SLICE_BYTES=\"x\""));
  Explanation e = explained({"4x-h200", 0, false});
  EXPECT_THAT(to_text(e), Not(HasSubstr("left out")));
  e.left_out = "STRAIT_ALGORITHM=ring";
  EXPECT_THAT(to_text(e), HasSubstr("calls go by STRAIT_ALGORITHM=ring here"));
  EXPECT_EQ(Json::parse(to_json(e))["left_out"], "STRAIT_ALGORITHM=ring");
}

TEST(Explain, ShowsWhatPerfLastMeasuredHere) {
  const Explanation e = explained({"4x-h200", 0, false});
  const auto path = (std::filesystem::temp_directory_path() / ("strait-explain-" + std::to_string(getpid()))).string();
  const Environment nothing([](const char*) -> const char* { return nullptr; });
  const auto known_us = [&](const Environment& environment) {
    const auto found = find_kept(path, e, environment);
    EXPECT_TRUE(found) << found.error().message;
    return found && *found ? (*found)->time_us : 0;
  };
  EXPECT_EQ(known_us(nothing), 0);
  perf::Report report{};
  for (const std::string& bus_id : e.machine.bus_ids) report.ranks.push_back({0, 1, "host", 0, bus_id, "GPU"});
  ASSERT_EQ(report.ranks.size(), 4U);
  report.transport.name = "cuda_p2p";
  perf::Row row{.bytes = e.bytes,
                .count = e.bytes / 4,
                .subject = {DataType::float32, ReduceOp::sum, -1},
                .out_of_place = {},
                .in_place = {}};
  row.out_of_place.time_us = 20;
  report.rows = {row};
  ASSERT_TRUE(perf::keep_times(path, report, nothing));
  EXPECT_EQ(known_us(nothing), 20);
  EXPECT_EQ(known_us(Environment([](const char* name) { return name == std::string("STRAIT_P2P") ? "off" : nullptr; })),
            0);
  const Environment wire([](const char* name) { return name == std::string("STRAIT_WIRE") ? "INT8" : nullptr; });
  const Explanation int8 = explained({"4x-h200", 0, false}, {.wire = WireFormat::int8});
  EXPECT_FALSE(find_kept(path, int8, nothing)->has_value()) << "the time of the exact call";
  report.rows[0].out_of_place.time_us = 15;
  ASSERT_TRUE(perf::keep_times(path, report, wire));
  EXPECT_EQ(find_kept(path, int8, wire)->value().time_us, 15);
  EXPECT_FALSE(find_kept(path, int8, nothing)->has_value());
  EXPECT_EQ(known_us(wire), 0) << "the time of the encoded call";
  Explanation with = e;
  with.measured = *find_kept(path, e, nothing);
  EXPECT_THAT(to_text(with), AllOf(HasSubstr("measured  20.0 us"), HasSubstr("over cuda_p2p")));
  { const std::ofstream broken(path); }
  const auto bad = find_kept(path, e, nothing);
  ASSERT_FALSE(bad);
  with.measured.reset();
  with.not_measured = bad.error().message;
  EXPECT_THAT(to_text(with), HasSubstr("measured  not known: " + path));
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".lock");
}

}  // namespace
}  // namespace strait::sim
