#pragma once

// Must be the first include: it replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "kernels/network.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "support/random_data.hpp"

/// Runs the kernel of NetworkExchange on the CPU, with a proxy that knows which calls and data to expect.
namespace strait::kernels {

using testing::Bytes;
using Random = std::mt19937;
inline constexpr std::byte poison{0xa5};
inline constexpr std::size_t margin = 64;

/// A user's buffer that begins `shift` bytes after a multiple of 16, with poison around it.
struct UserMemory {
  UserMemory(std::size_t shift, std::size_t bytes) : memory(bytes + 2 * margin, poison) {
    data = memory.data() + margin - reinterpret_cast<std::uintptr_t>(memory.data()) % 16 + shift;
  }
  Bytes memory;
  std::byte* data;
};

/// A call and the users' memory of its flows.
class GivenCall {
 public:
  explicit GivenCall(std::uint32_t rounds, std::uint32_t seed = 1) : random_(seed) {
    call.rounds = rounds;
    call.root = random_() % 9;
    call.count = random_();
    call.among = random_() % 2 == 0 ? NetworkCall::Among::across : NetworkCall::Among::all;
    call.collective = random_() % 2 == 0 ? Collective::all_reduce : Collective::send_recv;
    call.type = random_() % 2 == 0 ? DataType::float16 : DataType::uint8;
    call.op = random_() % 2 == 0 ? ReduceOp::max : ReduceOp::sum;
    call.wire = random_() % 2 == 0 ? WireFormat::off : WireFormat::fp8;
    call.is_awaited = true;
  }
  struct Length {
    std::size_t bytes;
    std::uint32_t piece_bytes;
  };
  /// Adds `together` flows whose pieces lie one after another in each round's slot. The data of the first begins
  /// `shift` bytes after a multiple of 16, and that of each other flow one byte further from one.
  GivenCall& add(bool sends, const Length& length, std::uint32_t together = 1, std::size_t shift = 0) {
    std::uint32_t& end = slot_end[sends ? 0 : 1];
    for (std::uint32_t block = 0; block < together; ++block) {
      Flow flow{};
      flow.bytes = length.bytes;
      flow.piece_bytes = length.piece_bytes;
      flow.slot_offset = end;
      flow.block = static_cast<std::uint16_t>(block);
      flow.peer = static_cast<std::uint16_t>(random_());
      flow.type = random_() % 2 == 0 ? DataType::int32 : DataType::bfloat16;
      flow.sends = sends;
      const Bytes data = testing::random_elements(DataType::uint8, length.bytes, random_());
      UserMemory& user = users.emplace_back((shift + block) % 16, length.bytes);
      if (sends) std::copy(data.begin(), data.end(), user.data);
      flow.data = user.data;
      flows.push_back(flow);
      contents.push_back(data);
    }
    end += together * length.piece_bytes;
    call.flow_count = static_cast<std::uint32_t>(flows.size());
    call.is_awaited = std::any_of(flows.begin(), flows.end(), [](const Flow& flow) { return !flow.sends; });
    return *this;
  }
  /// Adds a copy of data that stays with the rank.
  GivenCall& add_local_copy(std::size_t bytes, std::size_t shift) {
    local_data = testing::random_elements(DataType::uint8, bytes, random_());
    own.emplace_back(shift, bytes);
    return *this;
  }
  /// Makes only the first rounds of the data to send available; the rest is poison.
  void make_ready(std::uint32_t rounds) {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (!flows[i].sends) continue;
      const std::size_t bytes = std::min(flows[i].bytes, std::size_t{rounds} * flows[i].piece_bytes);
      std::fill_n(flows[i].data, flows[i].bytes, poison);
      std::copy_n(contents[i].begin(), bytes, flows[i].data);
    }
  }
  /// Returns what a slot must hold in that round.
  Bytes slot_in(std::uint32_t round, bool sends) const {
    Bytes slot(slot_end[sends ? 0 : 1] + margin, poison);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const Chunk piece = piece_of(flows[i], round);
      if (flows[i].sends != sends || piece.bytes == 0) continue;
      std::memcpy(slot.data() + slot_place(flows[i], piece), contents[i].data() + piece.offset, piece.bytes);
    }
    return slot;
  }
  /// Checks that all data has arrived, and that nothing else was written.
  void expect_through() const {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      UserMemory expected(0, users[i].memory.size() - 2 * margin);
      std::copy(contents[i].begin(), contents[i].end(),
                expected.memory.begin() + (users[i].data - users[i].memory.data()));
      ASSERT_EQ(users[i].memory, expected.memory) << "flow " << i << " of " << flows.size();
    }
    for (const UserMemory& place : own) {
      UserMemory expected(0, local_data.size());
      std::copy(local_data.begin(), local_data.end(), expected.memory.begin() + (place.data - place.memory.data()));
      ASSERT_EQ(place.memory, expected.memory) << "what stays with the rank";
    }
  }
  void expect_untouched() const {
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (flows[i].sends) continue;
      ASSERT_EQ(users[i].memory, Bytes(users[i].memory.size(), poison)) << "flow " << i;
    }
  }

  NetworkCall call{};
  std::vector<Flow> flows;
  std::vector<UserMemory> users;
  std::vector<Bytes> contents;
  std::vector<UserMemory> own;  ///< destination of the local copy; at most one
  Bytes local_data;
  std::uint32_t slot_end[2] = {0, 0};  ///< end of what a slot holds: sent, and received

 private:
  Random random_;
};

inline std::uint64_t seen(const NetworkWords::Word& word) { return acquire_word(&word.value); }

/// A rank's device and host memory, and launches of its kernel.
class Rank {
 public:
  static constexpr std::uint32_t slot_bytes = 1 << 18;
  Rank() : memory_(network_bytes(slot_bytes) + alignof(NetworkWords), poison) {
    auto* const begin = memory_.data() + alignof(NetworkWords) -
                        reinterpret_cast<std::uintptr_t>(memory_.data()) % alignof(NetworkWords);
    words = new (begin) NetworkWords{};
    exchange.slots = begin + network_words_bytes;
    exchange.words = words;
    exchange.counts = &counts;
    exchange.slot_bytes = slot_bytes;
    exchange.ring.mailbox = &mailbox;
    exchange.ring.launch_counts = &launch_counts;
    exchange.ring.finished = &launch_counts.finished;
    exchange.ring.call = 7;
    exchange.ring.slow_ns = exchange.ring.timeout_ns = 1;  // the kernel must ignore deadlines
  }
  std::byte* slot(std::uint64_t round, bool sends) const {
    return exchange.slots + network_slot(round, sends, slot_bytes);
  }
  /// Runs a launch of all steps of the call.
  void run(const GivenCall& given, std::uint32_t blocks, std::uint32_t threads = 64) {
    run_steps(given, 0, steps_of(given.call), blocks, threads);
  }
  /// Runs a launch of some of the call's steps.
  void run_steps(const GivenCall& given, std::uint32_t first, std::uint32_t end, std::uint32_t blocks,
                 std::uint32_t threads = 64) {
    NetworkExchange argument = exchange;
    argument.first_step = first;
    argument.end_step = end;
    if (!given.own.empty() && first == 0) {
      argument.local_copy_to = given.own.front().data;
      argument.local_copy_from = given.local_data.data();
      argument.local_copy_bytes = static_cast<std::uint32_t>(given.local_data.size());
    }
    argument.call = given.call;
    argument.call.blocks = blocks;
    std::copy(given.flows.begin(), given.flows.end(), argument.flows);
    const std::uint32_t before = acquire_count(&launch_counts.finished);
    std::vector<std::jthread> running;
    for (std::uint32_t index = 0; index < blocks; ++index)
      running.emplace_back([&, index, seed = ++seed_] {
        testing::run_threads(threads, blocks, index, seed, [&] { network_exchange<>(argument); });
      });
    running.clear();
    EXPECT_EQ(launch_counts.finished, before + blocks);
    EXPECT_EQ(counts.blocks_done, 0u);
    EXPECT_TRUE(launch_counts.have_ended());
  }

  NetworkWords* words;
  NetworkCounts counts{};
  LaunchCounts launch_counts{};
  Mailbox mailbox{};
  NetworkExchange exchange{};

 private:
  Bytes memory_;
  std::uint32_t seed_ = 0;
};

/// A proxy that carries out the given calls, and checks what the kernel has written.
class Proxy {
 public:
  explicit Proxy(Rank& rank, bool is_slow = false) : rank_(rank), is_slow_(is_slow) {}
  void carry_out(const GivenCall& given, std::uint32_t blocks) { carry_out(given, blocks, given.call.rounds); }
  /// Carries out only the first `rounds` rounds.
  void carry_out(const GivenCall& given, std::uint32_t blocks, std::uint32_t rounds) {
    await(rank_.words->posted, ++calls_);
    expect_described(given, blocks);
    for (std::uint32_t round = 0; round < rounds; ++round) carry_out_round(given, blocks, round);
    delay();
    if (rounds == given.call.rounds) store_word(&rank_.words->calls_done.value, calls_);
  }

 private:
  void carry_out_round(const GivenCall& given, std::uint32_t blocks, std::uint32_t round) {
    for (std::uint32_t block = 0; block < blocks; ++block) {
      await(rank_.words->pushed[block], rounds_ + 1);
      EXPECT_LE(seen(rank_.words->pushed[block]), rounds_ + network_depth) << "of block " << block;
    }
    std::byte *const gone = rank_.slot(rounds_, true), *const comes = rank_.slot(rounds_, false);
    const Bytes sent = given.slot_in(round, true), received = given.slot_in(round, false);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), gone)) << "round " << round;
    std::fill(gone, gone + sent.size(), poison);
    std::copy(received.begin(), received.end(), comes);
    delay();
    store_word(&rank_.words->rounds_done.value, ++rounds_);
  }
  void expect_described(const GivenCall& given, std::uint32_t blocks) const {
    const NetworkWords::Description& described = rank_.words->description_of(calls_ - 1);
    const NetworkCall &call = described.call, &other = given.call;
    EXPECT_EQ(call.rounds, other.rounds);
    EXPECT_EQ(call.flow_count, other.flow_count);
    EXPECT_EQ(call.blocks, blocks);
    EXPECT_EQ(call.root, other.root);
    EXPECT_EQ(call.count, other.count);
    EXPECT_TRUE(call.among == other.among && call.collective == other.collective && call.type == other.type &&
                call.op == other.op && call.wire == other.wire && call.is_awaited == other.is_awaited);
    for (std::uint32_t i = 0; i < other.flow_count; ++i) {
      const Flow &a = described.flows[i], &b = given.flows[i];
      EXPECT_TRUE(a.data == b.data && a.bytes == b.bytes && a.piece_bytes == b.piece_bytes &&
                  a.slot_offset == b.slot_offset && a.depth == b.depth && a.block == b.block && a.peer == b.peer &&
                  a.type == b.type && a.sends == b.sends)
          << "flow " << i;
    }
  }
  void await(const NetworkWords::Word& word, std::uint64_t value) {
    delay();
    while (seen(word) < value) std::this_thread::yield();
  }
  void delay() {
    if (is_slow_ && random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000));
  }

  Rank& rank_;
  const bool is_slow_;
  Random random_;
  std::uint64_t calls_ = 0, rounds_ = 0;
};

}  // namespace strait::kernels
