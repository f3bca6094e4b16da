#include "perf/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "perf/shared_options.hpp"

namespace strait::perf {
namespace {

/// Parses arguments as `strait perf` does; an error fails the test.
Options parsed(const std::string& arguments) {
  CLI::App app;
  Options options;
  declare_options(app, options);
  EXPECT_NO_THROW(app.parse(arguments)) << arguments;
  return options;
}

TEST(ParseRoot, TakesARankOrAll) {
  EXPECT_EQ(parse_root("all"), -1);
  EXPECT_EQ(parse_root("3"), 3);
  EXPECT_FALSE(parse_root("3x"));
}

TEST(Options, DefaultsAreThoseOfNcclTests) {
  const Options o = parsed("all-reduce");
  EXPECT_EQ(o.min_bytes, 32U << 20);
  EXPECT_EQ(o.max_bytes, 32U << 20);
  EXPECT_EQ(o.step_bytes, 1U << 20);
  EXPECT_EQ(o.iterations, 20);
  EXPECT_EQ(o.warmup_iterations, 1);
  EXPECT_EQ(o.checks, 1);
  EXPECT_EQ(o.average, Average::mean);
  EXPECT_EQ(o.types, std::vector{DataType::float32});
}

TEST(Options, FlagsOfNcclTestsParse) {
  const Options o =
      parsed("reduce -b 8 -e 1M -f 2 -n 50 -w 5 -c 2 -d bfloat16 -o max -r all -z 3 -t 4 -g 0 -N 2 -a 3 -C 1");
  EXPECT_EQ(o.collective, Collective::reduce);
  EXPECT_EQ(o.min_bytes, 8U);
  EXPECT_EQ(o.max_bytes, 1U << 20);
  EXPECT_EQ(o.step_factor, 2U);
  EXPECT_EQ(o.iterations, 50);
  EXPECT_EQ(o.ops, std::vector{ReduceOp::max});
  EXPECT_EQ(o.root, -1);
  EXPECT_EQ(o.blocking, Blocking::barrier_untimed);
  EXPECT_EQ(o.threads, 4);
  EXPECT_EQ(o.cycles, 2);
  EXPECT_EQ(o.average, Average::max);
  EXPECT_TRUE(o.cpu_time);
}

TEST(Options, GpusAreOfEachThread) {
  const Options o = parsed("all-reduce -t 4 -g 1");
  EXPECT_TRUE(validate(o));
  EXPECT_EQ(o.threads, 4);
  EXPECT_EQ(o.gpus, 1);
  EXPECT_EQ(parsed("all-reduce").gpus, 0) << "GPUs are measured only if asked for";
}

TEST(Options, GraphsAndABaselineAreOfGpus) {
  const Options o = parsed(
      "all-reduce -g 1 -G 3 --baseline libnccl.so.2 --turns 7 --check-limit 4M --extra-elements 17 --budget-ms 1.5");
  EXPECT_TRUE(validate(o));
  EXPECT_EQ(o.graph_launches, 3);
  EXPECT_EQ(o.baseline_path, "libnccl.so.2");
  EXPECT_EQ(o.turns, 7);
  EXPECT_EQ(o.budget_ms, 1.5);
  EXPECT_EQ(o.check_limit_bytes, 4U << 20);
  EXPECT_EQ(o.extra_elements, 17U);
  EXPECT_TRUE(validate(parsed("all-reduce -g 1 --baseline x --plot x.svg")));
  for (const char* bad : {"all-reduce -G 1", "all-reduce --baseline libnccl.so.2", "barrier -g 1 --baseline x",
                          "all-reduce -g 1 --baseline x --simulate 4x-h200"})
    EXPECT_FALSE(validate(parsed(bad))) << bad;
}

TEST(Options, OffsetsAreMultiplesOfElements) {
  EXPECT_EQ(parsed("all-reduce").offset_bytes, 0U);
  const Options o = parsed("all-reduce -d bfloat16 --offset-bytes 2");
  EXPECT_EQ(o.offset_bytes, 2U);
  EXPECT_TRUE(validate(o));
  const Status status = validate(parsed("all-reduce -d float32 --offset-bytes 2"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::invalid_argument);
  EXPECT_NE(status.error().message.find("multiples of 4"), std::string::npos);
}

TEST(Options, SymmetricWindowsAreOfGpus) {
  for (const char* good : {"all-reduce -R 1", "all-reduce -g 1 -R 1", "all-reduce -g 1 -R 2"})
    EXPECT_TRUE(validate(parsed(good))) << good;
  const Status status = validate(parsed("all-reduce -R 2"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::unsupported);
  EXPECT_NE(status.error().message.find("--local_register"), std::string::npos);
}

TEST(Options, MalformedValuesAreRefused) {
  for (const char* arguments :
       {"allreduce", "all-reduce -b x", "all-reduce -a 4", "all-reduce -n 0", "all-reduce -z 9", "all-reduce -R 3",
        "all-reduce --turns 0", "all-reduce --budget-ms 0", "all-reduce -g -1", "all-reduce -w -1", "all-reduce -c -1",
        "all-reduce -N -1", "all-reduce -C 2", "all-reduce -C true", "all-reduce -G -1", "all-reduce -f -2",
        "all-reduce --extra-elements -1"}) {
    CLI::App app;
    Options options;
    declare_options(app, options);
    EXPECT_THROW(app.parse(std::string(arguments)), CLI::ParseError) << arguments;
  }
}

TEST(Options, WhatContradictsItselfIsRefused) {
  EXPECT_TRUE(validate(parsed("all-reduce")));
  EXPECT_FALSE(validate(parsed("all-reduce -b 2K -e 1K")));
  EXPECT_FALSE(validate(parsed("all-reduce -b 64M")));
  EXPECT_FALSE(validate(parsed("all-reduce -b 3 -e 3")));
  EXPECT_FALSE(validate(parsed("all-reduce -b 4 -e 4 -d all")));
  for (const char* good : {"all-reduce -b 4 -e 4", "all-reduce -b 0 -e 0", "all-reduce -b 3 -e 3 -d int8",
                           "barrier -b 1 -e 1", "all-reduce -b 0 -e 0 --extra-elements 1"})
    EXPECT_TRUE(validate(parsed(good))) << good;
  EXPECT_FALSE(validate(parsed("all-reduce -b 1K -e 2K -i 0")));
  EXPECT_FALSE(validate(parsed("all-reduce -f 1 -b 1K -e 4K"))) << "1 MB, the default step, is beyond";
  EXPECT_FALSE(validate(parsed("all-reduce -b 1K -e 4K")));
  EXPECT_TRUE(validate(parsed("all-reduce -f 1 -b 1K -e 4K -i 3K")));
  EXPECT_TRUE(validate(parsed("all-reduce -f 1 -b 1M -e 4M")));
  EXPECT_TRUE(validate(parsed("all-reduce -f 1 -b 1K -e 1K")));
  EXPECT_FALSE(validate(parsed("all-reduce -g 1 --turns 7")));
  EXPECT_TRUE(validate(parsed("all-reduce -g 1 --turns 7 --baseline x")));
  EXPECT_FALSE(validate(parsed("all-reduce -b 1 -e 4G -i 1"))) << "the sizes alone would take 32 GB";
  EXPECT_TRUE(validate(parsed("all-reduce -b 1 -e 100000 -i 1")));
  EXPECT_EQ(sizes_bytes(parsed("all-reduce -b 1 -e 100000 -i 1")).size(), 100000U);
  EXPECT_TRUE(validate(parsed("all-reduce -N 0")));
  EXPECT_FALSE(validate(parsed("all-reduce -N 0 --json x.json")));
  EXPECT_FALSE(validate(parsed("all-reduce -N 0 --plot x.svg")));
  EXPECT_FALSE(validate(parsed("all-reduce --plot x.png")));
  EXPECT_FALSE(validate(parsed("barrier --plot x.svg")));
}

TEST(Options, WhereNothingIsMeasuredWhatIsAboutMeasuringIsRefused) {
  const std::string simulated = "all-reduce --simulate 4x-h200 ";
  for (const char* good : {"", "-m 1 -c 1 -N 1 -z 0 -R 0 -C 0 -G 0 --turns 5 --offset-bytes 0", "-c 0", "-n 5 -w 5",
                           "--extra-elements 3", "-t 2 -g 1"})
    EXPECT_TRUE(validate(parsed(simulated + good))) << good;
  const std::pair<const char*, const char*> bad[] = {
      {"-m 2", "--agg_iters"},      {"-R 1", "--local_register"},
      {"-R 2", "--local_register"}, {"-C 1", "--report_cputime"},
      {"-N 2", "--run_cycles"},     {"-N 0", "--run_cycles"},
      {"-z 1", "--blocking"},       {"--offset-bytes 4", "--offset-bytes"},
      {"--turns 7", "--turns"},     {"--budget-ms 5", "--budget-ms"},
      {"-c 2", "--check"},          {"--calibrate", "--calibrate"},
      {"-G 1", "--cudagraph"},      {"--baseline x", "--baseline"},
      {"--floors", "--floors"},     {"--floors -g 1 -m 2", "--agg_iters, --floors"}};
  for (const auto& [asked, named] : bad) {
    const Status status = validate(parsed(simulated + asked));
    ASSERT_FALSE(status) << asked;
    EXPECT_EQ(status.error().message, std::string("--simulate measures nothing: leave out ") + named) << asked;
  }
}

TEST(Sizes, StepByFactorOrByBytes) {
  EXPECT_EQ(sizes_bytes(parsed("all-reduce -b 8 -e 64 -f 2")), (std::vector<std::size_t>{8, 16, 32, 64}));
  EXPECT_EQ(sizes_bytes(parsed("all-reduce -b 8 -e 30 -i 8")), (std::vector<std::size_t>{8, 16, 24}));
  EXPECT_EQ(sizes_bytes(parsed("all-reduce -b 0 -e 64 -f 2")), (std::vector<std::size_t>{0}));
  EXPECT_EQ(sizes_bytes(parsed("barrier")), (std::vector<std::size_t>{0}));
  EXPECT_EQ(sizes_bytes(parsed("all-reduce -b 900T -e 900T -f 2147483647")).size(), 1U) << "the next has 81 bits";
}

TEST(Wire, IsForCallsThatCanHaveOne) {
  EXPECT_EQ(parsed("all-reduce").wire, std::nullopt);
  EXPECT_EQ(parsed("all-reduce --wire int8").wire, WireFormat::int8);
  EXPECT_EQ(parsed("all-reduce --wire off").wire, WireFormat::off);
  for (const char* good :
       {"all-reduce --wire fp8 -d half -o avg", "all-to-all --wire int4 -d bfloat16", "all-gather --wire int8 -o max",
        "broadcast --wire off -d all", "all-reduce --wire int4 -g 1", "all-reduce --wire int8 --simulate 4x-h200"})
    EXPECT_TRUE(validate(parsed(good))) << good;
  for (const char* bad : {"broadcast --wire int8", "all-reduce --wire int8 -d int32", "all-reduce --wire int8 -d all",
                          "reduce-scatter --wire fp8 -o max"}) {
    const Status status = validate(parsed(bad));
    ASSERT_FALSE(status) << bad;
    EXPECT_NE(status.error().message.find("--wire"), std::string::npos) << status.error().message;
  }
}

TEST(SharedOptions, EachThatChangesWhatIsMeasuredIsCompared) {
  const std::string first = shared_options(parsed("all-reduce"), 1);
  EXPECT_EQ(difference_to_first(first, first), "");
  EXPECT_EQ(difference_to_first(shared_options(parsed("all-reduce --json x.json --plot x.svg --calibrate"), 1), first),
            "");
  EXPECT_EQ(difference_to_first(shared_options(parsed("all-reduce"), 2), first),
            "--nthreads is 2 here, and 1 in process 0. Give all processes of a run the same options");
  const std::pair<const char*, const char*> changes[] = {
      {"-g 1", "--ngpus is 1 here, and 0 in"},
      {"-d all", "--datatype is int8,"},
      {"-o max", "--op is max here, and sum in"},
      {"--wire int8", "--wire is int8 here, and that of STRAIT_WIRE in"},
      {"-r all", "--root is all here, and 0 in"},
      {"-b 1M", "--minbytes is 1048576 here, and 33554432 in"},
      {"-e 64M", "--maxbytes is 67108864 here, and 33554432 in"},
      {"-i 2M", "--stepbytes"},
      {"-f 2", "--stepfactor"},
      {"--extra-elements 1", "--extra-elements"},
      {"--offset-bytes 4", "--offset-bytes"},
      {"-n 7", "--iters is 7 here, and 20 in"},
      {"-m 2", "--agg_iters"},
      {"-w 2", "--warmup_iters"},
      {"-N 2", "--run_cycles"},
      {"-a 3", "--average is 3 here, and 1 in"},
      {"-z 1", "--blocking"},
      {"-G 1", "--cudagraph"},
      {"--budget-ms 1.5", "--budget-ms is 1.5 here, and 0 in"},
      {"-C 1", "--report_cputime"},
      {"-c 0", "--check is 0 here, and 1 in"},
      {"--check-limit 1K", "--check-limit is 1024 here, and none in"},
      {"-R 1", "--local_register"},
      {"--baseline x", "--baseline is given here, and left out in"},
      {"--turns 7", "--turns"},
      {"--floors", "--floors is given here, and left out in"}};
  for (const auto& [change, text] : changes)
    EXPECT_THAT(difference_to_first(shared_options(parsed(std::string("all-reduce ") + change), 1), first),
                ::testing::StartsWith(text))
        << change;
}

TEST(SharedOptions, OtherVersionsAreTold) {
  const std::string first = shared_options(parsed("all-reduce"), 1);
  for (const std::string& other :
       {first + "--new 1\n", first.substr(0, first.find('\n')), std::string("\n"), std::string()}) {
    EXPECT_THAT(difference_to_first(other, first), ::testing::HasSubstr("same version")) << other;
    EXPECT_THAT(difference_to_first(first, other), ::testing::HasSubstr("same version")) << other;
  }
}

}  // namespace
}  // namespace strait::perf
