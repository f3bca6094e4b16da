// What `strait trace` says of ranks that were asked for a dump while they made a communicator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/temporary_folder.hpp"
#include "trace/files.hpp"

namespace strait::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class Inits : public ::testing::Test {
 protected:
  static Json file_of(int rank) {
    return {{"format", "strait flight recorder init 1"},
            {"call", "straitCommInitEnv"},
            {"rank", rank},
            {"ranks", 4},
            {"host", "n7"},
            {"pid", 100 + rank},
            {"root", "192.0.2.1:7000"},
            {"awaits", "the other ranks to join at 192.0.2.1:7000"},
            {"awaits_since_unix_us", 1'700'000'002'000'000},
            {"missing", Json::array()},
            {"began_unix_us", 1'700'000'001'000'000},
            {"unix_us", 1'700'000'013'300'000}};
  }
  void write(const Json& json) const {
    std::ofstream(folder_ + "/strait-flight-" + std::to_string(++files_) + ".json") << json;
  }
  std::string said(bool all_runs = false) const {
    const auto recorded = read_files({folder_}, all_runs);
    EXPECT_TRUE(recorded) << (recorded ? "" : recorded.error().message);
    left_out_ = recorded ? recorded->left_out.size() : 0;
    return recorded ? report(*recorded, false) : "";
  }
  testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  mutable int files_ = 0;
  mutable std::size_t left_out_ = 0;
};

TEST_F(Inits, TheRankThatHasNotJoinedIsNamed) {
  for (const int rank : {2, 0, 1}) {
    Json json = file_of(rank);
    if (rank == 0) json["missing"] = {3};
    write(json);
  }
  EXPECT_EQ(said(),
            "In straitCommInitEnv: 3 of 4 ranks, which join at 192.0.2.1:7000\n\n"
            "rank                       in it for  waits for\n"
            "rank 0 (host n7, pid 100)  12.3 s     the other ranks to join at 192.0.2.1:7000 (for 11.3 s)\n"
            "rank 1 (host n7, pid 101)  12.3 s     the other ranks to join at 192.0.2.1:7000 (for 11.3 s)\n"
            "rank 2 (host n7, pid 102)  12.3 s     the other ranks to join at 192.0.2.1:7000 (for 11.3 s)\n\n"
            "Behind: rank 3 had not joined at 192.0.2.1:7000 when rank 0 (host n7, pid 100) was asked\n"
            "No file of rank 3: it has not begun, or is done, or did not get SIGUSR1, or has no "
            "STRAIT_FLIGHT_RECORDER\n");
}

TEST_F(Inits, AreTakenApartByWhereTheirRanksJoin) {
  for (int rank = 0; rank < 4; ++rank) write(file_of(rank));
  Json other = file_of(1);
  other["root"] = "";
  other["awaits"] = "";
  other["ranks"] = 0;
  other["call"] = "straitCommInit\x1bRank";
  write(other);
  EXPECT_THAT(said(), AllOf(HasSubstr("4 of 4 ranks, which join at 192.0.2.1:7000\n"),
                            HasSubstr("Nobody is missing: all ranks are in it\n"),
                            HasSubstr("In straitCommInit\\x1bRank: 1 of an unknown number of ranks\n"),
                            HasSubstr("waits for\nrank 1 (host n7, pid 101)  12.3 s     nobody (for"),
                            Not(HasSubstr("No file"))));
}

/// Ranks that split a communicator may all have files: those of that communicator.
TEST_F(Inits, TheRankThatHasNotCalledTheSplitIsBehind) {
  for (const int rank : {0, 2, 3}) {
    Json json = file_of(rank);
    json["call"] = "straitCommSplit";
    json["root"] = "";
    json["of"] = {{"communicator", "abc"}, {"rank", rank}};
    json["awaits_calls"] = true;
    write(json);
  }
  EXPECT_THAT(said(), AllOf(HasSubstr("In straitCommSplit: 3 of 4 ranks\n"),
                            HasSubstr("Behind: rank 1, which has not called straitCommSplit, or wrote no file\n"),
                            Not(HasSubstr("No file of"))));
}

/// Files of earlier versions do not say whether ranks wait for the call, or for what comes after it.
TEST_F(Inits, WhereRanksMayHaveReturnedNobodyIsBehind) {
  Json json = file_of(0);
  json["call"] = "straitCommSplit";
  json["root"] = "";
  json["of"] = {{"communicator", "abc"}, {"rank", 0}};
  write(json);
  EXPECT_THAT(said(), AllOf(HasSubstr("Not in it: rank 1, 2, 3, which has not called straitCommSplit, or is done with "
                                      "it, or wrote no file\n"),
                            Not(HasSubstr("Behind"))));
}

/// Of a job that was started again, and of a process that tried again: both join at one address.
TEST_F(Inits, FilesOfAnEarlierTimeHideNobodyWhoIsMissing) {
  const auto put_off = [](Json json, double seconds) {
    for (const char* time : {"awaits_since_unix_us", "began_unix_us", "unix_us"})
      json[time] = json[time].get<double>() + seconds * 1e6;
    return json;
  };
  for (const int rank : {0, 1, 2}) write(file_of(rank));
  for (const int rank : {0, 1}) write(put_off(file_of(rank), 60));
  EXPECT_THAT(said(),
              AllOf(HasSubstr("2 of 4 ranks, which join at 192.0.2.1:7000\n"), HasSubstr("No file of rank 2, 3: "),
                    HasSubstr("Left out: 3 files of ranks that were in it before the last of these began; --all shows "
                              "them\n")));
  EXPECT_THAT(said(true), AllOf(HasSubstr("3 of 4 ranks, which join"), HasSubstr("2 of 4 ranks, which join"),
                                HasSubstr("No file of rank 3: "), Not(HasSubstr("Left out"))));
}

/// Its ranks have the numbers that they had before.
TEST_F(Inits, OfAShrinkTheEarlierNumbersCount) {
  Json json = file_of(1);
  json["call"] = "straitCommShrink";
  json["ranks"] = 2;
  json["known_as"] = {1, 3};
  json["missing"] = {3};
  write(json);
  EXPECT_THAT(said(), AllOf(HasSubstr("In straitCommShrink: 1 of 2 ranks"), HasSubstr("Behind: rank 3 had not joined"),
                            HasSubstr("No file of rank 3: it has not begun")));
}

TEST_F(Inits, AFileThatIsNotWellFormedIsLeftOut) {
  Json json = file_of(1);
  json.erase("awaits");
  write(json);
  write(file_of(0));
  EXPECT_THAT(said(), HasSubstr("1 of 4 ranks"));
  EXPECT_EQ(left_out_, 1U);
}

}  // namespace
}  // namespace strait::trace
