// Files of several runs in one folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_folder.hpp"
#include "trace/files.hpp"

namespace strait::trace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr double start_us = 1.7e15;  // 2023-11-14 22:13:20 UTC

class Runs : public ::testing::Test {
 protected:
  /// Writes the file of a rank of two, as a process does that began and wrote it so many seconds after `start_us`.
  void write(const std::string& communicator, int rank, double began_s, double written_s) const {
    Json json = {{"format", "strait flight recorder 1"},
                 {"communicator", communicator},
                 {"rank", rank},
                 {"ranks", 2},
                 {"transport", "shm"},
                 {"reason", "signal"},
                 {"process_began_unix_us", start_us + began_s * 1e6},
                 {"unix_us", start_us + written_s * 1e6},
                 {"seen", Json::array()}};
    for (const char* name : {"rank 0", "rank 1"})
      json["seen"].push_back(
          {{"name", name}, {"left", false}, {"awaits", Json()}, {"calls", Json::array()}, {"messages", Json::array()}});
    std::ofstream(folder_ + "/strait-flight-" + communicator + "-" + std::to_string(rank) + ".json") << json;
  }
  std::string said(bool all_runs = false) const {
    const auto recorded = read_files({folder_}, all_runs);
    EXPECT_TRUE(recorded) << (recorded ? "" : recorded.error().message);
    return recorded ? report(*recorded, false) : "";
  }
  testing::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(Runs, TheNewestIsShownAndTheOthersAreCounted) {
  write("c", 0, 0, 20);
  write("c", 1, 1, 21);
  write("b", 1, 30, 50);
  write("a", 0, 60, 90);
  write("a", 1, 61, 89);
  EXPECT_THAT(said(), AllOf(HasSubstr("Left out: 3 files of earlier runs, written until 2023-11-14 22:14:10 UTC; --all "
                                      "shows them, too\n\nCommunicator a of 2 ranks"),
                            HasSubstr("The files were written within 1.0 s, until 2023-11-14 22:14:50 UTC\n"),
                            Not(HasSubstr("Communicator b")), Not(HasSubstr("Communicator c"))));
  const std::string all = said(true);
  EXPECT_THAT(all, Not(HasSubstr("Left out")));
  const std::size_t first = all.find("Run 1 of 3, written until 2023-11-14 22:13:41 UTC\n\nCommunicator c of"),
                    second = all.find("Run 2 of 3, written until 2023-11-14 22:14:10 UTC\n\nCommunicator b of"),
                    third = all.find("Run 3 of 3, written until 2023-11-14 22:14:50 UTC\n\nCommunicator a of");
  EXPECT_LT(first, second) << all;
  EXPECT_LT(second, third) << all;
  EXPECT_NE(third, all.npos) << all;
}

TEST_F(Runs, CommunicatorsOfOneRunAreAllShownTheNewestLast) {
  write("a", 0, 0, 90);
  write("b", 0, 1, 20);
  write("b", 1, 2, 20);
  const std::string text = said();
  EXPECT_LT(text.find("Communicator b of"), text.find("Communicator a of")) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("Communicator a of"), HasSubstr("Written at 2023-11-14 22:13:40 UTC\n"),
                          Not(HasSubstr("Left out")), Not(HasSubstr("Run "))));
}

/// The clock of rank 1's host is ahead, or its process began later than rank 0 wrote.
TEST_F(Runs, FilesOfOneCommunicatorAreOfOneRun) {
  write("old", 0, 0, 5);
  write("a", 0, 10, 20);
  write("a", 1, 100, 110);
  EXPECT_THAT(said(), AllOf(HasSubstr("Left out: 1 file of earlier runs"), HasSubstr("Communicator a of 2 ranks"),
                            HasSubstr("within 90.0 s"), Not(HasSubstr("as another rank saw it"))));
}

TEST_F(Runs, OneWithoutAFileThatCanBeUsedHidesNoEarlierOne) {
  write("b", 0, 0, 20);
  write("a", 0, 30, 50);
  std::ofstream(folder_ + "/strait-flight-later.json")
      << Json{{"format", "another"}, {"process_began_unix_us", start_us + 6e7}, {"unix_us", start_us + 7e7}};
  EXPECT_THAT(said(), AllOf(HasSubstr("Left out: 1 file of earlier runs"), HasSubstr("Communicator a of"),
                            Not(HasSubstr("Communicator b of"))));
  const auto recorded = read_files({folder_});
  ASSERT_TRUE(recorded);
  EXPECT_EQ(recorded->left_out.size(), 1U) << "it is named";
}

/// Their writers began at a time that nobody knows.
TEST_F(Runs, FilesWithoutTheTimeAreAllShown) {
  write("a", 0, -start_us * 1e-6, 20);
  write("b", 0, -start_us * 1e-6, 90);
  EXPECT_THAT(said(), AllOf(HasSubstr("Communicator a of"), HasSubstr("Communicator b of")));
}

TEST_F(Runs, InitsOfEarlierRunsAreLeftOutToo) {
  write("a", 0, 30, 50);
  Json json = {{"format", "strait flight recorder init 1"},
               {"call", "straitCommInitEnv"},
               {"rank", 0},
               {"ranks", 2},
               {"host", "n7"},
               {"pid", 7},
               {"root", ""},
               {"awaits", ""},
               {"awaits_since_unix_us", start_us},
               {"missing", Json::array()},
               {"process_began_unix_us", start_us},
               {"began_unix_us", start_us},
               {"unix_us", start_us + 2e7}};
  std::ofstream(folder_ + "/strait-flight-init.json") << json;
  EXPECT_THAT(said(), AllOf(HasSubstr("Left out: 1 file of earlier runs, "), Not(HasSubstr("straitCommInitEnv"))));
  EXPECT_THAT(said(true), HasSubstr("In straitCommInitEnv: 1 of 2 ranks\n"));
}

}  // namespace
}  // namespace strait::trace
