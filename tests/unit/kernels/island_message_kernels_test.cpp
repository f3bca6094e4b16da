// Messages of ranks that form islands, through the kernels on the CPU and on streams that are threads, bit by bit.
#include "support/emulated_islands.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <thread>
#include <variant>
#include <vector>

#include "device/island_messages.hpp"
#include "support/fake_streams.hpp"
#include "support/message_memory.hpp"

namespace strait::testing {
namespace {

using Tail = CallOrder::Tail;

struct Setup {
  const char* name;
  Islands islands;
  bool one_queue;  ///< all streams of a rank share one hardware queue
};

/// The border between the protocols. Lengths include some beyond what the free slots of either protocol hold.
constexpr std::size_t flagged_bytes = 12'000;
const std::vector<std::size_t> lengths{0, 1, 77, 4096, flagged_bytes, flagged_bytes + 1, 30'003};
constexpr std::size_t much = 30'003;

class MessagesOfIslands : public ::testing::TestWithParam<Setup> {
 protected:
  /// `timeout_ns` has the deadlines of all ranks.
  explicit MessagesOfIslands(std::vector<std::uint64_t> timeout_ns = {})
      : machine_(islands(),
                 {.flagged_bytes = flagged_bytes, .timeout_ns = std::move(timeout_ns), .small_slots = true}) {
    for (std::uint32_t number = 0; number < machine_.ranks(); ++number) {
      auto driver = std::make_unique<FakeStreams>(
          FakeStreams::Options{.seed = number, .one_queue = GetParam().one_queue, .slow = true});
      auto rank = std::make_unique<Rank>();
      rank->driver = driver.get();
      rank->stream = driver->create_stream().value();
      rank->messages = std::make_unique<IslandMessages>(
          IslandMessages::Setup{.island = islands()[place_of(islands(), number).island],
                                .rank = number,
                                .inside = machine_.inside(number),
                                .others = machine_.with_all(number),
                                .side = SideStreams::open(std::move(driver)).value()});
      ranks_.push_back(std::move(rank));
    }
  }
  static const Islands& islands() { return GetParam().islands; }
  FakeStreams& driver(std::uint32_t rank) { return *ranks_[rank]->driver; }

  struct Posted {
    Tail tail = Tail::other;
    std::size_t launches = 0, beside = 0;  ///< `beside`: launches that are not on the user's stream
  };
  /// Posts calls as one group. `in_graph`: the end of the group is not counted, as in a graph.
  Posted post(std::uint32_t number, std::vector<Call> calls, bool in_graph = false) {
    Rank& rank = *ranks_[number];
    Posted posted;
    if (calls.empty()) return posted;
    for (Call& call : calls) call.stream = rank.stream;
    const auto launch = [&](DeviceLaunch& each, void* stream) -> Status {
      ++posted.launches;
      if (stream != rank.stream) ++posted.beside;
      std::visit(
          [&](auto& argument) {
            argument.ring.finished = in_graph ? nullptr : &machine_.launch_counts(number).finished;
          },
          each.argument);
      start(*rank.driver, each, stream);
      return {};
    };
    const auto tail = rank.messages->enqueue(calls, launch);
    EXPECT_TRUE(tail);
    posted.tail = tail.value_or(Tail::other);
    of_both_kinds_ += posted.beside != 0 ? 1 : 0;
    EXPECT_LT(posted.beside, std::max<std::size_t>(posted.launches, 1));
    return posted;
  }
  /// Runs `body(rank)` on all ranks at once, and waits until everything that they have posted has ended.
  template <class Body>
  void run_all_ranks(Body&& body) {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < machine_.ranks(); ++rank)
      threads.emplace_back([&, rank] {
        body(rank);
        ranks_[rank]->driver->finish(ranks_[rank]->stream);
      });
  }
  /// Does the same, and checks that no rank gave up.
  template <class Body>
  void on_all_ranks(Body&& body) {
    run_all_ranks(body);
    for (std::uint32_t rank = 0; rank < machine_.ranks(); ++rank) {
      ASSERT_EQ(machine_.mailbox(rank).event, kernels::Mailbox::Event::none) << "rank " << rank << " gave up";
      EXPECT_TRUE(machine_.launch_counts(rank).have_ended()) << "rank " << rank;
    }
  }

  EmulatedIslands machine_;
  std::atomic<int> of_both_kinds_ = 0;

 private:
  struct Rank {
    FakeStreams* driver = nullptr;
    void* stream = nullptr;
    std::unique_ptr<IslandMessages> messages;
  };
  /// Starts a launch. All its blocks run at the same time.
  void start(FakeStreams& driver, const DeviceLaunch& launch, void* stream) {
    struct Running {
      DeviceLaunch launch;
      std::vector<std::jthread> blocks;
    };
    const auto running = std::make_shared<Running>(Running{launch, {}});
    const auto begin = [this, running] {
      for (std::uint32_t index = 0; index < running->launch.blocks; ++index)
        running->blocks.emplace_back(
            [launch = &running->launch, index, seed = ++seed_] { run_block(*launch, index, DataType::uint8, seed); });
    };
    driver.launch(stream, begin, [running] { running->blocks.clear(); });
  }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<std::uint32_t> seed_{1};
};

/// Groups of random messages, one right after another: ranks do not wait for one another between groups.
TEST_P(MessagesOfIslands, Groups) {
  Random random(machine_.ranks());
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<Messages> groups;
    std::vector<MessageMemory> memory;
    for (int group = 0; group < 3; ++group) {
      groups.push_back(random_messages(random, machine_.ranks(), lengths));
      memory.emplace_back(groups.back(), random());
    }
    const std::uint64_t seed = random();
    on_all_ranks([&](std::uint32_t rank) {
      Random own(seed + rank);
      for (std::size_t group = 0; group < groups.size(); ++group)
        post(rank, calls_of(groups[group], rank, own, [&](std::size_t number, bool sends) {
               return (sends ? memory[group].send : memory[group].receive)[number].data();
             }));
    });
    for (std::size_t group = 0; group < groups.size(); ++group) memory[group].expect_received(groups[group]);
    if (HasFailure()) return;
  }
  EXPECT_GT(of_both_kinds_, 5);
}

/// Messages in an order in which ranks may post them one after another. Ranks in the mask `groups` post all at once.
class OneByOne : public MessagesOfIslands {
 protected:
  void check(const Messages& messages, std::uint64_t groups, std::uint64_t seed) {
    MessageMemory memory(messages, seed);
    on_all_ranks([&](std::uint32_t rank) {
      const std::vector<Call> calls = calls_in_order(messages, rank, [&](std::size_t number, bool sends) {
        return (sends ? memory.send : memory.receive)[number].data();
      });
      if ((groups >> rank & 1) != 0)
        post(rank, calls);
      else
        for (const Call& call : calls) post(rank, {call});
    });
    memory.expect_received(messages);
  }
};

/// A circle of three ranks, of which two are in one island. One of these posts a group. If its messages within the
/// island waited for those on the side stream, or the other way round, the circle would never end.
TEST_P(OneByOne, NeitherKindWaitsForTheOther) {
  const auto large = std::find_if(islands().begin(), islands().end(), [](const auto& all) { return all.size() > 1; });
  const auto& other = large == islands().begin() ? islands().back() : islands().front();
  const std::uint32_t a = (*large)[0], b = (*large)[1], c = other[0];
  for (const std::size_t bytes : {much, flagged_bytes}) {
    check({{b, c, bytes}, {c, a, bytes}, {a, b, bytes}}, 1u << b, bytes);
    check({{b, a, bytes}, {a, c, bytes}, {c, b, bytes}}, 1u << b, bytes + 1);
    if (HasFailure()) return;
  }
  EXPECT_EQ(of_both_kinds_, 4);
  if (large->size() < 3) return;
  // Of the two launches within the island, the second waits for the first.
  const std::uint32_t d = (*large)[2];
  check({{b, c, much}, {c, a, much}, {a, b, much}, {d, b, 77}}, 1u << b, 7);
}

TEST_P(OneByOne, WhatOthersPostAsGroups) {
  Random random(machine_.ranks() * 100);
  for (int turn = 0; turn < 7; ++turn) {
    const std::uint64_t seed = random(), groups = random() | 1;  // compilers may evaluate arguments in any order
    check(messages_in_order(random, machine_.ranks(), lengths), groups, seed);
    if (HasFailure()) return;
  }
  EXPECT_GT(of_both_kinds_, 5);
}

/// Captured messages are replayed, beside one another and one after another.
TEST_P(MessagesOfIslands, Graphs) {
  Random random(machine_.ranks() * 10);
  Messages messages;
  for (std::uint32_t from = 0; from < machine_.ranks(); ++from)
    for (std::uint32_t to = 0; to < machine_.ranks(); ++to)
      messages.push_back({from, to, lengths[random() % lengths.size()]});
  MessageMemory memory(messages, 1);
  const auto buffer_of = [&](std::size_t number, bool sends) {
    return (sends ? memory.send : memory.receive)[number].data();
  };
  for (std::uint32_t rank = 0; rank < machine_.ranks(); ++rank) {
    driver(rank).begin_capture();
    const Posted posted = post(rank, calls_of(messages, rank, random, buffer_of), true);
    EXPECT_EQ(posted.tail, posted.beside != 0 ? Tail::other : Tail::counted_launch);
    driver(rank).end_capture();
  }
  for (int replay = 0; replay < 3; ++replay) {
    MessageMemory fresh(messages, static_cast<std::uint64_t>(replay) + 2);
    for (std::size_t number = 0; number < messages.size(); ++number) {
      std::copy(fresh.data[number].begin(), fresh.data[number].end(), memory.send[number].data());
      std::fill_n(memory.receive[number].data(), messages[number].bytes, std::byte{0x5a});
    }
    memory.data = fresh.data;
    on_all_ranks([&](std::uint32_t rank) { driver(rank).replay(); });
    memory.expect_received(messages);
    if (HasFailure()) return;
  }
}

/// The last rank never comes. Launches that wait for it give up, on either stream, and so do all later ones.
class MessagesInVain : public MessagesOfIslands {
 protected:
  MessagesInVain() : MessagesOfIslands(std::vector<std::uint64_t>(8, 300'000'000)) {}
};
TEST_P(MessagesInVain, End) {
  const std::uint32_t missing = machine_.ranks() - 1;
  Messages messages;
  for (std::uint32_t from = 0; from < machine_.ranks(); ++from)
    for (std::uint32_t to = 0; to < machine_.ranks(); ++to) messages.push_back({from, to, much});
  MessageMemory memory(messages, 1);
  run_all_ranks([&](std::uint32_t rank) {
    if (rank == missing) return;
    for (int group = 0; group < 2; ++group)
      post(rank, calls_in_order(messages, rank, [&](std::size_t number, bool sends) {
             return (sends ? memory.send : memory.receive)[number].data();
           }));
  });
  for (std::uint32_t rank = 0; rank < missing; ++rank) {
    EXPECT_NE(machine_.mailbox(rank).timed_out, 0u) << "rank " << rank;
    EXPECT_TRUE(machine_.launch_counts(rank).have_ended()) << "rank " << rank;
  }
}

/// No side stream is forked, and no event recorded.
TEST_P(MessagesOfIslands, OfOneKindMakeOneSequence) {
  const auto& island = islands().front();
  const std::uint32_t self = island[0], near = island.back();
  const std::uint32_t far = islands().back()[0];
  const auto post_alone = [&](const Messages& messages) {
    MessageMemory memory(messages, 1);
    Random random(1);
    std::vector<Call> calls = calls_of(messages, self, random, [&](std::size_t number, bool sends) {
      return (sends ? memory.send : memory.receive)[number].data();
    });
    const int before = driver(self).commands();
    std::vector<DeviceLaunch> launches;
    IslandMessages alone({.island = island,
                          .rank = self,
                          .inside = machine_.inside(self),
                          .others = machine_.with_all(self),
                          .side = nullptr});
    const auto tail = alone.enqueue(calls, [&](DeviceLaunch& launch, void*) -> Status {
      launches.push_back(launch);
      return {};
    });
    EXPECT_EQ(driver(self).commands(), before);
    EXPECT_EQ(tail.value(), launches.empty() ? Tail::other : Tail::counted_launch);
    return launches;
  };
  const auto ring_of = [](const DeviceLaunch& launch) { return std::get<kernels::Exchange>(launch.argument).ring; };
  EXPECT_TRUE(post_alone({{self, self, 0}}).empty());
  const auto across = post_alone({{self, far, 100}, {self, self, 100}});
  ASSERT_EQ(across.size(), 1u) << "what it sends itself goes along";
  EXPECT_EQ(ring_of(across[0]).ranks, machine_.ranks());
  const auto inside = post_alone({{self, near, 100}});
  ASSERT_EQ(inside.size(), 1u);
  EXPECT_EQ(ring_of(inside[0]).ranks, island.size());
  EXPECT_EQ(ring_of(inside[0]).rank, 0u);
}

const Setup setups[] = {{"Pairs", {{0, 1}, {2, 3}}, false},
                        {"CrossedPairs", {{0, 3}, {1, 2}}, true},
                        {"ThreeAndOne", {{0, 1, 3}, {2}}, false},
                        {"ThreeAndOneInOneQueue", {{0, 1, 3}, {2}}, true},
                        {"OnePairAndTwo", {{0}, {1, 3}, {2}}, false}};
const auto name_of = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Of, MessagesOfIslands, ::testing::ValuesIn(setups), name_of);
INSTANTIATE_TEST_SUITE_P(Of, MessagesInVain, ::testing::ValuesIn(setups), name_of);
INSTANTIATE_TEST_SUITE_P(Of, OneByOne, ::testing::ValuesIn(setups), name_of);

}  // namespace
}  // namespace strait::testing
