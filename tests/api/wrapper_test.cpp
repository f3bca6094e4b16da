// The C++ interface: every function once, ownership and exceptions.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "strait/strait.hpp"

namespace {

using strait::Communicator;
using Values = std::vector<int>;

constexpr int ranks = 3;

/// Runs `body` on three ranks, each a thread; an exception that escapes it is a failure.
void on_ranks(const std::function<void(const Communicator&)>& body) {
  const straitUniqueId id = strait::make_unique_id();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(Communicator(id, rank, ranks));
      } catch (const strait::Exception& e) {
        ADD_FAILURE() << "rank " << rank << ": " << e.what();
      }
    });
}

TEST(Wrapper, Reductions) {
  on_ranks([](const Communicator& comm) {
    const int rank = comm.rank();
    ASSERT_EQ(comm.ranks(), ranks);
    Values buffer{rank, 10};
    comm.all_reduce(std::span(buffer));
    EXPECT_EQ(buffer, (Values{3, 30}));
    const Values mine{rank, rank, rank};
    Values highest(3);
    comm.all_reduce<int>(mine, std::span(highest), straitMax);
    EXPECT_EQ(highest, (Values{2, 2, 2}));
    const Values blocks{1, 2, 3};
    Values block(1);
    comm.reduce_scatter<int>(blocks, std::span(block));
    EXPECT_EQ(block, (Values{3 * (rank + 1)}));
    Values sum(rank == 1 ? 3 : 0);
    comm.reduce<int>(mine, std::span(sum), 1);
    EXPECT_EQ(sum, rank == 1 ? (Values{3, 3, 3}) : Values());
  });
}

TEST(Wrapper, OptionsOfACall) {
  on_ranks([](const Communicator& comm) {
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireInt8;
    const auto steps = [](float scale) {  // values that the format represents exactly
      std::vector<float> values(ranks * 127);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i % 127 + 1);
      return values;
    };
    std::vector<float> values = steps(1), parts(127), all(ranks * 127), others(ranks * 127);
    comm.all_reduce(std::span(values), straitAvg, nullptr, &options);
    EXPECT_EQ(values, steps(1));
    comm.reduce_scatter<float>(steps(2), std::span(parts), straitAvg, nullptr, &options);
    EXPECT_EQ(parts[126], 254);
    comm.all_gather<float>(parts, std::span(all), nullptr, &options);
    EXPECT_EQ(all, steps(2));
    comm.all_to_all<float>(all, std::span(others), nullptr, &options);
    EXPECT_EQ(others, steps(2));
    options.wire = straitWireInt4 + 1;
    EXPECT_THROW(comm.all_reduce(std::span(values), straitSum, nullptr, &options), strait::Exception);
  });
}

TEST(Wrapper, Movements) {
  on_ranks([](const Communicator& comm) {
    const int rank = comm.rank();
    const Values mine{rank * 10};
    Values all(3);
    comm.all_gather<int>(mine, std::span(all));
    EXPECT_EQ(all, (Values{0, 10, 20}));
    const Values blocks{rank * 10, rank * 10 + 1, rank * 10 + 2};
    comm.all_to_all<int>(blocks, std::span(all));
    EXPECT_EQ(all, (Values{rank, 10 + rank, 20 + rank}));
    Values told{rank == 2 ? 7 : 0};
    comm.broadcast(std::span(told), 2);
    EXPECT_EQ(told, (Values{7}));
    Values gathered(rank == 0 ? 3 : 0);
    comm.gather<int>(mine, std::span(gathered), 0);
    EXPECT_EQ(gathered, rank == 0 ? (Values{0, 10, 20}) : Values());
    Values part(1);
    comm.scatter<int>(rank == 0 ? Values{4, 5, 6} : Values(), std::span(part), 0);
    EXPECT_EQ(part, (Values{4 + rank}));
    comm.barrier();
  });
}

TEST(Wrapper, BlocksOfDifferentLengths) {
  on_ranks([](const Communicator& comm) {
    // Rank s sends d + 1 elements of value 10 s + d to rank d.
    const int rank = comm.rank();
    const std::vector<std::size_t> send_counts{1, 2, 3}, send_offsets{0, 1, 3};
    const std::size_t each = static_cast<std::size_t>(rank) + 1;
    const std::vector<std::size_t> receive_counts(3, each), receive_offsets{0, each, 2 * each};
    const int base = 10 * rank;
    const Values sent{base, base + 1, base + 1, base + 2, base + 2, base + 2};
    Values received(3 * each), expected;
    for (int s = 0; s < ranks; ++s) expected.insert(expected.end(), each, 10 * s + rank);
    comm.all_to_all_v<int>(sent, send_counts, send_offsets, std::span(received), receive_counts, receive_offsets);
    EXPECT_EQ(received, expected);
    EXPECT_THROW(comm.all_to_all_v<int>(Values(2), send_counts, send_offsets, std::span(received), receive_counts,
                                        receive_offsets),
                 strait::Exception);
  });
}

TEST(Wrapper, GroupsOfMessages) {
  on_ranks([](const Communicator& comm) {
    const int rank = comm.rank(), next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    const Values mine{rank};
    Values theirs{-1};
    strait::api::Group group;
    comm.send(std::span(mine), next);
    comm.receive(std::span(theirs), before);
    group.end();
    EXPECT_EQ(theirs, (Values{before}));
  });
}

/// An exception that leaves a group must cancel its calls: buffers made after the group are destroyed before it.
TEST(Wrapper, GroupsThatAreLeftRunNothing) {
  on_ranks([](const Communicator& comm) {
    const Values mine{1};
    Values sum{-1}, outer_sum{-1};
    try {
      strait::api::Group group;
      comm.all_reduce<int>(mine, std::span(sum));
      throw std::runtime_error("something else went wrong");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(sum, (Values{-1}));
    strait::api::Group outer;
    comm.all_reduce<int>(mine, std::span(outer_sum));
    {
      const strait::api::Group inner;
      comm.all_reduce<int>(mine, std::span(sum));
    }
    EXPECT_THROW(outer.end(), strait::Exception);
    EXPECT_EQ(outer_sum, (Values{-1}));
    comm.all_reduce<int>(mine, std::span(sum));  // no group is open any more
    EXPECT_EQ(sum, (Values{ranks}));
  });
}

TEST(Wrapper, SplitsRegistersAndMoves) {
  on_ranks([](const Communicator& comm) {
    if (const int first[] = {0}; comm.rank() != 0) {
      EXPECT_EQ(comm.shrink(first).rank(), comm.rank() - 1);
    }
    Communicator half = comm.split(comm.rank() % 2, 0);
    EXPECT_EQ(half.ranks(), comm.rank() % 2 == 0 ? 2 : 1);
    Communicator moved = std::move(half);
    EXPECT_FALSE(half);
    Values one{1};
    moved.all_reduce(std::span(one));
    EXPECT_EQ(one[0], moved.ranks());
    strait::api::Memory<int> memory(100);
    const auto registration = comm.register_memory(memory);
    std::iota(memory.span().begin(), memory.span().end(), comm.rank());
    comm.all_reduce(memory.span());
    EXPECT_EQ(memory.span()[5], 3 * 5 + 3);
  });
}

TEST(Wrapper, FailuresAreExceptionsThatSayWhatToDo) {
  on_ranks([](const Communicator& comm) {
    Values buffer{1};
    try {
      comm.broadcast(std::span(buffer), 99);
      ADD_FAILURE() << "a root that is no rank was accepted";
    } catch (const strait::Exception& e) {
      EXPECT_EQ(e.result(), straitInvalidArgument);
      EXPECT_NE(std::string(e.what()).find("root 99"), std::string::npos) << e.what();
    }
    EXPECT_THROW(comm.all_gather<int>(Values{1}, std::span(buffer)), strait::Exception);
    EXPECT_EQ(comm.error(), straitSuccess);
  });
}

}  // namespace
