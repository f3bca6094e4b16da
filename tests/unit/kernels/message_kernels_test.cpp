// Sends, receives, and all-to-alls of blocks of any length, which use two protocols: through the kernels on the CPU,
// bit by bit.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>
#include "support/emulated_registrations.hpp"
#include "support/message_memory.hpp"
#include "support/random_data.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using kernels::Mailbox;

constexpr std::byte poison{0xa5};

struct Setup {
  bool p2p;
  std::uint32_t ranks;
  std::uint32_t blocks;  ///< 0: as many as there are lanes
  bool offers = false;   ///< receivers begin long messages by offering a place for the data, or none
};
std::string name_of(const ::testing::TestParamInfo<Setup>& info) {
  return std::string(info.param.p2p ? "Peers" : "Host") + std::to_string(info.param.ranks) + "Ranks" +
         (info.param.blocks == 0 ? "ManyBlocks" : std::to_string(info.param.blocks) + "Blocks") +
         (info.param.offers ? "Offers" : "");
}

/// The border between the protocols. Lengths include some beyond what all free slots of either hold if blocks are few.
constexpr std::size_t flagged_bytes = 12'000;
const std::vector<std::size_t> lengths{0,      1,     77, 4096, flagged_bytes - 1, flagged_bytes, flagged_bytes + 1,
                                       20'008, 50'003};

class MessagesOfAnyLength : public ::testing::TestWithParam<Setup> {
 protected:
  Machine machine_{GetParam().ranks,
                   GetParam().blocks,
                   {.flagged_bytes = flagged_bytes,
                    .p2p = GetParam().p2p,
                    .small_slots = true,
                    .together = GetParam().blocks != 0,
                    .least_offered_bytes = 20'000}};
  /// Returns offers as if every other page of memory were registered.
  static MessageOffers offers() {
    if (!GetParam().offers) return {};
    const auto offer = [](const void* data, std::size_t bytes) {
      const bool is_registered = (reinterpret_cast<std::uintptr_t>(data) >> 12 & 1) != 0;
      return (is_registered ? all_memory : no_memory).of(data, bytes);
    };
    return {offer, all_memory.registered};
  }
  /// Runs `body(rank)` on all ranks at once.
  template <class Body>
  void on_all_ranks(Body&& body) {
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < machine_.ranks(); ++rank) threads.emplace_back([&, rank] { body(rank); });
    }
    for (std::uint32_t rank = 0; rank < machine_.ranks(); ++rank)
      ASSERT_EQ(machine_.mailbox(rank).event, Mailbox::Event::none) << "rank " << rank << " gave up";
  }
};

/// Groups one right after another: no rank waits for the others between them. Some ranks receive one by one what comes
/// from a group.
TEST_P(MessagesOfAnyLength, Groups) {
  Random random(GetParam().ranks * 10 + GetParam().blocks);
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<Messages> groups;
    std::vector<MessageMemory> memory;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      groups.push_back(random_messages(random, GetParam().ranks, lengths));
      memory.emplace_back(groups.back(), random());
    }
    const std::uint64_t seed = random();
    on_all_ranks([&](std::uint32_t rank) {
      Random own(seed + rank);
      std::this_thread::sleep_for(std::chrono::milliseconds(own() % 20));
      for (std::size_t group = 0; group < groups.size(); ++group) {
        const auto buffer_of = [&](std::size_t number, bool sends) {
          return (sends ? memory[group].send : memory[group].receive)[number].data();
        };
        const auto launches = machine_.calls(rank).launches_of(calls_of(groups[group], rank, own, buffer_of), offers());
        machine_.run(launches, DataType::uint8);
      }
    });
    for (std::size_t group = 0; group < groups.size(); ++group) memory[group].expect_received(groups[group]);
    if (HasFailure()) return;
  }
}

/// Messages between two ranks go in the order in which they are posted, whatever their protocols.
TEST_P(MessagesOfAnyLength, OneByOneFromAGroup) {
  Random random(GetParam().ranks);
  Messages messages;
  for (const std::size_t bytes : {50'003, 11'999, 77, 20'008, 4096}) messages.push_back({0, 1, bytes});
  MessageMemory memory(messages, 1);
  on_all_ranks([&](std::uint32_t rank) {
    const std::vector<Call> calls = calls_of(messages, rank, random, [&](std::size_t number, bool sends) {
      return (sends ? memory.send : memory.receive)[number].data();
    });
    if (rank == 0) machine_.run(machine_.calls(rank).launches_of(calls, offers()), DataType::uint8);
    if (rank != 1) return;
    for (const Call& call : calls)
      machine_.run(machine_.calls(rank).launches_of(std::span(&call, 1), offers()), DataType::uint8);
  });
  memory.expect_received(messages);
}

/// Few enough blocks for all of them to run at the same time.
class MessagesOfFewBlocks : public MessagesOfAnyLength {};

/// Rank 0 posts all its calls as a group, some others do too, and the rest post one call after another, receiving all
/// of a message before the next one begins.
TEST_P(MessagesOfFewBlocks, GoInGroupsBesideRanksThatPostOneByOne) {
  Random random(GetParam().ranks * 100 + GetParam().blocks);
  for (int turn = 0; turn < 12; ++turn) {
    // A long message, and short ones of two rounds and of one round with three blocks.
    constexpr std::size_t there_and_back[] = {50'003, 12'000, 4096};
    const bool between_two = turn < static_cast<int>(std::size(there_and_back));
    const std::size_t bytes = between_two ? there_and_back[turn] : 0;
    const Messages messages =
        between_two ? Messages{{0, 1, bytes}, {1, 0, bytes}} : messages_in_order(random, GetParam().ranks, lengths);
    const std::uint64_t groups = between_two ? 1 : random() | 1;
    MessageMemory memory(messages, random());
    on_all_ranks([&](std::uint32_t rank) {
      const auto run = [&](std::span<const Call> calls) {
        machine_.run(machine_.calls(rank).launches_of(calls, offers()), DataType::uint8);
      };
      const std::vector<Call> calls = calls_in_order(messages, rank, [&](std::size_t number, bool sends) {
        return (sends ? memory.send : memory.receive)[number].data();
      });
      if ((groups >> rank & 1) != 0) return run(calls);
      for (const Call& call : calls) run(std::span(&call, 1));
    });
    memory.expect_received(messages);
    if (HasFailure()) return;
  }
}

/// A short message must find free slots whatever ran before. For its receiver may come to it only after long messages
/// which wait, by way of another rank, for what the sender does next. Two hops leave the most slots taken.
TEST(MessagesAfterTwoHops, WaitForNoReceiver) {
  constexpr std::uint32_t ranks = 3;
  for (const std::size_t bytes : {12'000, 24'000, 36'000}) {
    Machine machine(
        ranks, 1,
        {.flagged_bytes = flagged_bytes, .p2p = true, .algorithm = "two_hop", .small_slots = true, .together = true});
    const Messages messages{{2, 0, 50'003}, {0, 1, 5000}, {1, 2, 50'003}};
    MessageMemory memory(messages, bytes);
    std::vector<Bytes> sums(ranks, Bytes(bytes));
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Call sum;
        sum.collective = Collective::all_reduce;
        sum.type = DataType::uint8;
        sum.count = bytes;
        sum.send = sum.receive = sums[rank].data();
        machine.run(rank, sum);
        const auto run = [&](std::span<const Call> calls) {
          machine.run(machine.calls(rank).launches_of(calls), DataType::uint8);
        };
        const std::vector<Call> calls = calls_in_order(messages, rank, [&](std::size_t number, bool sends) {
          return (sends ? memory.send : memory.receive)[number].data();
        });
        if (rank != 2) return run(calls);
        for (const Call& call : calls) run(std::span(&call, 1));
      });
    threads.clear();
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::none) << "rank " << rank << " after " << bytes << " bytes";
    memory.expect_received(messages);
  }
}

/// In the first turn all blocks are short.
TEST_P(MessagesOfAnyLength, AllToAllV) {
  const std::uint32_t ranks = GetParam().ranks;
  Random random(ranks * 100 + GetParam().blocks);
  int of_two_protocols = 0;
  for (int turn = 0; turn < 4; ++turn) {
    Messages messages;
    for (std::uint32_t from = 0; from < ranks; ++from)
      for (std::uint32_t to = 0; to < ranks; ++to)
        messages.push_back({from, to, lengths[random() % (turn == 0 ? 5 : lengths.size())]});
    std::vector<Bytes> sent(ranks), received(ranks), expected(ranks);
    std::vector<Call> calls(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      calls[rank].collective = Collective::all_to_all_v;
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        const std::size_t out = messages[rank * ranks + peer].bytes, in = messages[peer * ranks + rank].bytes;
        calls[rank].send_counts.push_back(out);
        calls[rank].send_offsets.push_back(sent[rank].size());
        calls[rank].receive_counts.push_back(in);
        calls[rank].receive_offsets.push_back(expected[rank].size());
        const auto data_of = [&](std::uint32_t from, std::uint32_t to, std::size_t bytes) {
          return random_elements(DataType::uint8, bytes, from * ranks + to + 1);
        };
        const Bytes data = data_of(rank, peer, out), coming = data_of(peer, rank, in);
        sent[rank].insert(sent[rank].end(), data.begin(), data.end());
        expected[rank].insert(expected[rank].end(), coming.begin(), coming.end());
      }
      received[rank].assign(expected[rank].size(), poison);
      calls[rank].send = sent[rank].data();
      calls[rank].receive = received[rank].data();
    }
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto launches = machine_.calls(rank).launches_of(calls[rank]);
      of_two_protocols += launches.size() == 2 && launches[0].protocol != launches[1].protocol ? 1 : 0;
    }
    if (turn == 0) {
      EXPECT_EQ(of_two_protocols, 0);
      EXPECT_LE(machine_.calls(0).launches_of(calls[0]).size(), 1u);
    }
    on_all_ranks([&](std::uint32_t rank) {
      machine_.run(machine_.calls(rank).launches_of(calls[rank], offers()), DataType::uint8);
    });
    EXPECT_EQ(received, expected);
    if (HasFailure()) return;
  }
  EXPECT_GT(of_two_protocols, 0);
}

/// With so many blocks, the number of lanes of a long message is not a multiple of theirs: some blocks have less to do
/// than others, and must not look after lanes of another peer instead.
TEST(MessagesOfManyBlocks, LeaveLanesOfOthersAlone) {
  constexpr std::uint32_t ranks = 3, blocks = 48;
  Machine machine(ranks, blocks, {.flagged_bytes = flagged_bytes, .together = true});
  const Messages messages{{0, 1, 1'300'000}, {0, 2, 1'300'000}, {1, 0, 1'300'000}, {2, 0, 1'300'000}};
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    MessageMemory memory(messages, turn);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Random random(rank);
        const auto buffer_of = [&](std::size_t number, bool sends) {
          return (sends ? memory.send : memory.receive)[number].data();
        };
        auto launches = machine.calls(rank).launches_of(calls_of(messages, rank, random, buffer_of));
        ASSERT_EQ(launches.size(), 1u);
        std::get<kernels::Exchange>(launches[0].argument).ring.timeout_ns = 10'000'000'000;
        machine.run(launches, DataType::uint8);
        EXPECT_EQ(machine.mailbox(rank).event, Mailbox::Event::none) << "rank " << rank << " gave up in turn " << turn;
      });
    threads.clear();
    memory.expect_received(messages);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MessagesOfAnyLength,
                         ::testing::Values(Setup{false, 2, 1}, Setup{false, 3, 3}, Setup{false, 4, 1},
                                           Setup{false, 3, 0}, Setup{true, 2, 0}, Setup{true, 3, 1}, Setup{true, 4, 3},
                                           Setup{true, 2, 5, true}, Setup{true, 3, 1, true}, Setup{true, 4, 3, true}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Ranks, MessagesOfFewBlocks,
                         ::testing::Values(Setup{false, 2, 1}, Setup{false, 3, 3}, Setup{false, 4, 1},
                                           Setup{true, 3, 1}, Setup{true, 4, 3}, Setup{true, 2, 1, true},
                                           Setup{true, 3, 1, true}, Setup{true, 4, 3, true}),
                         name_of);

}  // namespace
}  // namespace strait::testing
