// Ranks that make different calls: each is told both, in that call or in its next.
#include <array>

#include "fault/rank_processes.hpp"
#include "transport/control.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Make = straitResult_t (*)(straitComm_t comm, std::int32_t* a, std::int32_t* b);

struct TwoCalls {
  const char* what;
  Make first;   ///< made by rank 0
  Make second;  ///< made by all others
  const char* first_text;
  const char* second_text;
};
void PrintTo(const TwoCalls& calls, std::ostream* out) { *out << calls.what; }

const TwoCalls cases[] = {
    {"Collective",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllReduce(a, b, 8, straitInt32, straitSum, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllGather(a, b, 8, straitInt32, c, nullptr); },
     "called all-reduce(count 8, int32, sum)", "called all-gather(count 8, int32)"},
    {"Count",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllReduce(a, b, 8, straitInt32, straitSum, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllReduce(a, b, 9, straitInt32, straitSum, c, nullptr);
     },
     "called all-reduce(count 8, int32, sum)", "called all-reduce(count 9, int32, sum)"},
    {"NoCount",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllToAll(a, b, 0, straitInt32, c, nullptr); },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllToAll(a, b, 2, straitInt32, c, nullptr); },
     "called all-to-all(count 0, int32)", "called all-to-all(count 2, int32)"},
    {"Type",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitReduceScatter(a, b, 8, straitInt32, straitSum, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitReduceScatter(a, b, 8, straitFloat32, straitSum, c, nullptr);
     },
     "called reduce-scatter(count 8, int32, sum)", "called reduce-scatter(count 8, float32, sum)"},
    {"Operation",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllReduce(a, b, 8, straitInt32, straitSum, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllReduce(a, b, 8, straitInt32, straitMax, c, nullptr);
     },
     "called all-reduce(count 8, int32, sum)", "called all-reduce(count 8, int32, max)"},
    {"RootOfBroadcast",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitBroadcast(a, b, 8, straitInt32, 0, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitBroadcast(a, b, 8, straitInt32, 1, c, nullptr);
     },
     "called broadcast(count 8, int32, root 0)", "called broadcast(count 8, int32, root 1)"},
    {"RootOfReduce",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitReduce(a, b, 8, straitInt32, straitSum, 1, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitReduce(a, b, 8, straitInt32, straitSum, 0, c, nullptr);
     },
     "called reduce(count 8, int32, sum, root 1)", "called reduce(count 8, int32, sum, root 0)"},
    {"RootOfScatter",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitScatter(a, b, 8, straitInt32, 0, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitScatter(a, b, 8, straitInt32, 1, c, nullptr);
     },
     "called scatter(count 8, int32, root 0)", "called scatter(count 8, int32, root 1)"},
    {"RootOfGather",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitGather(a, b, 8, straitInt32, 1, c, nullptr); },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitGather(a, b, 8, straitInt32, 0, c, nullptr); },
     "called gather(count 8, int32, root 1)", "called gather(count 8, int32, root 0)"},
    {"WireFormat",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.wire = straitWireInt8;
       return straitAllReduceWithOptions(a, b, 8, straitFloat32, straitSum, c, nullptr, &options);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.wire = straitWireFp8;
       return straitAllReduceWithOptions(a, b, 8, straitFloat32, straitSum, c, nullptr, &options);
     },
     "called all-reduce(count 8, float32, sum, int8 on the wire)",
     "called all-reduce(count 8, float32, sum, fp8 on the wire)"},
    {"WireFormatOfOne",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitAllToAll(a, b, 8, straitFloat32, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.wire = straitWireInt4;
       return straitAllToAllWithOptions(a, b, 8, straitFloat32, c, nullptr, &options);
     },
     "called all-to-all(count 8, float32)", "called all-to-all(count 8, float32, int4 on the wire)"},
    {"ThreadBlocks",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllGather(a, b, 8, straitInt32, c, nullptr); },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.max_sms = 12;
       return straitAllGatherWithOptions(a, b, 8, straitInt32, c, nullptr, &options);
     },
     "called all-gather(count 8, int32)", "called all-gather(count 8, int32, on up to 12 SMs)"},
    {"NoSms",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllGather(a, b, 8, straitInt32, c, nullptr); },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.max_sms = STRAIT_NO_SMS;
       return straitAllGatherWithOptions(a, b, 8, straitInt32, c, nullptr, &options);
     },
     "called all-gather(count 8, int32)", "called all-gather(count 8, int32, on no SMs)"},
    {"ThreadBlocksOfABroadcast",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitBroadcast(a, b, 8, straitInt32, 0, c, nullptr);
     },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.max_sms = 12;
       return straitBroadcastWithOptions(a, b, 8, straitInt32, 0, c, nullptr, &options);
     },
     "called broadcast(count 8, int32, root 0)", "called broadcast(count 8, int32, root 0, on up to 12 SMs)"},
    {"Algorithms",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) { return straitAllGather(a, b, 8, straitInt32, c, nullptr); },
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
       options.algorithm = "one_hop";
       return straitAllGatherWithOptions(a, b, 8, straitInt32, c, nullptr, &options);
     },
     "called all-gather(count 8, int32)", "called all-gather(count 8, int32, by one_hop)"},
    {"BarrierAndBroadcast",
     [](straitComm_t c, std::int32_t* a, std::int32_t* b) {
       return straitBroadcast(a, b, 8, straitInt32, 0, c, nullptr);
     },
     [](straitComm_t c, std::int32_t*, std::int32_t*) { return straitBarrier(c, nullptr); },
     "called broadcast(count 8, int32, root 0)", "called barrier"},
};

void check_told(const TwoCalls& calls, straitComm_t comm, int rank, int ranks) {
  std::array<std::int32_t, 64> a{}, b{};
  STRAIT_EXPECT_OK(straitAllReduce(a.data(), b.data(), 64, straitInt32, straitSum, comm, nullptr));
  straitResult_t result = (rank == 0 ? calls.first : calls.second)(comm, a.data(), b.data());
  if (result == straitSuccess) result = straitBarrier(comm, nullptr);  // reported by the next call at the latest
  EXPECT_EQ(result, straitMismatch) << "rank " << rank << " of " << ranks;
  const std::string message = straitGetLastError(comm);
  EXPECT_THAT(message, AllOf(HasSubstr(calls.first_text), HasSubstr(calls.second_text), HasSubstr("rank 0 (host")));
  expect_sticky(comm, straitMismatch, message);
  meet();  // because a rank that destroys its communicator would be reported as having left
}

class Mismatch : public ::testing::TestWithParam<TwoCalls> {};
INSTANTIATE_TEST_SUITE_P(Of, Mismatch, ::testing::ValuesIn(cases), [](const auto& test) { return test.param.what; });

TEST_P(Mismatch, ThreadsAreTold) {
  for (int ranks : {2, 4})
    run_as_threads(ranks, [](straitComm_t comm, int rank, int n) { check_told(GetParam(), comm, rank, n); });
}
TEST_P(Mismatch, ProcessesAreTold) {
  for (int ranks : {2, 3})
    run_as_processes(ranks, [](straitComm_t comm, int rank, int n) { check_told(GetParam(), comm, rank, n); });
}

/// Rank 2 leaves out the first of two equal broadcasts and must not take its data for the second's. Calls without data
/// equalize the number of calls, and push the broadcasts out of the history of posted calls.
TEST(MismatchOfOrder, ABroadcastThatARankLeftOutIsNotTakenForTheNext) {
  constexpr int before = posted_calls + 4, after = 2 * before;
  run_as_processes(3, [](straitComm_t comm, int rank, int) {
    const auto empty_calls = [&](int count) {
      straitResult_t result = straitSuccess;
      for (int i = 0; result == straitSuccess && i < count; ++i)
        result = straitAllReduce(nullptr, nullptr, 0, straitInt32, straitSum, comm, nullptr);
      return result;
    };
    std::array<std::int32_t, 8> first{}, second{};
    if (rank == 0) first.fill(1), second.fill(2);
    straitResult_t result = straitSuccess;
    if (rank != 2) {
      result = straitBroadcast(first.data(), first.data(), 8, straitInt32, 0, comm, nullptr);
      if (result == straitSuccess) result = empty_calls(before);
      if (result == straitSuccess)
        result = straitBroadcast(second.data(), second.data(), 8, straitInt32, 0, comm, nullptr);
      if (result == straitSuccess) result = empty_calls(after);
      meet();
    } else {
      meet();
      std::this_thread::sleep_for(milliseconds(200));  // over sockets, what they posted may still be under way
      EXPECT_EQ(empty_calls(before), straitSuccess);
      result = straitBroadcast(second.data(), second.data(), 8, straitInt32, 0, comm, nullptr);
      EXPECT_EQ(result, straitMismatch) << "took " << second[0] << " for 2";
      EXPECT_THAT(straitGetLastError(comm),
                  HasSubstr("as its collective number " + std::to_string(before + 1) + ", rank 0"));
    }
    if (result == straitSuccess) result = straitBarrier(comm, nullptr);
    EXPECT_EQ(result, straitMismatch);
    EXPECT_THAT(straitGetLastError(comm), HasSubstr("as its collective number 1 (modulo 4096)"));
    meet();
  });
}

/// Calls that all ranks must make alike.
enum class Called { all_reduce, split, registration };
straitResult_t make(Called call, straitComm_t comm) {
  std::array<std::int32_t, 8> a{}, b{};
  if (call == Called::all_reduce) return straitAllReduce(a.data(), b.data(), 8, straitInt32, straitSum, comm, nullptr);
  straitComm_t part = nullptr;
  if (call == Called::split) return straitCommSplit(comm, 0, 0, &part, nullptr);
  void *memory = nullptr, *handle = nullptr;
  STRAIT_EXPECT_OK(straitMemAlloc(&memory, 4096));
  const straitResult_t result = straitCommRegister(comm, memory, 4096, &handle);
  STRAIT_EXPECT_OK(straitMemFree(memory));
  return result;
}

/// Rank 1 of three makes another call than the others.
void expect_difference(Called call, Called other, const char* first, const char* second, milliseconds within) {
  RankProcesses processes(3, [&](int rank, const straitUniqueId& id, Report& report) {
    straitConfig_t config = test_config();
    straitComm_t comm = join(id, rank, 3, report, config);
    if (comm == nullptr) return;
    STRAIT_EXPECT_OK(make(Called::all_reduce, comm));
    const Stopwatch watch;
    EXPECT_EQ(make(rank == 1 ? other : call, comm), straitMismatch);
    EXPECT_LT(watch.elapsed(), within);
    const std::string message = straitGetLastError(comm);
    EXPECT_THAT(message, AllOf(HasSubstr(first), HasSubstr("rank 1 (host"), HasSubstr(second)));
    expect_sticky(comm, straitMismatch, message);
    STRAIT_EXPECT_OK(straitCommDestroy(comm));
  });
  processes.expect_all_end_well();
}

TEST(MismatchOfSetUp, IsToldSoonWhereOthersMakeACollective) {
  expect_difference(Called::split, Called::all_reduce, "called a split", "called all-reduce", milliseconds(3000));
  expect_difference(Called::all_reduce, Called::split, "called a split", "called all-reduce", milliseconds(3000));
  expect_difference(Called::registration, Called::all_reduce, "registered memory", "called all-reduce",
                    milliseconds(3000));
}

TEST(MismatchOfSetUp, IsToldAtOnceWhereAllAreInIt) {
  expect_difference(Called::split, Called::registration, "called a split", "registered memory", milliseconds(1000));
  expect_difference(Called::registration, Called::split, "registered memory", "called a split", milliseconds(1000));
}

void check_messages(straitComm_t comm, int rank, int) {
  std::array<std::int32_t, 8> values{};
  if (rank == 0) {
    const straitResult_t result = straitSend(values.data(), 8, straitInt32, 1, comm, nullptr);
    EXPECT_TRUE(result == straitSuccess || result == straitMismatch);
    meet();
    EXPECT_EQ(straitBarrier(comm, nullptr), straitMismatch);
  } else {
    EXPECT_EQ(straitRecv(values.data(), 4, straitInt32, 0, comm, nullptr), straitMismatch);
    meet();
  }
  EXPECT_THAT(straitGetLastError(comm),
              AllOf(HasSubstr("receives send-recv(count 4, int32) from rank 0 "),
                    HasSubstr("which sends send-recv(count 8, int32). A receive must have the count and type of its")));
  meet();
}
TEST(MismatchOfMessages, ThreadsAreTold) { run_as_threads(2, check_messages); }
TEST(MismatchOfMessages, ProcessesAreTold) { run_as_processes(2, check_messages); }

void check_v_counts(straitComm_t comm, int rank, int) {
  std::array<std::int32_t, 64> a{}, b{};
  using Sizes = std::array<std::size_t, 2>;
  // Rank 0 sends 4 elements to rank 1, which expects 5.
  const Sizes sends = rank == 0 ? Sizes{2, 4} : Sizes{3, 1}, receives = rank == 0 ? Sizes{2, 3} : Sizes{5, 1};
  const Sizes offsets{0, 10};
  straitResult_t result = straitAllToAllv(a.data(), sends.data(), offsets.data(), b.data(), receives.data(),
                                          offsets.data(), straitInt32, comm, nullptr);
  meet();
  if (result == straitSuccess) result = straitBarrier(comm, nullptr);
  EXPECT_EQ(result, straitMismatch);
  EXPECT_THAT(straitGetLastError(comm), AllOf(HasSubstr("count 4"), HasSubstr("count 5")));
  meet();
}
TEST(MismatchOfCounts, InAllToAllV) {
  run_as_threads(2, check_v_counts);
  run_as_processes(2, check_v_counts);
}

}  // namespace
}  // namespace strait::testing
