// Sends and receives through host memory, by the kernel of src/kernels on the CPU, and a host that exchanges pieces in
// any order. The first include replaces CUDA's headers.
#include "support/emulated_gpu.hpp"
//
#include "kernels/network_messages.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "support/random_data.hpp"

namespace strait::testing {
namespace {

using kernels::Flow;
using kernels::NetworkExchange;
using Random = std::mt19937;
using Clock = std::chrono::steady_clock;

constexpr std::byte guard{0xa5};
constexpr std::size_t slots_bytes = 1 << 20;
constexpr std::chrono::seconds stalled(120);

std::size_t any_of(Random& random, std::size_t least, std::size_t most) {
  return least + random() % (most - least + 1);
}

/// A flow, as a test asks for it.
struct Shape {
  bool sends;
  std::size_t bytes;
  std::uint32_t piece_bytes;
  std::uint8_t depth;
  std::size_t shift = 0;  ///< distance of the user's data from a multiple of 16
  bool late = false;      ///< the host exchanges none of its pieces until all others have ended
};
using Shapes = std::vector<Shape>;

Shape any_shape(Random& random, std::size_t most_piece_bytes = 700) {
  const auto depth = std::array<std::uint8_t, 3>{1, 2, 4}[random() % 3];
  const auto piece_bytes = static_cast<std::uint32_t>(any_of(random, 1, most_piece_bytes / 16) * 16);
  const std::size_t pieces = any_of(random, 1, 3 * depth + std::size_t{1});
  const std::size_t last = random() % 4 == 0 ? piece_bytes : any_of(random, 1, piece_bytes);
  return {random() % 2 == 0, (pieces - 1) * piece_bytes + last, piece_bytes, depth, random() % 16, false};
}
Shapes any_shapes(Random& random, std::size_t count) {
  Shapes shapes(count);
  std::generate(shapes.begin(), shapes.end(), [&] { return any_shape(random); });
  return shapes;
}

/// The user's memory of a call: each flow's data between guards. (`new` returns multiples of 16.)
class UserMemory {
 public:
  UserMemory(const Shapes& shapes, std::uint32_t seed) {
    std::size_t end = 64;
    for (const Shape& shape : shapes) {
      begins_.push_back(end + shape.shift);
      end = (begins_.back() + shape.bytes + 15) / 16 * 16 + seed % 3 * 16;
    }
    memory_.assign(end + 128, guard);
    expected_ = memory_;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      data_.push_back(random_elements(DataType::uint8, shapes[i].bytes, seed * 1000 + i));
      std::copy(data_[i].begin(), data_[i].end(), expected_.begin() + difference(i));
      if (shapes[i].sends) std::copy(data_[i].begin(), data_[i].end(), memory_.begin() + difference(i));
    }
  }
  std::byte* data(std::size_t flow) { return memory_.data() + begins_[flow]; }
  /// Returns the data that the flow must carry.
  const std::byte* carried(std::size_t flow) const { return data_[flow].data(); }
  const Bytes& contents() const { return memory_; }
  void verify() const { EXPECT_TRUE(memory_ == expected_); }

 private:
  std::ptrdiff_t difference(std::size_t flow) const { return static_cast<std::ptrdiff_t>(begins_[flow]); }
  std::vector<std::size_t> begins_;
  std::vector<Bytes> data_;
  Bytes memory_, expected_;
};

/// A call: its launch's argument, and what the launch must do.
struct Exchanged {
  NetworkExchange argument{};
  std::unique_ptr<UserMemory> user;
  Shapes shapes;
  std::uint32_t threads;
};

/// How the host behaves.
struct Manner {
  std::uint32_t seed = 1;
  std::chrono::microseconds longest_pause{0};  ///< before each step
  std::size_t steps = ~std::size_t{0};         ///< after so many it raises `abort`
};

/// A rank's GPU and host, whose state persists from call to call.
class Network {
 public:
  Network() : slots_(slots_bytes / 16), expected_slots_(slots_bytes, guard) {
    std::fill_n(slots(), slots_bytes, guard);
  }
  Exchanged call(const Shapes& shapes, std::uint32_t blocks, std::uint32_t threads, std::uint32_t seed) {
    Exchanged all{.user = std::make_unique<UserMemory>(shapes, seed), .shapes = shapes, .threads = threads};
    NetworkExchange& argument = all.argument;
    argument.ring.mailbox = &mailbox_;
    argument.ring.slow_ns = kernels::never_slow_ns;
    argument.ring.launch_counts = &launch_counts_;
    argument.ring.finished = &launch_counts_.finished;
    argument.ring.call = seed;
    argument.ring.is_message = true;
    argument.ring.ranks = 1;
    argument.words = words_.get();
    argument.slots = slots();
    argument.counts = &counts_;
    argument.call = {.flow_count = static_cast<std::uint32_t>(shapes.size()),
                     .blocks = blocks,
                     .among = kernels::NetworkCall::Among::all,
                     .collective = Collective::send_recv,
                     .is_awaited = std::any_of(shapes.begin(), shapes.end(), [](auto& each) { return !each.sends; })};
    std::size_t slot_offset = seed % 5 * 16;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const Shape& shape = shapes[i];
      argument.flows[i] = {.data = all.user->data(i),
                           .bytes = shape.bytes,
                           .piece_bytes = shape.piece_bytes,
                           .slot_offset = static_cast<std::uint32_t>(slot_offset),
                           .depth = shape.depth,
                           .peer = static_cast<std::uint16_t>(seed + i),
                           .type = DataType::uint8,
                           .sends = shape.sends};
      slot_offset += std::size_t{shape.depth} * shape.piece_bytes + (seed + i) % 3 * 16;
    }
    EXPECT_LE(slot_offset, slots_bytes);
    return all;
  }

  /// Runs the calls of a stream one after another, each as soon as the GPU is done with the one before.
  void run(const std::vector<Exchanged>& calls, const Manner& manner = {}) { run_from(0, calls, manner); }
  /// Does so when the GPU is done with the first call, of which the host has not seen anything.
  void run_after_first(const std::vector<Exchanged>& calls, const Manner& manner) { run_from(1, calls, manner); }
  void run(const Shapes& shapes, std::uint32_t blocks, std::uint32_t threads, const Manner& manner = {}) {
    std::vector<Exchanged> calls;
    calls.push_back(call(shapes, blocks, threads, manner.seed));
    run(calls, manner);
  }
  /// Runs a launch whose host does nothing.
  void launch(const Exchanged& what, std::uint32_t seed) {
    const std::uint32_t blocks = what.argument.call.blocks;
    {
      std::vector<std::jthread> running;
      for (std::uint32_t index = 0; index < blocks; ++index)
        running.emplace_back([&, index] {
          run_threads(what.threads, blocks, index, seed * 16 + index,
                      [&] { kernels::network_messages(what.argument); });
        });
    }
    EXPECT_TRUE(std::as_const(launch_counts_).have_ended());
  }

  std::uint64_t posted() const { return load(words_->posted); }
  const kernels::NetworkWords& words() const { return *words_; }
  const kernels::NetworkCounts& counts() const { return counts_; }
  kernels::Mailbox& mailbox() { return mailbox_; }

 private:
  /// A flow, from the host's point of view.
  struct Trade {
    std::size_t place;
    const Flow* flow;
    const std::byte* carried;
    std::uint64_t before;
    bool late;
    std::uint32_t total;
    std::uint32_t done = 0;  ///< number of pieces that the host has sent or delivered
    bool has_ended() const { return done == total; }
  };
  static std::uint64_t load(const kernels::NetworkWords::Word& word) { return kernels::acquire_word(&word.value); }
  std::byte* slots() { return reinterpret_cast<std::byte*>(slots_.data()); }

  void run_from(std::size_t first, const std::vector<Exchanged>& calls, const Manner& manner) {
    {
      const std::jthread host([&] { serve(calls, manner); });
      for (std::size_t i = first; i < calls.size(); ++i) launch(calls[i], manner.seed + static_cast<std::uint32_t>(i));
    }
    if (counts_.gave_up != 0) return;
    for (const Exchanged& each : calls) each.user->verify();
    EXPECT_TRUE(std::equal(expected_slots_.begin(), expected_slots_.end(), slots())) << "written where nothing goes";
    EXPECT_EQ(counts_.calls, posted());
    EXPECT_EQ(counts_.blocks_done, 0u);
    EXPECT_EQ(launch_counts_.started.messages & 0xffffffff, calls.back().argument.ring.call);
    for (std::size_t place = 0; place < kernels::max_flows; ++place) {
      EXPECT_EQ(counts_.pieces[place], before_[place]) << place;
      EXPECT_EQ(load(words_->moved[place]), before_[place]) << place;
    }
  }
  void serve(const std::vector<Exchanged>& calls, Manner manner) {
    Random random(manner.seed);
    for (const Exchanged& call : calls) {
      const Clock::time_point end = Clock::now() + stalled;
      const std::uint64_t number = ++served_;
      while (posted() < number && Clock::now() < end) std::this_thread::yield();
      EXPECT_EQ(posted(), number);
      expect_described(call.argument);
      std::vector<Trade> trades;
      for (std::size_t i = 0; i < call.shapes.size(); ++i) {
        const Flow& flow = call.argument.flows[i];
        trades.push_back({i, &flow, call.user->carried(i), before_[i], call.shapes[i].late, kernels::pieces_of(flow)});
      }
      if (!trade(trades, manner, random, end)) {
        std::atomic_ref(mailbox_.abort) = 1;
        return;
      }
      for (std::size_t i = 0; i < trades.size(); ++i) before_[i] += trades[i].total;
      kernels::store_word(&words_->calls_done.value, number);
    }
  }
  void expect_described(const NetworkExchange& meant) const {
    const kernels::NetworkWords::Description& described = words_->description_of(served_ - 1);
    const auto all = [](const kernels::NetworkCall& call) {
      return std::tuple(call.rounds, call.flow_count, call.blocks, call.root, call.count, call.among, call.collective,
                        call.type, call.op, call.wire, call.is_awaited);
    };
    EXPECT_EQ(all(described.call), all(meant.call));
    EXPECT_EQ(std::memcmp(described.flows, meant.flows, meant.call.flow_count * sizeof(Flow)), 0);
  }
  /// Exchanges pieces until all flows have ended. Returns false if `manner.steps` are used up before.
  bool trade(std::vector<Trade>& trades, Manner& manner, Random& random, Clock::time_point end) {
    const auto is_over = [](const Trade& each) { return each.has_ended(); };
    const auto is_over_or_late = [](const Trade& each) { return each.has_ended() || each.late; };
    while (!std::all_of(trades.begin(), trades.end(), is_over)) {
      const bool late_ones_too = std::all_of(trades.begin(), trades.end(), is_over_or_late);
      Trade& one = trades[random() % trades.size()];
      if (manner.steps == 0) return false;
      if ((!one.late || late_ones_too) && step(one, random)) {
        --manner.steps;
        if (manner.longest_pause.count() != 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % manner.longest_pause.count()));
      } else {
        std::this_thread::yield();
      }
      if (Clock::now() < end) continue;
      ADD_FAILURE() << "stalled";
      return false;
    }
    return true;
  }
  /// Sends or delivers some of the pieces that can be moved now. Returns false if there are none.
  bool step(Trade& one, Random& random) {
    const Flow& flow = *one.flow;
    const std::uint64_t moved = load(words_->moved[one.place]) - one.before;  // may include pieces of the next launch
    const auto may =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(moved + (flow.sends ? 0 : flow.depth), one.total));
    if (may == one.done) return false;
    for (const std::size_t until = any_of(random, one.done + 1, may); one.done < until; ++one.done) {
      const kernels::Chunk piece = kernels::piece_of(flow, one.done);
      const std::size_t at = flow.slot_offset + std::size_t{one.done % flow.depth} * flow.piece_bytes;
      const std::byte* const from = one.carried + piece.offset;
      if (flow.sends)
        EXPECT_TRUE(std::equal(from, from + piece.bytes, slots() + at)) << one.place << ", piece " << one.done;
      else
        std::copy_n(from, piece.bytes, slots() + at);
      std::copy_n(from, piece.bytes, expected_slots_.data() + at);
    }
    kernels::store_word(&words_->ready[one.place].value, one.before + one.done);
    return true;
  }

  std::vector<kernels::Granule> slots_;
  Bytes expected_slots_;
  std::unique_ptr<kernels::NetworkWords> words_ = std::make_unique<kernels::NetworkWords>();
  kernels::NetworkCounts counts_{};
  kernels::LaunchCounts launch_counts_{};
  kernels::Mailbox mailbox_{};
  // State of the host.
  std::uint64_t served_ = 0;
  std::array<std::uint64_t, kernels::max_flows> before_{};
};

class NetworkMessages : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::uint32_t blocks() const { return GetParam(); }
  std::size_t most_flows() const { return std::min<std::size_t>(kernels::max_flows, std::size_t{32} * blocks()); }
  Network network_;
};
INSTANTIATE_TEST_SUITE_P(Blocks, NetworkMessages, ::testing::Values(1u, 2u, 3u, 4u),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(NetworkMessages, GoThroughRingsOfAllDepths) {
  std::uint32_t seed = 0;
  for (const std::uint8_t depth : {1, 2, 4})
    for (const std::uint32_t piece_bytes : {16u, 528u, 1024u}) {
      Shapes shapes;
      for (std::size_t pieces = 1; pieces <= 3 * depth + std::size_t{1}; ++pieces)
        for (const bool sends : {true, false})
          shapes.push_back({sends, pieces * piece_bytes - (seed + pieces) % 3, piece_bytes, depth, pieces % 2 * 3});
      network_.run(shapes, blocks(), 64, {.seed = ++seed});
    }
}

TEST_P(NetworkMessages, BeginAnywhere) {
  std::uint32_t seed = 0;
  for (const std::size_t bytes : {1, 15, 16, 17, 48, 63, 600, 1111}) {
    Shapes shapes;
    for (std::size_t shift = 0; shift < 16; ++shift)
      for (const bool sends : {true, false}) shapes.push_back({sends, bytes, 48 + 16 * (seed % 9), 2, shift});
    network_.run(shapes, blocks(), 64, {.seed = ++seed});
  }
}

TEST_P(NetworkMessages, AreAsManyAsArgumentsHaveRoomFor) {
  std::uint32_t seed = 0;
  for (const std::uint32_t threads : {32u, 96u, kernels::max_threads}) {
    Random random(++seed);
    for (const std::size_t count : {std::size_t{1}, any_of(random, 2, most_flows()), most_flows()})
      network_.run(any_shapes(random, count), blocks(), threads, {.seed = ++seed});
  }
}

/// No flow waits for another, even if one block has them all.
TEST_P(NetworkMessages, WaitForNoOther) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    Shapes shapes = any_shapes(random, any_of(random, 2, 20));
    for (Shape& shape : shapes) shape.late = random() % 2 == 0;
    shapes[0].late = true;
    shapes[0].sends = seed % 2 == 0;
    shapes.back().late = false;
    network_.run(shapes, blocks(), 64, {.seed = seed});
  }
}

/// Nothing is reset between calls, and the same place may be used in the other direction, by another ring.
TEST_P(NetworkMessages, FollowOneAnother) {
  Random random(7);
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    std::vector<Exchanged> calls;
    for (std::uint32_t i = 0; i < 8; ++i)
      calls.push_back(network_.call(any_shapes(random, any_of(random, 1, 12)), blocks(), 64, seed * 100 + i));
    network_.run(calls, {.seed = seed});
  }
  EXPECT_EQ(network_.posted(), 24u);
}

/// Calls that only send end while there is room in their rings, and later data waits until the host has sent theirs.
TEST_P(NetworkMessages, EndOnceAllIsInRings) {
  const Shapes sends(4, {true, 640, 320, 2, 3});
  std::vector<Exchanged> calls;
  for (std::uint32_t i = 0; i < 3; ++i) calls.push_back(network_.call(sends, blocks(), 64, 50 + i));
  network_.launch(calls[0], 1);
  EXPECT_EQ(network_.posted(), 1u);
  EXPECT_EQ(network_.counts().calls, 1u);
  network_.run_after_first(calls, {.seed = 5, .longest_pause = std::chrono::milliseconds(10)});
}

TEST_P(NetworkMessages, HaveTimeForASlowHost) {
  Random random(3);
  network_.run(any_shapes(random, 6), blocks(), 64, {.seed = 3, .longest_pause = std::chrono::milliseconds(10)});
}

/// The kernel is aborted at once, or when the host has exchanged a part.
TEST_P(NetworkMessages, GiveUpWhenTheyAreToldTo) {
  for (const std::size_t steps : {0, 10}) {
    Network network;
    Shapes shapes;
    for (int i = 0; i < 8; ++i) shapes.push_back({i % 2 == 0, 4000, 320, 4});
    network.run(shapes, blocks(), 64, {.steps = steps});
    EXPECT_EQ(network.posted(), 1u);
    EXPECT_NE(network.counts().gave_up, 0u);
    EXPECT_EQ(network.counts().calls, 0u);
    EXPECT_NE(network.mailbox().aborted, 0u);

    network.mailbox() = {};
    Random random(5);
    const Exchanged later = network.call(any_shapes(random, 5), blocks(), 64, 5);
    const Bytes untouched = later.user->contents();
    network.launch(later, 5);
    EXPECT_EQ(network.posted(), 1u) << "the host would go on";
    EXPECT_EQ(network.words().descriptions[0].call.flow_count, shapes.size());
    EXPECT_EQ(network.words().descriptions[1].call.flow_count, 0u);
    EXPECT_EQ(later.user->contents(), untouched);
  }
}

}  // namespace
}  // namespace strait::testing
