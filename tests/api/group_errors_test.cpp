// Errors inside a group.

#include <algorithm>
#include <string>

#include "api/values.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

/// Makes a group with an error by `bad_call`: none of its calls may run, and the communicator must stay usable.
template <class BadCall>
void check_spoilt_group(BadCall bad_call) {
  run_as_threads(2, [&](straitComm_t comm, int rank, int) {
    const Values mine = numbers(100, static_cast<std::uint64_t>(rank));
    Values sum(100);
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), 100, straitInt32, straitSum, comm, nullptr));
    EXPECT_EQ(bad_call(comm), straitInvalidArgument);
    const std::string message = straitGetLastError(nullptr);
    EXPECT_EQ(straitGroupEnd(), straitInvalidArgument);
    EXPECT_EQ(straitGetLastError(nullptr), message);
    EXPECT_EQ(sum, Values(100)) << "a call of a refused group ran";
    check_sum(comm, 100, 7);
  });
}

TEST(GroupErrors, UnknownTypeRunsNothing) {
  check_spoilt_group([](straitComm_t comm) {
    int value = 0;
    return straitBroadcast(&value, &value, 1, static_cast<straitDataType_t>(12), 0, comm, nullptr);
  });
}
TEST(GroupErrors, NullCommunicatorRunsNothing) {
  check_spoilt_group([](straitComm_t) { return straitBarrier(nullptr, nullptr); });
}
TEST(GroupErrors, NullCountsRunNothing) {
  check_spoilt_group([](straitComm_t comm) {
    return straitAllToAllv(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, straitInt8, comm, nullptr);
  });
}
TEST(GroupErrors, BadInitRunsNothing) {
  check_spoilt_group([](straitComm_t) {
    straitComm_t fresh = nullptr;
    const straitUniqueId id{};
    return straitCommInitRank(&fresh, 2, &id, 5, nullptr);
  });
}

TEST(GroupErrors, BadSplitAndBadRegistrationRunNothing) {
  check_spoilt_group([](straitComm_t comm) { return straitCommSplit(comm, 0, 0, nullptr, nullptr); });
  check_spoilt_group([](straitComm_t comm) {
    void* registration = nullptr;
    return straitCommRegister(comm, nullptr, 10, &registration);
  });
}

/// The handle of a communicator whose group failed can be destroyed and nothing else.
TEST(GroupErrors, ACommunicatorOfAFailedGroup) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitConfig_t config = test_config();
  config.init_timeout_ms = 100;
  straitComm_t comm = nullptr;
  STRAIT_EXPECT_OK(straitGroupStart());
  STRAIT_EXPECT_OK(straitCommInitRank(&comm, 2, &id, 0, &config));
  EXPECT_EQ(straitCommDestroy(comm), straitInvalidUsage);
  EXPECT_EQ(straitGroupEnd(), straitTimeout);
  EXPECT_EQ(straitBarrier(comm, nullptr), straitInvalidArgument);
  STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST(GroupErrors, SendToSelfWithoutReceive) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    int value = 0;
    EXPECT_EQ(straitSend(&value, 1, straitInt32, rank, comm, nullptr), straitInvalidUsage);
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitRecv(&value, 1, straitInt32, rank, comm, nullptr));
    EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
    check_sum(comm, 10, 3);
  });
}

TEST(GroupErrors, SelfMessagesThatDoNotFit) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    std::int32_t sent[4] = {1, 2, 3, 4}, received[2] = {0, 0};
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(sent, 4, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(received, 2, straitInt32, rank, comm, nullptr));
    EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
    check_sum(comm, 10, 3);
  });
}

/// Ranks 0 and 1 swap `count` numbers at these positions of one array.
straitResult_t swap_within(straitComm_t comm, int rank, Values& array, std::size_t send_at, std::size_t receive_at,
                           std::size_t count) {
  STRAIT_EXPECT_OK(straitGroupStart());
  STRAIT_EXPECT_OK(straitRecv(array.data() + receive_at, count, straitInt32, 1 - rank, comm, nullptr));
  STRAIT_EXPECT_OK(straitSend(array.data() + send_at, count, straitInt32, 1 - rank, comm, nullptr));
  return straitGroupEnd();
}

/// Messages of a group run concurrently: if buffers overlapped, an unpredictable part of what is sent would be
/// overwritten.
TEST(GroupErrors, WhatIsReceivedLiesWhereNothingElseDoes) {
  constexpr std::size_t count = 100'000;
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    const Values before = numbers(3 * count, static_cast<std::uint64_t>(rank));
    Values array = before;
    for (const std::size_t receive_at : {count, count - 1, std::size_t{1}, 2 * count - 1}) {
      EXPECT_EQ(swap_within(comm, rank, array, count, receive_at, count), straitInvalidArgument);
      EXPECT_NE(std::string(straitGetLastError(nullptr)).find("overlaps"), std::string::npos) << receive_at;
      EXPECT_EQ(array, before);
    }
    STRAIT_EXPECT_OK(swap_within(comm, rank, array, 0, 0, 0));
    STRAIT_EXPECT_OK(swap_within(comm, rank, array, count, 0, count));
    STRAIT_EXPECT_OK(swap_within(comm, rank, array, count, 2 * count, count));
    const Values theirs = numbers(3 * count, static_cast<std::uint64_t>(1 - rank));
    Values expected = before;
    for (const std::size_t at : {std::size_t{0}, 2 * count})
      std::copy_n(theirs.begin() + count, count, expected.begin() + static_cast<std::ptrdiff_t>(at));
    EXPECT_EQ(array, expected);
    for (const std::size_t second : {2 * count, count - 1, std::size_t{0}}) {  // only the buffers of sends may overlap
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitRecv(array.data(), count, straitInt32, 1 - rank, comm, nullptr));
      STRAIT_EXPECT_OK(straitSend(array.data() + count, count, straitInt32, 1 - rank, comm, nullptr));
      STRAIT_EXPECT_OK(swap_within(comm, rank, array, count, second, count));  // its group is an inner one
      EXPECT_EQ(straitGroupEnd(), second == 2 * count ? straitSuccess : straitInvalidArgument);
      EXPECT_EQ(array, expected);
    }
  });
}

/// A short message inside a long one must not hide that another message overlaps the long one.
TEST(GroupErrors, WhatIsReceivedLiesInNoneOfSeveralMessages) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    Values array = numbers(100, static_cast<std::uint64_t>(rank));
    for (const bool is_received : {false, true}) {
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(is_received ? straitRecv(array.data(), 100, straitInt32, 1 - rank, comm, nullptr)
                                   : straitSend(array.data(), 100, straitInt32, 1 - rank, comm, nullptr));
      if (!is_received) STRAIT_EXPECT_OK(straitSend(array.data() + 10, 10, straitInt32, 1 - rank, comm, nullptr));
      STRAIT_EXPECT_OK(straitRecv(array.data() + 50, 10, straitInt32, 1 - rank, comm, nullptr));
      EXPECT_EQ(straitGroupEnd(), straitInvalidArgument);
    }
    check_sum(comm, 10, 3);
  });
}

/// The first send is matched with the first receive, whose buffer is the source of the second send.
TEST(GroupErrors, WhatIsSentToOneselfGoesWhereTheNthReceiveSays) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    int a = 1, b = 2;
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(&a, 1, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitSend(&b, 1, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(&b, 1, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(&a, 1, straitInt32, rank, comm, nullptr));
    EXPECT_EQ(straitGroupEnd(), straitInvalidArgument);
    EXPECT_EQ(a, 1);
    EXPECT_EQ(b, 2);
  });
}

/// A message to oneself may have the same source and destination, as in an in-place scatter made of messages.
TEST(GroupErrors, WhatStaysWhereItIsMayBeAMessage) {
  constexpr std::size_t count = 1000;
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    const Values before = numbers(2 * count, static_cast<std::uint64_t>(rank));
    Values array = before;
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(array.data(), count, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(array.data(), count, straitInt32, rank, comm, nullptr));
    STRAIT_EXPECT_OK(swap_within(comm, rank, array, 0, count, count));  // its group is an inner one
    STRAIT_EXPECT_OK(straitGroupEnd());
    Values expected = before;
    std::copy_n(numbers(2 * count, static_cast<std::uint64_t>(1 - rank)).begin(), count, expected.begin() + count);
    EXPECT_EQ(array, expected);
  });
}

TEST(GroupErrors, EndWithoutStart) {
  EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
  EXPECT_EQ(straitGroupCancel(), straitInvalidUsage);
}

TEST(GroupErrors, CancelledGroupsRunNothing) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    const Values mine = numbers(100, static_cast<std::uint64_t>(rank));
    Values sum(100);
    const auto record = [&] {
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), 100, straitInt32, straitSum, comm, nullptr));
    };
    record();
    STRAIT_EXPECT_OK(straitGroupCancel());
    EXPECT_EQ(straitGroupEnd(), straitInvalidUsage) << "it is over";
    record();  // opens the outermost group
    record();
    STRAIT_EXPECT_OK(straitGroupCancel());
    record();
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
    EXPECT_NE(std::string(straitGetLastError(nullptr)).find("straitGroupCancel"), std::string::npos);
    record();
    EXPECT_EQ(straitBarrier(nullptr, nullptr), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitGroupCancel());  // discards the error as well
    EXPECT_EQ(sum, Values(100)) << "a call of a cancelled group ran";
    check_sum(comm, 100, 7);
    record();
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_NE(sum, Values(100));
  });
}

TEST(GroupErrors, DestroyWithinItsOwnGroup) {
  run_as_threads(2, [](straitComm_t comm, int, int) {
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    EXPECT_EQ(straitCommDestroy(comm), straitInvalidUsage);
    STRAIT_EXPECT_OK(straitGroupEnd());
    check_sum(comm, 10, 3);
  });
}

}  // namespace
}  // namespace strait::testing
