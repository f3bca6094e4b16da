// Random calls one after another on the same lanes, in pipes, in bulk by other kernels, and with flags. Each rank
// chooses kernels by itself. Through the kernels on the CPU, bit by bit.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/emulated_collectives.hpp"
#include "support/message_memory.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}

/// A collective or a group of messages, with the buffers of all ranks.
struct Step {
  Step(Random& random, std::uint32_t ranks, std::size_t most_bytes) {
    if (random() % 4 == 0) {
      std::vector<std::size_t> lengths{1, 77, 4096, most_bytes / 2, most_bytes, most_bytes + 16};
      messages = random_messages(random, ranks, lengths);
      if (random() % 2 == 0)  // a ring
        for (std::size_t i = 0; i < messages.size(); ++i)
          messages[i] = {static_cast<std::uint32_t>(i % ranks), static_cast<std::uint32_t>((i + 1) % ranks),
                         most_bytes};
      memory = std::make_unique<MessageMemory>(messages, random());
      return;
    }
    CollectiveCase c;
    c.collective = one_of(random, {Collective::all_reduce, Collective::all_reduce, Collective::all_gather,
                                   Collective::reduce_scatter, Collective::all_to_all, Collective::broadcast,
                                   Collective::reduce, Collective::gather, Collective::scatter});
    c.type = static_cast<DataType>(random() % data_type_count);
    c.op = one_of(random,
                  {ReduceOp::sum, ReduceOp::sum, ReduceOp::avg, static_cast<ReduceOp>(random() % reduce_op_count)});
    c.count = (random() % most_bytes + 1) / size_bytes(c.type) + 1;
    if (random() % 2 == 0) c.count = (c.count + 15) / 16 * 16;
    c.root = static_cast<std::uint32_t>(random() % ranks);
    c.seed = random() % 1000 + 1;
    c.in_place = random() % 2 == 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      c.misalignment_bytes = random() % 4 == 0 ? size_bytes(c.type) : 0;  // may differ between ranks
      cases.push_back(std::make_unique<CheckedCase>(c, ranks));
    }
  }
  Messages messages;
  std::unique_ptr<MessageMemory> memory;
  std::vector<std::unique_ptr<CheckedCase>> cases;  ///< by rank
};

void run(Machine& machine, Step& step, std::uint32_t rank, Random& random) {
  if (step.memory) {
    const auto buffer_of = [&](std::size_t number, bool sends) {
      return (sends ? step.memory->send : step.memory->receive)[number].data();
    };
    machine.run(machine.calls(rank).launches_of(calls_of(step.messages, rank, random, buffer_of)), DataType::uint8);
  } else {
    CheckedCall checked(*step.cases[rank], rank);
    machine.run(rank, checked.call());
    checked.verify();
  }
}

TEST(Mixed, CallsFollowOneAnother) {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    Random random(seed);
    const auto ranks = static_cast<std::uint32_t>(random() % 4 + 2);
    const auto blocks = static_cast<std::uint32_t>(random() % 3 + 1);
    const bool p2p = random() % 8 != 0;
    Machine machine(ranks, blocks,
                    {.flagged_bytes = one_of<std::size_t>(random, {0, 0, 3000, 20'000}),
                     .first_use = one_of<std::uint64_t>(random, {0, 7, (std::uint64_t{1} << 40) + 1}),
                     .p2p = p2p,
                     .algorithm = one_of(random, {"", "one_hop", "two_hop"}),
                     .piped = p2p && random() % 8 != 0,
                     .small_slots = random() % 4 != 0,
                     .together = true});
    std::vector<Step> steps;
    for (int i = 0; i < 6; ++i) steps.emplace_back(random, ranks, one_of<std::size_t>(random, {2000, 20'000, 60'000}));
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank, own = Random(seed * 100 + rank)]() mutable {
          for (Step& step : steps) run(machine, step, rank, own);
        });
    }
    for (const Step& step : steps)
      if (step.memory) step.memory->expect_received(step.messages);
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      EXPECT_EQ(machine.mailbox(rank).event, kernels::Mailbox::Event::none) << "rank " << rank << " gave up";
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

}  // namespace
}  // namespace strait::testing
