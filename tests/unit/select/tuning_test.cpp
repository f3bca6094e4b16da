#include "select/tuning.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/log.hpp"

namespace strait {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Tuning, ReadsAllThatAnOverrideMaySay) {
  const Tuning tuning = parse_tuning(R"(
    # Sums of gradients.
    [[override]]
    collective = "all-reduce"
    min_bytes = "64K"
    max_bytes = 4194304
    min_ranks = 2
    max_ranks = 8
    type = "bfloat16"
    algorithm = "two_hop"
    slice_bytes = "128K"
    lanes = 4

    [[override]]
    collective = "all-gather"
    bytes = "1M"
    ranks = 16
    algorithm = "ring"
  )",
                                     "tuning.toml");
  EXPECT_THAT(tuning.problems, testing::IsEmpty());
  ASSERT_EQ(tuning.overrides.size(), 2U);
  const Override& first = tuning.overrides[0];
  EXPECT_EQ(first.algorithm, "two_hop");
  EXPECT_EQ(first.slice_bytes, 128U << 10);
  EXPECT_EQ(first.lanes, 4U);
  EXPECT_EQ(first.place, "tuning.toml:3");
  EXPECT_TRUE(first.fits(Collective::all_reduce, 64 << 10, DataType::bfloat16, 2));
  EXPECT_TRUE(first.fits(Collective::all_reduce, 4 << 20, DataType::bfloat16, 8));
  EXPECT_FALSE(first.fits(Collective::all_reduce, (64 << 10) - 1, DataType::bfloat16, 2));
  EXPECT_FALSE(first.fits(Collective::all_reduce, (4 << 20) + 1, DataType::bfloat16, 2));
  EXPECT_FALSE(first.fits(Collective::all_reduce, 1 << 20, DataType::float16, 2));
  EXPECT_FALSE(first.fits(Collective::all_reduce, 1 << 20, DataType::bfloat16, 9));
  EXPECT_FALSE(first.fits(Collective::all_gather, 1 << 20, DataType::bfloat16, 4));
  EXPECT_EQ(tuning.find(Collective::all_gather, 1 << 20, DataType::int8, 16), &tuning.overrides[1]);
  EXPECT_EQ(tuning.find(Collective::all_gather, 1 << 20, DataType::int8, 15), nullptr);
}

TEST(Tuning, TheFirstThatFitsHolds) {
  const Tuning tuning = parse_tuning(R"(
    override = [ { collective = "reduce", algorithm = "tree" }, { collective = "reduce", algorithm = "ring" } ]
  )",
                                     "t");
  EXPECT_THAT(tuning.problems, testing::IsEmpty());
  EXPECT_EQ(tuning.find(Collective::reduce, 1, DataType::int8, 2)->algorithm, "tree");
}

struct Mistake {
  std::string text;
  std::string place;
  std::string problem;
};

TEST(Tuning, MistakesAreToldWithTheirLineAndTheRestHolds) {
  const std::string good = "[[override]]\ncollective = \"reduce\"\nalgorithm = \"tree\"\n";
  const std::vector<Mistake> mistakes{
      {"[[override]]\ncollective = \"reduce\"\nalgorithm = \"tree\"\nalgoritm = \"x\"\n", "t:7",
       "unknown key 'algoritm'"},
      {"[[override]]\nalgorithm = \"tree\"\n", "t:4", "needs a collective"},
      {"[[override]]\ncollective = \"reduce\"\n", "t:4", "needs an algorithm, slice_bytes or lanes"},
      {"[[override]]\ncollective = \"allreduce\"\nlanes = 1\n", "t:5",
       "'allreduce' is no collective: give one of all-reduce"},
      {"[[override]]\ncollective = 3\nlanes = 1\n", "t:5", "collective must be a text"},
      {"[[override]]\ncollective = \"reduce\"\ntype = \"fp16\"\nlanes = 1\n", "t:6", "'fp16' is no type"},
      {"[[override]]\ncollective = \"reduce\"\nlanes = \"many\"\n", "t:6", "lanes must be a number"},
      {"[[override]]\ncollective = \"reduce\"\nlanes = 100\n", "t:6", "no more than 64"},
      {"[[override]]\ncollective = \"reduce\"\nlanes = 1.5\n", "t:6", "lanes must be a number"},
      {"[[override]]\ncollective = \"reduce\"\nmin_bytes = -1\nlanes = 1\n", "t:6", "min_bytes must be a number"},
      {"[[override]]\ncollective = \"reduce\"\nmin_bytes = \"4Q\"\nlanes = 1\n", "t:6", "min_bytes must be a number"},
      {"[[override]]\ncollective = \"reduce\"\nmax_ranks = 99999999999\nlanes = 1\n", "t:6",
       "max_ranks must be a number"},
      {"[[override]]\ncollective = \"reduce\"\nmin_bytes = 5\nmax_bytes = 4\nlanes = 1\n", "t:4",
       "at least 5 and at most 4"},
      {"[[override]]\ncollective = \"reduce\"\nslice_bytes = 100\n", "t:6", "multiple of 16"},
      {"[[override]]\ncollective = \"reduce\"\nalgorithm = \"rnig\"\n", "t:6",
       "'rnig' is unknown; for reduce there are"},
      {"[[override]]\ncollective = \"all-gather\"\nalgorithm = \"tree\"\n", "t:6",
       "'tree' cannot do it; for all-gather there are"},
      {"speed = 9\n[[override]]\ncollective = \"reduce\"\nlanes = 1\n", "t:1", "'speed' is unknown"},
  };
  for (const Mistake& mistake : mistakes) {
    const bool is_first = mistake.text.starts_with("speed");
    const Tuning tuning = parse_tuning(is_first ? mistake.text + good : good + mistake.text, "t");
    ASSERT_EQ(tuning.problems.size(), 1U) << mistake.problem;
    EXPECT_THAT(tuning.problems[0], AllOf(HasSubstr(mistake.place + ": "), HasSubstr(mistake.problem)));
    EXPECT_GE(tuning.overrides.size(), 1U) << mistake.problem;
  }
  const Tuning cut = parse_tuning(good + "[[override]]\ncollective = \"redu", "t");
  ASSERT_EQ(cut.problems.size(), 1U);
  EXPECT_THAT(cut.problems[0], AllOf(HasSubstr("t:5: not TOML")));
}

TEST(Tuning, TheSummaryFollowsWhatIsSaidAndNotHow) {
  const auto summary = [](const char* text) { return parse_tuning(text, "t").summary(); };
  const std::string one = summary("[[override]]\ncollective='reduce'\nalgorithm='tree'\nmin_bytes='1K'\n");
  EXPECT_EQ(one, summary("# the same\n\n[[override]]\nmin_bytes=1024\nalgorithm='tree'\ncollective='reduce'\n"));
  EXPECT_NE(one, summary("[[override]]\ncollective='reduce'\nalgorithm='ring'\nmin_bytes='1K'\n"));
  EXPECT_NE(one, summary("[[override]]\ncollective='reduce'\nalgorithm='tree'\nmin_bytes='2K'\n"));
  for (const char* more :
       {"type='int8'", "min_ranks=2", "max_ranks=2", "max_bytes='2K'", "lanes=2", "slice_bytes='1K'"})
    EXPECT_NE(one, summary((std::string("[[override]]\ncollective='reduce'\nalgorithm='tree'\nmin_bytes='1K'\n") +
                            more + "\n")
                               .c_str()))
        << more;
  EXPECT_EQ(summary(""), "no overrides");
}

class TuningFile : public testing::Test {
 protected:
  TuningFile() { std::filesystem::create_directories(folder_); }
  ~TuningFile() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    const std::string path = folder_ / "tuning.toml";
    std::ofstream(path) << text;
    return path;
  }
  static Result<Tuning> load(const std::string& path, const char* strict = nullptr) {
    return load_tuning(Environment([&](const char* name) -> const char* {
      if (std::string_view(name) == "STRAIT_TUNING_FILE") return path.c_str();
      return std::string_view(name) == "STRAIT_TUNING_STRICT" ? strict : nullptr;
    }));
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("strait_tuning_" + std::to_string(getpid()));
};

TEST_F(TuningFile, IsReadWhereTheEnvironmentNamesIt) {
  const auto tuning = load(write("[[override]]\ncollective='reduce'\nalgorithm='tree'\n"));
  ASSERT_TRUE(tuning);
  EXPECT_EQ(tuning->overrides.size(), 1U);
  const auto none = load("");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->overrides.empty());
}

TEST_F(TuningFile, AMistakeIsAWarningUnlessStrict) {
  const std::string path = write("[[override]]\ncollective='reduce'\nalgorithm='rnig'\n");
  set_log_level(LogLevel::warn);
  testing::internal::CaptureStderr();
  const auto tuning = load(path);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr(path + ":3: "), HasSubstr("'rnig' is unknown")));
  ASSERT_TRUE(tuning);
  EXPECT_TRUE(tuning->overrides.empty());
  const auto strict = load(path, "1");
  ASSERT_FALSE(strict);
  EXPECT_THAT(strict.error().message, AllOf(HasSubstr(path + ":3: "), HasSubstr("STRAIT_TUNING_STRICT")));
}

TEST_F(TuningFile, OneThatCannotBeReadIsToldByName) {
  set_log_level(LogLevel::off);
  const std::string absent = folder_ / "none.toml";
  EXPECT_TRUE(load(absent));
  for (const std::string& path : {absent, folder_.string(), std::string("/dev/zero")}) {
    const auto strict = load(path, "1");
    ASSERT_FALSE(strict) << path;
    EXPECT_THAT(strict.error().message, AllOf(HasSubstr("cannot read the tuning file " + path)));
  }
  const auto long_file = load(write(std::string(2 << 20, '#')), "1");
  ASSERT_FALSE(long_file);
  EXPECT_THAT(long_file.error().message, HasSubstr("far too long"));
}

}  // namespace
}  // namespace strait
