// Groups: messages, collectives, and several communicators driven by one thread.

#include "api/values.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using Values = std::vector<std::int32_t>;

std::uint64_t pair_seed(int from, int to, std::size_t message = 0) {
  return static_cast<std::uint64_t>(from * 100 + to) * 100 + message;
}

void exchange_in_a_ring(straitComm_t comm, int rank, int ranks) {
  for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100'003}}) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const Values sent = numbers(count, pair_seed(rank, next));
    Values received(count);
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(sent.data(), count, straitInt32, next, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(received.data(), count, straitInt32, previous, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(received, numbers(count, pair_seed(previous, rank)));
  }
}

/// Returns how many elements `from` sends to `to` in a random exchange; the same on all ranks.
std::size_t random_count(int from, int to, std::size_t round) {
  const std::uint64_t dice = mix(pair_seed(from, to, round));
  if (dice % 4 == 0) return 0;
  return dice % 4 == 1 ? dice / 4 % 60'000 : dice / 4 % 50;
}

void exchange_at_random(straitComm_t comm, int rank, int ranks) {
  for (std::size_t round = 0; round < 8; ++round) {
    std::vector<Values> sent, received;
    for (int peer = 0; peer < ranks; ++peer) {
      sent.push_back(numbers(random_count(rank, peer, round), pair_seed(rank, peer, round)));
      received.emplace_back(random_count(peer, rank, round));
    }
    STRAIT_EXPECT_OK(straitGroupStart());
    for (int i = 0; i < ranks; ++i) {
      const int peer = (i * 11 + rank) % ranks;  // the order of posting differs between ranks
      const Values& out = sent[static_cast<std::size_t>(peer)];
      Values& in = received[static_cast<std::size_t>(peer)];
      STRAIT_EXPECT_OK(straitRecv(in.data(), in.size(), straitInt32, peer, comm, nullptr));
      STRAIT_EXPECT_OK(straitSend(out.data(), out.size(), straitInt32, peer, comm, nullptr));
    }
    STRAIT_EXPECT_OK(straitGroupEnd());
    for (int peer = 0; peer < ranks; ++peer)
      EXPECT_EQ(received[static_cast<std::size_t>(peer)],
                numbers(random_count(peer, rank, round), pair_seed(peer, rank, round)));
  }
}

/// Sends three messages to one peer in a group; the receiver takes each by a separate call.
void send_several_to_one_peer(straitComm_t comm, int rank, int ranks, const std::vector<std::size_t>& counts) {
  if (rank == 0) {
    std::vector<Values> sent;
    for (std::size_t i = 0; i < counts.size(); ++i) sent.push_back(numbers(counts[i], pair_seed(0, ranks - 1, i)));
    STRAIT_EXPECT_OK(straitGroupStart());
    for (const Values& message : sent)
      STRAIT_EXPECT_OK(straitSend(message.data(), message.size(), straitInt32, ranks - 1, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
  } else if (rank == ranks - 1) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      Values received(counts[i]);
      STRAIT_EXPECT_OK(straitRecv(received.data(), counts[i], straitInt32, 0, comm, nullptr));
      EXPECT_EQ(received, numbers(counts[i], pair_seed(0, rank, i)));
    }
  }
}

class Groups : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, Groups, ::testing::Values(2, 3, 4, 7));

TEST_P(Groups, Ring) { run_as_threads(GetParam(), exchange_in_a_ring); }
TEST_P(Groups, RandomExchange) { run_as_threads(GetParam(), exchange_at_random); }

TEST_P(Groups, SeveralMessagesToOnePeer) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int ranks) {
    send_several_to_one_peer(comm, rank, ranks, {100, 0, 1000});
  });
}
TEST_P(Groups, SeveralMessagesOfDifferentLengthsToOnePeer) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int ranks) {
    send_several_to_one_peer(comm, rank, ranks, {3, 200'000, 50'000, 1});
  });
}

TEST_P(Groups, MessagesAndCollectivesTogether) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int ranks) {
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const Values sent = numbers(5000, pair_seed(rank, next)), mine = numbers(30'000, static_cast<std::uint64_t>(rank));
    Values received(5000), sum(30'000), all(static_cast<std::size_t>(ranks) * 5000);
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitAllReduce(mine.data(), sum.data(), 30'000, straitInt32, straitSum, comm, nullptr));
    STRAIT_EXPECT_OK(straitSend(sent.data(), 5000, straitInt32, next, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupStart());  // an inner group records into the outer one
    STRAIT_EXPECT_OK(straitBarrier(comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(received.data(), 5000, straitInt32, previous, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(received, Values(5000)) << "the inner end must not run anything";
    STRAIT_EXPECT_OK(straitAllGather(sent.data(), all.data(), 5000, straitInt32, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(received, numbers(5000, pair_seed(previous, rank)));
    EXPECT_EQ(sum, sum_of_numbers(30'000, 0, ranks));
    for (int peer = 0; peer < ranks; ++peer)
      EXPECT_EQ(Values(all.begin() + peer * 5000, all.begin() + (peer + 1) * 5000),
                numbers(5000, pair_seed(peer, (peer + 1) % ranks)));
  });
}

std::vector<straitComm_t> join_in_a_group(int ranks) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  const straitConfig_t config = test_config();
  std::vector<straitComm_t> comms;
  STRAIT_EXPECT_OK(straitGroupStart());
  for (int rank = 0; rank < ranks; ++rank) {
    straitComm_t comm = nullptr;
    STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
    comms.push_back(comm);
  }
  STRAIT_EXPECT_OK(straitGroupEnd());
  return comms;
}

TEST_P(Groups, OneThreadDrivesAllRanks) {
  const int ranks = GetParam();
  const auto n = static_cast<std::size_t>(ranks);
  const std::vector<straitComm_t> comms = join_in_a_group(ranks);
  for (std::size_t count : {std::size_t{3}, std::size_t{70'000}}) {
    std::vector<Values> inputs(n), sums(n, Values(count)), blocks(n, Values(count));
    for (std::size_t r = 0; r < n; ++r) inputs[r] = numbers(count, r);
    STRAIT_EXPECT_OK(straitGroupStart());
    for (std::size_t r = 0; r < n; ++r) {
      STRAIT_EXPECT_OK(
          straitAllReduce(inputs[r].data(), sums[r].data(), count, straitInt32, straitSum, comms[r], nullptr));
      STRAIT_EXPECT_OK(straitBroadcast(inputs[r].data(), blocks[r].data(), count, straitInt32, 1, comms[r], nullptr));
    }
    STRAIT_EXPECT_OK(straitGroupEnd());
    for (std::size_t r = 0; r < n; ++r) {
      EXPECT_EQ(sums[r], sum_of_numbers(count, 0, ranks));
      EXPECT_EQ(blocks[r], inputs[1]);
    }
  }
  for (straitComm_t comm : comms) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

/// Makes all-reduces on communicators whose ranks are all driven by this thread.
void check_sums_in_a_group(const std::vector<straitComm_t>& comms, std::size_t count) {
  const std::size_t n = comms.size();
  std::vector<Values> inputs(n), sums(n, Values(count));
  std::vector<int> ranks(n), sizes(n);
  STRAIT_EXPECT_OK(straitGroupStart());
  for (std::size_t i = 0; i < n; ++i) {
    STRAIT_EXPECT_OK(straitCommUserRank(comms[i], &ranks[i]));
    STRAIT_EXPECT_OK(straitCommCount(comms[i], &sizes[i]));
    inputs[i] = numbers(count, static_cast<std::uint64_t>(ranks[i]));
    STRAIT_EXPECT_OK(
        straitAllReduce(inputs[i].data(), sums[i].data(), count, straitInt32, straitSum, comms[i], nullptr));
  }
  STRAIT_EXPECT_OK(straitGroupEnd());
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(sums[i], sum_of_numbers(count, 0, sizes[i]));
}

TEST_P(Groups, OneThreadSplitsAllRanks) {
  const std::vector<straitComm_t> comms = join_in_a_group(GetParam());
  std::vector<straitComm_t> parts, reversed;  // two splits of each communicator in one group
  STRAIT_EXPECT_OK(straitGroupStart());
  for (std::size_t r = 0; r < comms.size(); ++r) {
    straitComm_t part = nullptr, turned = comms[r];
    STRAIT_EXPECT_OK(straitCommSplit(comms[r], static_cast<int>(r % 2), 0, &part, nullptr));
    STRAIT_EXPECT_OK(straitCommSplit(comms[r], r == 0 ? -1 : 7, -static_cast<int>(r), &turned, nullptr));
    parts.push_back(part);
    EXPECT_EQ(turned == nullptr, r == 0);
    if (turned != nullptr) reversed.push_back(turned);
    int rank = 0;
    EXPECT_EQ(straitCommUserRank(part, &rank), straitInvalidArgument) << "usable before the group has ended";
    EXPECT_EQ(straitCommDestroy(part), straitInvalidUsage);
    EXPECT_EQ(straitCommDestroy(comms[r]), straitInvalidUsage);
  }
  STRAIT_EXPECT_OK(straitGroupEnd());
  for (std::size_t i = 0; i < reversed.size(); ++i) {
    int rank = -1;
    STRAIT_EXPECT_OK(straitCommUserRank(reversed[i], &rank));
    EXPECT_EQ(rank, static_cast<int>(reversed.size() - 1 - i));
  }
  check_sums_in_a_group(parts, 3000);
  check_sums_in_a_group(reversed, 3000);
  check_sums_in_a_group(comms, 3000);
  for (const auto& made : {parts, reversed, comms})
    for (straitComm_t comm : made) STRAIT_EXPECT_OK(straitCommDestroy(comm));
}

TEST_P(Groups, OneThreadRegistersForAllRanks) {
  constexpr std::size_t count = 5000, bytes = 2 * count * sizeof(std::int32_t);
  const std::vector<straitComm_t> comms = join_in_a_group(GetParam());
  std::vector<std::int32_t*> memories;
  std::vector<void*> registrations;
  STRAIT_EXPECT_OK(straitGroupStart());
  for (std::size_t r = 0; r < comms.size(); ++r) {
    void *memory = nullptr, *registration = nullptr;
    STRAIT_EXPECT_OK(straitMemAlloc(&memory, bytes));
    STRAIT_EXPECT_OK(straitCommRegister(comms[r], memory, bytes, &registration));
    memories.push_back(static_cast<std::int32_t*>(memory));
    registrations.push_back(registration);
    const Values mine = numbers(count, r);
    std::copy(mine.begin(), mine.end(), memories[r]);
  }
  STRAIT_EXPECT_OK(straitGroupEnd());
  STRAIT_EXPECT_OK(straitGroupStart());
  for (std::size_t r = 0; r < comms.size(); ++r)
    STRAIT_EXPECT_OK(
        straitAllReduce(memories[r], memories[r] + count, count, straitInt32, straitSum, comms[r], nullptr));
  STRAIT_EXPECT_OK(straitGroupEnd());
  for (std::size_t r = 0; r < comms.size(); ++r) {
    EXPECT_EQ(Values(memories[r] + count, memories[r] + 2 * count), sum_of_numbers(count, 0, GetParam()));
    STRAIT_EXPECT_OK(straitCommDeregister(comms[r], registrations[r]));
    EXPECT_EQ(straitCommDeregister(comms[r], registrations[r]), straitInvalidArgument);
    STRAIT_EXPECT_OK(straitMemFree(memories[r]));
    STRAIT_EXPECT_OK(straitCommDestroy(comms[r]));
  }
}

/// Records a collective and, if `spoils`, a message that cannot be carried out, which is noticed at the group's end.
void record_refused(straitComm_t comm, int rank, bool spoils, const Values& in, Values& out, std::int32_t& value) {
  STRAIT_EXPECT_OK(straitAllReduce(in.data(), out.data(), in.size(), straitInt32, straitSum, comm, nullptr));
  if (!spoils) return;
  STRAIT_EXPECT_OK(straitSend(&value, 1, straitInt32, rank, comm, nullptr));  // to itself, without a receive
}

/// Nothing else in a refused group may be carried out, on whichever communicator it is.
TEST_P(Groups, ThatAreRefusedForAMessageRunNothing) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int) {
    straitComm_t other = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &other, nullptr));
    for (const straitComm_t spoilt : {comm, other}) {
      const Values in = numbers(100, static_cast<std::uint64_t>(rank));
      Values out(100, -1), other_out(100, -1);
      std::int32_t value = 7;
      STRAIT_EXPECT_OK(straitGroupStart());
      record_refused(comm, rank, spoilt == comm, in, out, value);
      record_refused(other, rank, spoilt == other, in, other_out, value);
      EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
      EXPECT_EQ(out, Values(100, -1));
      EXPECT_EQ(other_out, Values(100, -1));
      check_sum(comm, 100, 7);
      check_sum(other, 100, 8);
    }
    STRAIT_EXPECT_OK(straitCommDestroy(other));
  });
}

TEST_P(Groups, ThatAreRefusedForAMessageSplitNothing) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int) {
    const Values in = numbers(100, static_cast<std::uint64_t>(rank));
    Values out(100, -1);
    std::int32_t value = 7;
    straitComm_t part = nullptr;
    STRAIT_EXPECT_OK(straitGroupStart());
    record_refused(comm, rank, true, in, out, value);
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, nullptr));
    EXPECT_EQ(straitGroupEnd(), straitInvalidUsage);
    EXPECT_EQ(straitBarrier(part, nullptr), straitInvalidArgument) << "it is usable";
    straitCommDestroy(part);
    check_sum(comm, 100, 7);
  });
}

TEST_P(Groups, ThatAreRefusedForTheirPlacesRunNothing) {
  run_as_threads(GetParam(), [](straitComm_t comm, int rank, int ranks) {
    const Values in = numbers(100, static_cast<std::uint64_t>(rank));
    Values out(100, -1), received(100, -1);
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitAllReduce(in.data(), out.data(), 100, straitInt32, straitSum, comm, nullptr));
    for (int i = 0; i < 2; ++i)
      STRAIT_EXPECT_OK(straitRecv(received.data(), 100, straitInt32, (rank + 1) % ranks, comm, nullptr));
    EXPECT_EQ(straitGroupEnd(), straitInvalidArgument);
    EXPECT_EQ(out, Values(100, -1));
    EXPECT_EQ(received, Values(100, -1));
    check_sum(comm, 100, 7);
  });
}

TEST(AllToAllV, RandomCountsAndOffsets) {
  run_as_threads(4, [](straitComm_t comm, int rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t round = 0; round < 10; ++round) {
      std::vector<std::size_t> send_counts(n), send_offsets(n), receive_counts(n), receive_offsets(n);
      Values sent, expected;
      for (int peer = 0; peer < ranks; ++peer) {
        const auto p = static_cast<std::size_t>(peer);
        send_counts[p] = random_count(rank, peer, round);
        receive_counts[p] = random_count(peer, rank, round);
        send_offsets[p] = sent.size() + p;  // with gaps
        receive_offsets[p] = expected.size() + 2 * p;
        const Values out = numbers(send_counts[p], pair_seed(rank, peer, round));
        sent.resize(send_offsets[p]);
        sent.insert(sent.end(), out.begin(), out.end());
        const Values in = numbers(receive_counts[p], pair_seed(peer, rank, round));
        expected.resize(receive_offsets[p], -1);
        expected.insert(expected.end(), in.begin(), in.end());
      }
      Values received(expected.size(), -1);
      STRAIT_EXPECT_OK(straitAllToAllv(sent.data(), send_counts.data(), send_offsets.data(), received.data(),
                                       receive_counts.data(), receive_offsets.data(), straitInt32, comm, nullptr));
      EXPECT_EQ(received, expected) << "round " << round;
    }
  });
}

}  // namespace
}  // namespace strait::testing
