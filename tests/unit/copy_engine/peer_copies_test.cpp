// Copies into the memory of peers, with the kernel that adds on the CPU: every collective, type and operation bit by
// bit, calls that follow one another and are replayed, and waits that end.
#include "support/emulated_gpu.hpp"
//
#include <gtest/gtest.h>

#include <thread>

#include "cases.hpp"
#include "executor/copy_engine/peer_copies.hpp"
#include "kernels/add.cuh"
#include "machine.hpp"

namespace strait::testing {
namespace {

using staged::PeerCopies;
using staged::PeerTraffic;
using staged::PeerWords;
using staged::StagedCall;
using namespace std::chrono_literals;

constexpr std::size_t window_bytes = 2 * PeerCopies::depth * 4096;  ///< the least: chunks of 8 or 4 KB

void run_add(const kernels::Add& add, DataType type, std::uint32_t index, std::uint32_t blocks, std::uint32_t seed) {
  constexpr std::uint32_t threads = 32;
  EmulatedBlock shared(threads);
  std::vector<std::jthread> running;
  for (std::uint32_t thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      block = &shared;
      delay_state = seed * 131 + index * 17 + thread;
      threadIdx.x = thread;
      blockIdx.x = index;
      blockDim.x = threads;
      gridDim.x = blocks;
      spec::visit(type, [&]<DataType t>() {
        if (add.op == ReduceOp::sum)
          kernels::add_chunks<t, true>(add);
        else
          kernels::add_chunks<t, false>(add);
      });
    });
}

/// GPUs that reach one another's memory.
class Peers {
 public:
  explicit Peers(std::uint32_t ranks)
      : machine(ranks, PeerWords{ranks}.size_bytes()),
        windows_(ranks * ranks, Bytes(window_bytes)),
        contributed_(ranks * ranks * PeerWords::lanes),
        mailboxes_(ranks) {}

  /// All ranks, on their streams. Ends without them once the communicator has failed.
  void meet() {
    const std::uint32_t ranks = machine.ranks(), turn = arrived_.fetch_add(1) / ranks;
    while (arrived_ < (turn + 1) * ranks && !machine.failed()) std::this_thread::sleep_for(20us);
  }
  std::byte* window(std::uint32_t writer, std::uint32_t reader) {
    return windows_[writer * machine.ranks() + reader].data();
  }
  std::uint32_t* contributed(std::uint32_t writer, std::uint32_t reader) {
    return &contributed_[(writer * machine.ranks() + reader) * PeerWords::lanes];
  }
  kernels::Mailbox& mailbox(std::uint32_t rank) { return mailboxes_[rank]; }

  Machine machine;

 private:
  std::vector<Bytes> windows_;
  std::vector<std::uint32_t> contributed_;
  std::vector<kernels::Mailbox> mailboxes_;
  std::atomic<std::uint32_t> arrived_ = 0;
};

class PeerRank {
 public:
  PeerRank(Peers& peers, std::uint32_t rank, const FakeStreams::Options& streams, std::uint32_t blocks = 2)
      : peers_(peers), rank_(rank), blocks_(blocks) {
    auto owned = std::make_unique<FakeStreams>(streams);
    driver = owned.get();
    copies = PeerCopies::open(setup(std::move(owned))).value();
    stream = driver->create_stream().value();
  }
  PeerCopies::Setup setup(std::unique_ptr<FakeStreams> streams) {
    auto words = peers_.machine.setup(rank_, {}, std::move(streams));
    PeerCopies::Setup setup{.driver = std::move(words.driver),
                            .rank = rank_,
                            .ranks = words.ranks,
                            .windows_there = {},
                            .windows_here = {},
                            .window_bytes = window_bytes,
                            .contributed_there = {},
                            .contributed_here = {},
                            .host_words = words.host,
                            .device_words = words.device,
                            .meet = [this](const StagedCall& /*call*/, staged::StreamDriver::Stream on) -> Status {
                              driver->run(on, [this] { peers_.meet(); });
                              return {};
                            },
                            .launch = [this](const StagedCall& call, const kernels::Add& add,
                                             staged::StreamDriver::Stream on) { return launch(call, add, on); },
                            .has_failed = words.has_failed};
    for (std::uint32_t peer = 0; peer < words.ranks; ++peer) {
      setup.windows_there[peer] = peers_.window(rank_, peer);
      setup.windows_here[peer] = peers_.window(peer, rank_);
      setup.contributed_there[peer] = peers_.contributed(rank_, peer);
      setup.contributed_here[peer] = peers_.contributed(peer, rank_);
    }
    return setup;
  }
  /// As on a GPU: other streams of a shared queue go on while the kernel runs, and its own when it has ended.
  Status enqueue(const StagedCall& call) {
    const Status done = copies->enqueue(call, stream);
    driver->run(stream, [this] { kernels_.clear(); });
    return done;
  }
  void fail() {
    peers_.machine.failed() = true;
    std::atomic_ref(peers_.mailbox(rank_).abort) = 1;
  }

  FakeStreams* driver = nullptr;
  std::unique_ptr<PeerCopies> copies;
  staged::StreamDriver::Stream stream = nullptr;

 private:
  Status launch(const StagedCall& call, kernels::Add add, staged::StreamDriver::Stream on) {
    add.shares_done = shares_done_;
    add.ring.rank = rank_;
    add.ring.ranks = add.ring.averaged = peers_.machine.ranks();
    add.ring.mailbox = &peers_.mailbox(rank_);
    add.ring.slow_ns = ~std::uint64_t{0} >> 8;
    add.ring.timeout_ns = 60'000'000'000;
    driver->run(on, [this, type = call.type, add] {
      for (std::uint32_t index = 0; index < blocks_; ++index)
        kernels_.emplace_back([=, this] { run_add(add, type, index, blocks_, ++seed_); });
    });
    return {};
  }

  Peers& peers_;
  std::uint32_t rank_, blocks_;
  std::uint32_t shares_done_[PeerCopies::depth] = {};
  std::atomic<std::uint32_t> seed_ = 0;
  std::vector<std::jthread> kernels_;
};

bool is_supported(const Case& c) {
  return PeerTraffic::supports({.collective = c.collective, .op = c.op, .count = c.count});
}

struct Setting {
  std::uint32_t ranks;
  bool one_queue = false;
  bool slow = true;
  std::size_t most_bytes = 150'000;
  std::uint32_t blocks = 2;
};

/// Calls that are enqueued at once, of which only the last is waited for.
void run_cases(const Setting& setting, std::uint64_t seed, int groups) {
  constexpr std::size_t calls_in_a_group = 4;
  Peers peers(setting.ranks);
  std::vector<std::vector<Case>> cases(static_cast<std::size_t>(groups));
  for (auto& group : cases)
    while (group.size() < calls_in_a_group)
      if (Case c = make_case(seed = mix(seed), setting.ranks, setting.most_bytes); is_supported(c))
        group.push_back(std::move(c));
  as_threads(setting.ranks, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = seed + number, .one_queue = setting.one_queue, .slow = setting.slow},
                  setting.blocks);
    for (const auto& group : cases) {
      std::vector<std::unique_ptr<Buffers>> buffers;
      for (const Case& c : group) {
        buffers.push_back(std::make_unique<Buffers>(c, number, setting.ranks));
        const Status done = rank.enqueue(buffers.back()->call());
        ASSERT_TRUE(done) << done.error().message;
      }
      rank.driver->finish(rank.stream);
      EXPECT_FALSE(rank.copies->wait());
      for (const auto& buffer : buffers) buffer->check();
    }
  });
}

TEST(PeerCopies, HaveTheBitsOfAPlainLoop) {
  for (std::uint32_t ranks = 2; ranks <= 5; ++ranks) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    run_cases({.ranks = ranks, .blocks = 1 + ranks % 3}, mix(ranks), 8);
  }
}

TEST(PeerCopies, NeedOnlyOneHardwareQueue) {
  for (const std::uint32_t ranks : {2u, 4u}) {
    SCOPED_TRACE("ranks " + std::to_string(ranks));
    run_cases({.ranks = ranks, .one_queue = true}, mix(ranks * 32), 6);
  }
}

TEST(PeerCopies, KeepTheirOrderAtFullSpeed) { run_cases({.ranks = 3, .slow = false, .most_bytes = 300'000}, 7, 8); }

/// Every type with every operation that copy engines carry.
TEST(PeerCopies, ReduceEveryTypeAndOperation) {
  Peers peers(3);
  std::vector<Case> cases;
  for (int type = 0; type < data_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op) {
      Case c{.type = static_cast<DataType>(type),
             .op = static_cast<ReduceOp>(op),
             .count = 5001,
             .aligned = type % 2 == 0};
      if (!is_supported(c)) {
        EXPECT_EQ(c.op, ReduceOp::premul_sum);
        continue;
      }
      for (std::uint32_t rank = 0; rank < 3; ++rank)
        c.inputs.push_back(random_elements(c.type, c.count, rank + static_cast<unsigned>(type)));
      c.scalars.resize(3, Bytes(8));
      cases.push_back(std::move(c));
    }
  as_threads(3, [&](std::uint32_t number) {
    PeerRank rank(peers, number, {.seed = number, .slow = false});
    for (const Case& c : cases) {
      Buffers buffers(c, number, 3);
      ASSERT_TRUE(rank.enqueue(buffers.call()));
      rank.driver->finish(rank.stream);
      buffers.check();
    }
  });
}

/// Rank 1 comes to the meetings and does nothing more: rank 0 waits with two calls until the communicator fails.
TEST(PeerCopies, AFailureEndsEveryWait) {
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter})
    for (const bool one_queue : {false, true}) {
      SCOPED_TRACE(name(collective));
      Peers peers(2);
      Bytes send(400'000), receive(400'000);
      PeerRank rank(peers, 0, {.one_queue = one_queue});
      const StagedCall call{.collective = collective,
                            .type = DataType::int8,
                            .count = 200'000,
                            .send = send.data(),
                            .receive = receive.data()};
      for (int i = 0; i < 2; ++i) ASSERT_TRUE(rank.enqueue(call));
      for (int i = 0; i < 2; ++i) peers.meet();
      const auto began = std::chrono::steady_clock::now();
      std::optional<staged::Wait> wait;
      while ((!wait || wait->duration < 20ms) && std::chrono::steady_clock::now() - began < 10s) {
        wait = rank.copies->wait();
        std::this_thread::sleep_for(1ms);
      }
      ASSERT_TRUE(wait);
      EXPECT_GE(wait->duration, 20ms);
      EXPECT_EQ(wait->rank, 1u);
      EXPECT_FALSE(rank.driver->is_idle(rank.stream));
      rank.fail();
      while (!rank.driver->is_idle(rank.stream)) {
        ASSERT_LT(std::chrono::steady_clock::now() - began, 20s);
        rank.copies->release_waits();
        std::this_thread::sleep_for(1ms);
      }
    }
}

/// Whatever command the driver refuses: an error, and nothing that waits once the communicator has failed.
TEST(PeerCopies, ADriverThatFailsHarmsNobody) {
  for (int commands = 1; commands < 60; commands += 3) {
    Peers peers(2);
    Bytes data(200'000);
    PeerRank rank(peers, 0, {.seed = 1});
    rank.driver->fail_after(commands);
    const Status done =
        rank.enqueue({.type = DataType::int8, .count = data.size(), .send = data.data(), .receive = data.data()});
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, Code::cuda_error);
    rank.fail();
    rank.copies.reset();
  }
}

TEST(PeerCopies, WhatIsNotSupportedIsRefused) {
  Peers peers(3);
  Bytes data(64);
  PeerRank rank(peers, 0, {});
  const StagedCall good{.count = 1, .send = data.data(), .receive = data.data()};
  for (const auto& change : std::vector<std::function<void(StagedCall&)>>{
           [](StagedCall& call) { call.count = 0; }, [](StagedCall& call) { call.op = ReduceOp::premul_sum; },
           [](StagedCall& call) { call.collective = Collective::reduce; },
           [](StagedCall& call) { call.collective = Collective::barrier; }}) {
    StagedCall call = good;
    change(call);
    EXPECT_FALSE(rank.copies->supports(call));
    const Status refused = rank.copies->enqueue(call, rank.stream);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::unsupported);
  }
  EXPECT_TRUE(rank.copies->supports(good));
  auto small = rank.setup(std::make_unique<FakeStreams>(FakeStreams::Options{}));
  small.window_bytes -= 1;
  EXPECT_EQ(PeerCopies::open(std::move(small)).error().code, Code::invalid_argument);
}

}  // namespace
}  // namespace strait::testing
