// What ranks that copy into one another's memory wait for: peers that are late, that make another call, that never call
// or that stop anywhere; and calls that are captured and replayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>

#include "late.hpp"
#include "peers.hpp"
#include "standstill.hpp"

namespace strait::testing {
namespace {

using copy_engine::MemoryOperation;
using copy_engine::PeerWords;
using namespace std::chrono_literals;

constexpr Collective carried[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                  Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                  Collective::gather,     Collective::scatter};

/// Returns short calls (few chunks each), of every collective and root.
std::vector<Case> make_short_cases(std::uint64_t seed, std::uint32_t ranks, std::size_t number) {
  std::vector<Case> cases;
  while (cases.size() < number) {
    seed = mix(seed);
    Case c = make_case(seed, ranks, seed % 8 == 0 ? 60'000 : 9'000);
    c.in_place = false;
    if (is_supported(c)) cases.push_back(std::move(c));
  }
  return cases;
}

void run_stragglers(std::uint32_t ranks, bool one_queue, std::uint64_t seed) {
  Peers peers(ranks);
  const std::vector<Case> cases = make_short_cases(seed, ranks, 40);
  as_threads(ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = seed + number, .one_queue = one_queue, .slow = false});
    rank.driver->set_hook(stragglers(seed * ranks + number));
    std::vector<std::unique_ptr<Buffers>> buffers;
    for (const Case& c : cases) {
      buffers.push_back(std::make_unique<Buffers>(c, number, ranks));
      ASSERT_TRUE(rank.enqueue(buffers.back()->call()));
    }
    rank.driver->finish(rank.stream);
    EXPECT_FALSE(rank.copies->wait());
    for (const auto& buffer : buffers) buffer->check();
  });
}

TEST(PeerMeetings, KeepCallsApartWhateverIsLate) {
  for (const std::uint32_t ranks : {2u, 3u, 4u})
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks" + (one_queue ? ", one queue" : ""));
      run_stragglers(ranks, one_queue, 17 + ranks);
    }
}

/// The values that words take are constants of a call, so a captured call can run repeatedly, with other calls between.
TEST(PeerMeetings, CapturedCallsAreReplayed) {
  for (const std::uint32_t ranks : {2u, 3u, 4u}) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    Peers peers(ranks);
    const std::vector<Case> cases = make_short_cases(ranks, ranks, 8);
    as_threads(ranks, [&](std::uint32_t number) {
      PeerRank rank(peers, number, {.seed = number});
      rank.driver->set_hook(stragglers(number));
      std::vector<std::unique_ptr<Buffers>> buffers;
      for (const Case& c : cases) buffers.push_back(std::make_unique<Buffers>(c, number, ranks));
      rank.driver->begin_capture();
      for (const auto& buffer : buffers) ASSERT_TRUE(rank.enqueue(buffer->call()));
      rank.driver->end_capture();
      EXPECT_TRUE(rank.driver->is_idle(rank.stream));
      for (int round = 0; round < 3; ++round) {
        for (const auto& buffer : buffers) buffer->wipe_output();
        rank.driver->replay();
        ASSERT_TRUE(rank.enqueue(buffers[2]->call()));
        rank.driver->replay();
        rank.driver->finish(rank.stream);
        for (const auto& buffer : buffers) buffer->check();
      }
    });
  }
}

/// Calls of one collective on plain buffers of bytes.
struct Plain {
  explicit Plain(std::uint32_t ranks, Collective c = Collective::all_reduce, std::size_t elements = 30'000)
      : collective(c), count(elements), send(ranks * elements), receive(ranks * elements) {}
  CopyCall call(std::uint32_t root = 0) {
    return {.collective = collective,
            .type = DataType::int8,
            .root = root,
            .count = count,
            .send = send.data(),
            .receive = receive.data()};
  }
  Collective collective;
  std::size_t count;
  Bytes send, receive;
};

/// Rank 1 never calls. All others name it, and end once the communicator has failed; no data has been moved.
TEST(PeerMeetings, ARankThatNeverComesIsNamed) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  constexpr std::uint32_t ranks = 4, missing = 1;
  for (const Collective collective : carried)
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE(name(collective));
      Peers peers(ranks);
      std::barrier looked(ranks - 1);
      as_threads(ranks, [&](std::uint32_t number) {
        if (number == missing) return;
        Plain plain(ranks, collective);
        const std::byte own{static_cast<unsigned char>(number + 1)};
        std::fill(plain.send.begin(), plain.send.end(), own);
        PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue});
        for (int i = 0; i < 2; ++i) ASSERT_TRUE(rank.enqueue(plain.call(2)));
        const auto wait = await_standstill(*rank.copies, missing);
        ASSERT_TRUE(wait);
        EXPECT_GE(wait->duration, 30ms);
        EXPECT_EQ(wait->rank, missing);
        EXPECT_FALSE(rank.driver->is_idle(rank.stream));
        EXPECT_TRUE(std::all_of(plain.receive.begin(), plain.receive.end(),
                                [&](std::byte each) { return each == std::byte{0} || each == own; }));
        looked.arrive_and_wait();
        peers.fail();
        rank.drain();
      });
    }
}

/// Rank 2 makes another call than the others: neither is carried out, and all others name rank 2.
TEST(PeerMeetings, CallsThatDifferDoNotMeet) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  constexpr std::uint32_t ranks = 3, other = 2;
  const auto differs = [](int way, Plain& plain) -> CopyCall {
    CopyCall call = plain.call();
    if (way == 0) call.count -= 1;
    if (way == 1) call.count += 1;
    if (way == 2) call.type = DataType::uint8;
    if (way == 3) call.op = ReduceOp::max;
    if (way == 4) call.root = 1;
    if (way == 5) call.collective = Collective::all_gather;
    return call;
  };
  for (int way = 0; way < 6; ++way) {
    SCOPED_TRACE(way);
    Peers peers(ranks);
    std::barrier looked(ranks);
    as_threads(ranks, [&](std::uint32_t number) {
      Plain plain(ranks, Collective::all_reduce, 20'000);
      plain.send.resize(plain.send.size() + ranks);
      plain.receive.assign(plain.receive.size() + ranks, std::byte{7});
      const Bytes before = plain.receive;
      PeerRank rank(peers, number, {.seed = number});
      ASSERT_TRUE(rank.enqueue(number == other ? differs(way, plain) : plain.call()));
      const auto wait =
          await_standstill(*rank.copies, number == other ? std::nullopt : std::optional<std::uint32_t>(other));
      ASSERT_TRUE(wait);
      if (number != other) {
        EXPECT_EQ(wait->rank, other);
        EXPECT_TRUE(plain.receive == before);
      }
      looked.arrive_and_wait();
      peers.fail();
      rank.drain();
    });
  }
}

/// Stops rank 1 after that many memory operations, while all ranks make the call twice; returns whether it has so many.
/// All streams must end once the communicator has failed.
bool stops_at(int operation, Collective collective, bool one_queue) {
  constexpr std::uint32_t ranks = 3;
  Peers peers(ranks);
  Stop stop(operation);
  std::atomic<std::uint32_t> ended = 0;
  as_threads(ranks, [&](std::uint32_t number) {
    Plain plain(ranks, collective, 9000);
    PeerRank rank(peers, number, {.seed = number, .one_queue = one_queue, .slow = false});
    if (number == 1) rank.driver->set_hook([&](const MemoryOperation&) { stop.pass(); });
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(rank.enqueue(plain.call()));
    rank.end_at(number == 1 ? &stop : nullptr);
    ++ended;
  });
  EXPECT_EQ(ended, ranks);
  return stop.is_reached();
}

TEST(PeerMeetings, AFailureEndsEveryWait) {
  if (one_view) GTEST_SKIP() << race_after_failure;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::gather})
    for (const bool one_queue : {false, true}) {
      int operation = 0;
      while (stops_at(operation, collective, one_queue) && !::testing::Test::HasFailure())
        operation += one_queue ? 7 : 4;
      EXPECT_GT(operation, 20) << name(collective);
    }
}

/// Calls may end and begin between two looks (wait()) that find the same state. The duration must then start anew.
TEST(PeerMeetings, ACallThatHasEndedBetweenTwoLooksIsProgress) {
  Peers peers(2);
  Plain plain(2), other(2);
  PeerRank rank(peers, 0, {.slow = false}), peer(peers, 1, {.slow = false});
  const std::atomic_ref running(*reinterpret_cast<std::uint32_t*>(peers.machine.host() + PeerWords{2}.running(0)));
  for (int call = 0; call < 4; ++call) {
    ASSERT_TRUE(rank.enqueue(plain.call()));
    while (running.load() == 0) std::this_thread::sleep_for(1ms);  // an earlier look would find no call running
    EXPECT_LT(rank.copies->wait()->duration, 20ms) << call;
    std::this_thread::sleep_for(40ms);
    EXPECT_GE(rank.copies->wait()->duration, 40ms) << call;
    ASSERT_TRUE(peer.enqueue(other.call()));
    rank.driver->finish(rank.stream);
    peer.driver->finish(peer.stream);
  }
}

/// Between calls every word is 0, even if no stream has waited for it, whichever write is late.
TEST(PeerMeetings, LeaveAllWordsClear) {
  constexpr std::uint32_t ranks = 3;
  const Bytes zeros(PeerWords{ranks}.size_bytes());
  for (const Collective collective : carried) {
    Peers peers(ranks);
    std::barrier everybody(ranks);
    as_threads(ranks, [&](std::uint32_t number) {
      Plain plain(ranks, collective, 2000);
      PeerRank rank(peers, number, {.slow = false});
      std::atomic<std::uint64_t> written = number;
      rank.driver->set_hook([&](const MemoryOperation& operation) {
        if (operation.kind == MemoryOperation::Kind::write && operation.value > 1000)  // a hash, not a count
          std::this_thread::sleep_for(std::chrono::microseconds(mix(written += ranks) % 3 * 3000));
      });
      for (std::uint32_t call = 0; call < 6; ++call) {
        ASSERT_TRUE(rank.enqueue(plain.call(call % ranks)));
        rank.driver->finish(rank.stream);
        everybody.arrive_and_wait();
        if (number == 0) {
          EXPECT_EQ(std::memcmp(peers.machine.host(), zeros.data(), zeros.size()), 0) << name(collective);
        }
        for (std::uint32_t peer = 0; peer < ranks; ++peer)
          for (std::uint32_t lane = 0; lane < PeerWords::lanes; ++lane)
            EXPECT_EQ(peers.contributed(peer, number)[lane], 0u) << name(collective);
        everybody.arrive_and_wait();
      }
    });
  }
}

}  // namespace
}  // namespace strait::testing
