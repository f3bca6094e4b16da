// Copies directly into the outputs of peers: compared bit by bit, with streams that are late, in graphs, and when ranks
// fail or make different calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "late.hpp"
#include "peers.hpp"
#include "standstill.hpp"

namespace strait::testing {
namespace {

using copy_engine::MemoryOperation;
using copy_engine::PeerCopies;
using copy_engine::PeerWords;
using namespace std::chrono_literals;

constexpr Collective in_place_collectives[] = {Collective::all_gather, Collective::all_to_all, Collective::broadcast};

bool goes_in_place(const Case& c) {
  return std::find(std::begin(in_place_collectives), std::end(in_place_collectives), c.collective) !=
         std::end(in_place_collectives);
}

/// Calls with the buffers of all ranks.
class Calls {
 public:
  Calls(std::uint32_t ranks, std::vector<Case> cases) : ranks_(ranks), cases_(std::move(cases)), buffers_(ranks) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      for (const Case& c : cases_) buffers_[rank].push_back(std::make_unique<Buffers>(c, rank, ranks));
  }
  std::size_t number() const { return cases_.size(); }
  const CopyCall& call(std::uint32_t rank, std::size_t i) const { return buffers_[rank][i]->call(); }
  PeerCopies::PeerAddresses outputs(std::size_t i) const {
    PeerCopies::PeerAddresses outputs{};
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) outputs[rank] = static_cast<std::byte*>(call(rank, i).receive);
    return outputs;
  }
  /// Enqueues call `i`: directly into the outputs if its collective allows that, otherwise through windows.
  Status enqueue(PeerRank& rank, std::uint32_t number, std::size_t i) const {
    const CopyCall& own = call(number, i);
    return goes_in_place(cases_[i]) ? rank.enqueue(own, outputs(i)) : rank.enqueue(own);
  }
  void wipe(std::uint32_t rank) {
    for (const auto& each : buffers_[rank]) each->wipe_output();
  }
  void check(std::uint32_t rank) const {
    for (const auto& each : buffers_[rank]) each->check();
  }

 private:
  std::uint32_t ranks_;
  std::vector<Case> cases_;
  std::vector<std::vector<std::unique_ptr<Buffers>>> buffers_;
};

struct Wanted {
  std::size_t number = 12;
  std::size_t most_bytes = 100'000;
  bool others = false;  ///< whether calls that go through windows are mixed in; if not, ranks have no windows
  bool can_be_in_place = true;
};

std::vector<Case> make_cases(std::uint32_t ranks, std::uint64_t seed, const Wanted& wanted) {
  std::vector<Case> cases;
  while (cases.size() < wanted.number) {
    Case c = make_case(seed = mix(seed), ranks, wanted.most_bytes);
    // An all-to-all in place needs windows, in which data is saved before it is overwritten.
    c.in_place = c.in_place && wanted.can_be_in_place && (wanted.others || c.collective != Collective::all_to_all);
    if (goes_in_place(c) || (wanted.others && is_supported(c) && seed % 4 == 0)) cases.push_back(std::move(c));
  }
  return cases;
}

void run(std::uint32_t ranks, bool one_queue, const Wanted& wanted, bool has_stragglers) {
  Peers peers(ranks);
  Calls calls(ranks, make_cases(ranks, ranks + wanted.number, wanted));
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue, .slow = !has_stragglers}, 2, wanted.others);
    if (has_stragglers) rank.driver->set_hook(stragglers(number));
    for (std::size_t i = 0; i < calls.number(); ++i) ASSERT_TRUE(calls.enqueue(rank, number, i));
    rank.driver->finish(rank.stream);
    EXPECT_FALSE(rank.copies->wait());
  });
  for (std::uint32_t rank = 0; rank < ranks; ++rank) calls.check(rank);
}

/// With and without calls between them that go through windows. Without them, ranks have no windows.
TEST(PeersInPlace, GoStraightIntoOutputs) {
  for (const std::uint32_t ranks : {2u, 3u, 4u, 5u, 6u})
    for (const bool one_queue : {false, true})
      for (const bool others : {false, true}) {
        SCOPED_TRACE("ranks " + std::to_string(ranks));
        run(ranks, one_queue, {.number = 14, .others = others}, false);
      }
}

TEST(PeersInPlace, KeepCallsApartWhateverIsLate) {
  for (const std::uint32_t ranks : {2u, 3u, 4u})
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE("ranks " + std::to_string(ranks));
      run(ranks, one_queue, {.number = 40, .most_bytes = 40'000, .others = true}, true);
    }
}

Case make_case(Collective collective, std::uint32_t ranks, std::size_t count, bool in_place, std::uint32_t root = 1) {
  Case c{.collective = collective, .type = DataType::int8, .root = root, .count = count, .in_place = in_place};
  const std::size_t elements = count * (collective == Collective::all_to_all ? ranks : 1);
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    c.inputs.push_back(random_elements(c.type, elements, count + rank));
  return c;
}

/// The parts are longer than a chunk. No rank but the root sends from its input, and the root sends each byte once.
TEST(PeersInPlace, LongBroadcastsArePassedOn) {
  for (const std::uint32_t ranks : {3u, 5u})
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE("ranks " + std::to_string(ranks));
      Peers peers(ranks);
      const std::size_t count = (ranks - 1) * (2 * PeerCopies::least_chunk_bytes + 4321) - 77;
      Calls calls(ranks, {make_case(Collective::broadcast, ranks, count, false, ranks - 1),
                          make_case(Collective::broadcast, ranks, count, true, 0)});
      as_threads(ranks, [&](std::uint32_t number) {
        PeerRank rank(peers, number, {.one_queue = one_queue, .slow = false}, 2, false);
        std::atomic<int> told = 0;
        rank.driver->set_hook([&](const MemoryOperation& operation) {
          const bool is_count = operation.kind == MemoryOperation::Kind::write && operation.value <= 3;
          if (is_count && operation.value > 1) ++told;  // a value of 1 may belong to the words of the meetings
        });
        for (std::size_t i = 0; i < calls.number(); ++i) ASSERT_TRUE(calls.enqueue(rank, number, i));
        rank.driver->finish(rank.stream);
        const bool is_a_root = number == 0 || number == ranks - 1;
        EXPECT_EQ(told, is_a_root ? 2 * static_cast<int>(ranks - 1) : 0);  // chunks 1 and 2, to each receiver
      });
      for (std::uint32_t rank = 0; rank < ranks; ++rank) calls.check(rank);
    }
}

/// Returns the copies to peers of each stream that carries some, in order. A copy is given as how many ranks its
/// destination comes after this rank (modulo the number of ranks).
std::vector<std::vector<std::uint32_t>> copies_to_peers(PeerRank& rank, std::uint32_t number, Peers& peers,
                                                        const Calls& calls, std::size_t i, bool through_windows) {
  std::vector<copy_engine::StreamDriver::Stream> streams;
  std::vector<std::vector<std::uint32_t>> all;
  const std::uint32_t ranks = peers.machine.ranks();
  rank.driver->set_copy_hook([&](const copy_engine::RowCopy& copy, copy_engine::StreamDriver::Stream stream) {
    for (std::uint32_t after = 1; after < ranks; ++after) {
      const std::uint32_t peer = (number + after) % ranks;
      const auto* const begin = through_windows ? peers.window(number, peer) : calls.outputs(i)[peer];
      const std::size_t bytes = through_windows ? peers.window_bytes : calls.call(peer, i).count * ranks;
      const std::less<const void*> is_before;
      if (is_before(copy.to, begin) || !is_before(copy.to, begin + bytes)) continue;
      const auto found = std::find(streams.begin(), streams.end(), stream);
      all.resize(std::max<std::size_t>(all.size(), found - streams.begin() + 1));
      all[found - streams.begin()].push_back(after);
      if (found == streams.end()) streams.push_back(stream);
    }
  });
  EXPECT_TRUE(through_windows ? rank.enqueue(calls.call(number, i)) : calls.enqueue(rank, number, i));
  rank.driver->set_copy_hook({});
  return all;
}

/// A copy engine carries large copies one after another, and chooses between those of several streams itself.
TEST(PeersInPlace, RanksGoToPeersOneAfterTheOtherAndNoTwoToOne) {
  for (const std::uint32_t ranks : {3u, 4u})
    for (const bool through_windows : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + (through_windows ? " through windows" : " in place"));
      Peers peers(ranks);
      const Calls calls(ranks, {make_case(Collective::all_gather, ranks, 40'000, false),
                                make_case(Collective::all_to_all, ranks, 40'000, false)});
      std::vector<std::vector<std::vector<std::uint32_t>>> of_rank(ranks * calls.number());
      as_threads(ranks, [&](std::uint32_t number) {
        PeerRank rank(peers, number, {.seed = number});
        for (std::size_t i = 0; i < calls.number(); ++i)
          of_rank[i * ranks + number] = copies_to_peers(rank, number, peers, calls, i, through_windows);
        rank.driver->finish(rank.stream);
      });
      for (std::uint32_t rank = 0; rank < ranks; ++rank) calls.check(rank);
      for (std::size_t i = 0; i < calls.number(); ++i) {
        const auto& first = of_rank[i * ranks];
        ASSERT_EQ(first.size(), through_windows ? PeerWords::lanes : 1);
        for (const auto& stream : first)
          for (std::size_t at = 0; at < stream.size(); ++at) EXPECT_EQ(stream[at], 1 + at % (ranks - 1));
        for (std::uint32_t rank = 1; rank < ranks; ++rank) EXPECT_EQ(of_rank[i * ranks + rank], first);
      }
    }
}

TEST(PeersInPlace, CapturedCallsAreReplayed) {
  for (const std::uint32_t ranks : {2u, 3u}) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    Peers peers(ranks);
    Calls calls(ranks, make_cases(ranks, 5, {.others = true, .can_be_in_place = false}));
    as_threads(ranks, [&](std::uint32_t number) {
      PeerRank rank(peers, number, {.seed = number});
      rank.driver->set_hook(stragglers(number));
      rank.driver->begin_capture();
      for (std::size_t i = 0; i < calls.number(); ++i) ASSERT_TRUE(calls.enqueue(rank, number, i));
      rank.driver->end_capture();
      EXPECT_TRUE(rank.driver->is_idle(rank.stream));
      for (int round = 0; round < 3; ++round) {
        calls.wipe(number);
        rank.driver->replay();
        rank.driver->finish(rank.stream);
        calls.check(number);
      }
    });
  }
}

/// Returns calls whose chunks are ordered by words: a broadcast to more than two ranks, and an all-to-all in place.
std::vector<Case> ordered_cases(std::uint32_t ranks) {
  return {make_case(Collective::broadcast, ranks, ranks * PeerCopies::least_chunk_bytes, false),
          make_case(Collective::all_to_all, ranks, 3 * peer_window_bytes, true)};
}

/// Rank 1 never calls: it is named, and no rank's output is written to except by that rank itself.
TEST(PeersInPlace, ARankThatNeverComesIsNamed) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  constexpr std::uint32_t ranks = 3, missing = 1;
  for (std::size_t i = 0; i < 2; ++i) {
    Peers peers(ranks);
    const Calls calls(ranks, ordered_cases(ranks));
    std::vector<Bytes> before;
    const std::size_t bytes = calls.call(0, i).count;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto* const output = static_cast<const std::byte*>(calls.call(rank, i).receive);
      before.emplace_back(output, output + bytes);
    }
    std::barrier looked(ranks - 1);
    as_threads(ranks, [&](std::uint32_t number) {
      if (number == missing) return;
      PeerRank rank(peers, number, {.seed = number});
      ASSERT_TRUE(calls.enqueue(rank, number, i));
      const auto wait = await_standstill(*rank.copies, missing);
      ASSERT_TRUE(wait);
      EXPECT_EQ(wait->rank, missing);
      EXPECT_EQ(std::memcmp(calls.call(number, i).receive, before[number].data(), bytes), 0);
      looked.arrive_and_wait();
      peers.fail();
      rank.drain();
    });
  }
}

/// A rank whose all-to-all is in place would wait for words that a rank whose call is not in place never writes, and
/// its data would be overwritten.
TEST(PeersInPlace, ExchangesInPlaceAndNotDoNotMeet) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  Peers peers(2);
  const Calls in_place(2, {make_case(Collective::all_to_all, 2, 1000, true)});
  const Calls apart(2, {make_case(Collective::all_to_all, 2, 1000, false)});
  const auto* const output = static_cast<const std::byte*>(in_place.call(0, 0).receive);
  const Bytes before(output, output + 2000);
  std::barrier looked(2);
  as_threads(2, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number});
    PeerCopies::PeerAddresses outputs = in_place.outputs(0);
    outputs[1] = apart.outputs(0)[1];
    ASSERT_TRUE(rank.enqueue((number == 0 ? in_place : apart).call(number, 0), outputs));
    EXPECT_TRUE(await_standstill(*rank.copies, 1 - number));
    EXPECT_EQ(std::memcmp(output, before.data(), before.size()), 0);
    looked.arrive_and_wait();
    peers.fail();
    rank.drain();
  });
}

/// Stops rank 1 after that many memory operations, while all ranks make the call twice; returns whether it has so many.
/// All streams must end.
bool stops_at(int operation, std::size_t which, bool one_queue) {
  constexpr std::uint32_t ranks = 3;
  Peers peers(ranks);
  const Calls calls(ranks, ordered_cases(ranks));
  Stop stop(operation);
  std::atomic<std::uint32_t> ended = 0;
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue, .slow = false});
    if (number == 1) rank.driver->set_hook([&](const MemoryOperation&) { stop.pass(); });
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(calls.enqueue(rank, number, which));
    rank.end_at(number == 1 ? &stop : nullptr);
    ++ended;
  });
  EXPECT_EQ(ended, ranks);
  return stop.is_reached();
}

TEST(PeersInPlace, AFailureEndsEveryWait) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  for (std::size_t which = 0; which < 2; ++which)
    for (const bool one_queue : {false, true}) {
      int operation = 0;
      while (stops_at(operation, which, one_queue) && !::testing::Test::HasFailure()) operation += one_queue ? 7 : 4;
      EXPECT_GT(operation, 30) << which;
    }
}

/// The words are cleared even if no stream has waited for them, whichever write is late.
TEST(PeersInPlace, LeaveAllWordsClear) {
  constexpr std::uint32_t ranks = 3;
  const Bytes zeros(PeerWords{ranks}.size_bytes());
  Peers peers(ranks);
  const Calls calls(ranks, ordered_cases(ranks));
  std::barrier everybody(ranks);
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.slow = false});
    rank.driver->set_hook(stragglers(number));
    for (std::size_t turn = 0; turn < 6; ++turn) {
      ASSERT_TRUE(calls.enqueue(rank, number, turn % 2));
      rank.driver->finish(rank.stream);
      everybody.arrive_and_wait();
      if (number == 0) {
        EXPECT_EQ(std::memcmp(peers.machine.host(), zeros.data(), zeros.size()), 0) << turn;
      }
      everybody.arrive_and_wait();
    }
  });
}

/// Whichever command the driver refuses, enqueue() returns an error, and nothing waits once the communicator has
/// failed.
TEST(PeersInPlace, ADriverThatFailsHarmsNobody) {
  for (std::size_t which = 0; which < 2; ++which)
    for (int commands = 1; commands < (which == 0 ? 15 : 40); commands += 3) {
      Peers peers(3);
      const Calls calls(3, ordered_cases(3));
      PeerRank rank(peers, 0, {.seed = 1});
      rank.driver->fail_after(commands);
      const Status done = calls.enqueue(rank, 0, which);
      peers.fail();
      ASSERT_FALSE(done) << commands;
      EXPECT_EQ(done.error().code, Code::cuda_error);
      rank.copies.reset();
    }
}

TEST(PeersInPlace, WhatIsNotSupportedIsRefused) {
  Peers peers(3);
  Bytes data(64);
  PeerRank rank(peers, 0, {});
  for (const Collective collective : collectives) {
    const CopyCall apart{.collective = collective, .count = 1, .send = data.data(), .receive = data.data() + 32};
    const bool goes = std::find(std::begin(in_place_collectives), std::end(in_place_collectives), collective) !=
                      std::end(in_place_collectives);
    EXPECT_EQ(rank.copies->supports_in_place(apart), goes) << name(collective);
    if (!goes) {
      EXPECT_EQ(rank.enqueue(apart, {}).error().code, Code::unsupported) << name(collective);
    }
  }
  CopyCall exchange{.collective = Collective::all_to_all, .count = 1, .send = data.data(), .receive = data.data()};
  EXPECT_TRUE(rank.copies->supports_in_place(exchange));
  exchange.count = 128 * (peer_window_bytes / 2) / sizeof(float) + 1;  // too many chunks
  EXPECT_FALSE(rank.copies->supports_in_place(exchange));
  exchange.count = 0;
  EXPECT_FALSE(rank.copies->supports_in_place(exchange));
  auto setup = rank.setup(std::make_unique<FakeStreams>(FakeStreams::Options{}));
  setup.window_bytes = 0;
  exchange.count = 1;
  EXPECT_FALSE(PeerCopies::open(std::move(setup)).value()->supports_in_place(exchange));
}

}  // namespace
}  // namespace strait::testing
