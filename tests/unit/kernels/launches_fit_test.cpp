// Launches of all ranks of a random machine: they cut what travels between two ranks alike, and all fits into what
// there is of lanes, slots, threads and SMs.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "communicator/aggregates.hpp"
#include "communicator/device_calls.hpp"
#include "kernels/layout.hpp"
#include "kernels/piped.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

using kernels::ArenaKind;
using kernels::Exchange;
using kernels::Message;
using kernels::TwoHop;
using kernels::Wire;

constexpr std::size_t kb = 1 << 10, mb = 1 << 20;

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}

struct Machine {
  explicit Machine(Random& random)
      : kind(one_of(random, {ArenaKind::nvlink, ArenaKind::nvlink, ArenaKind::pcie, ArenaKind::host})),
        ranks(static_cast<std::uint32_t>(random() % 15 + 2)) {
    const auto layout = kernels::arena_layout(kind, ranks);
    std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
    ring.ranks = ring.averaged = ranks;
    ring.staged = kind == ArenaKind::host;
    ring.has_async_copies = kind == ArenaKind::nvlink && random() % 4 != 0;
    options.max_sms = one_of<std::uint32_t>(random, {0, 0, 0, static_cast<std::uint32_t>(random() % 200 + 1), no_sms});
    options.sms = one_of<std::uint32_t>(random, {0, 132, static_cast<std::uint32_t>(random() % 200 + 1)});
    if (random() % 8 == 0) options.most_blocks = std::max(options.sms / 2, 1u);
    options.flagged_bytes = one_of<std::optional<std::size_t>>(random, {{}, 0, 256 * kb, 16 * mb});
    options.piped_bytes = one_of<std::size_t>(random, {0, 64 * kb, 2 * mb, 2 * mb, ~std::size_t{0}});
    options.algorithm = one_of(random, {"", "", "one_hop", "two_hop"});
    options.exchange_gbps = one_of(random, {0.0, 4.0, 60.0});
  }
  DeviceCalls calls(std::uint32_t rank) const {
    kernels::Ring own = ring;
    own.rank = rank;
    return {own, nullptr, options};
  }
  std::string text() const {
    return std::to_string(static_cast<int>(kind)) + " " + std::to_string(ranks) + " ranks, max_sms " +
           std::to_string(options.max_sms) + ", sms " + std::to_string(options.sms) + ", most_blocks " +
           std::to_string(options.most_blocks) + ", piped_bytes " + std::to_string(options.piped_bytes);
  }

  ArenaKind kind;
  std::uint32_t ranks;
  kernels::Ring ring{};
  DeviceCalls::Options options;
};

/// Around borders, of any magnitude, and more than 32 bits count.
std::size_t random_bytes(Random& random) {
  const std::size_t power = std::size_t{1} << random() % 36;
  switch (random() % 4) {
    case 0:
      return std::max<std::size_t>(power + random() % 33, 17) - 16;
    case 1:
      return power + random() % power;
    case 2:
      return (power + random() % power) / 64 * 64 + 64;
    default:
      return (random() % 64 + 1) * one_of<std::size_t>(random, {mb, 12 * kb, 120, 480 * kb, 2 * mb, 16 * mb});
  }
}

std::byte* random_buffer(Random& random, DataType type) {
  const std::size_t misaligned_bytes = random() % 6 == 0 ? random() % 16 / size_bytes(type) * size_bytes(type) : 0;
  return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 40) + misaligned_bytes);
}

/// A slot holds so many of the bytes that a launch counts in.
std::size_t slot_units(const DeviceLaunch& launch, const kernels::Ring& ring) {
  const std::size_t bytes = ring.slots[static_cast<std::size_t>(launch.wire)].slot_bytes;
  if (launch.encoding != WireFormat::off)
    return bytes / wire::granular_run_bytes(launch.encoding) * wire::granular_run_elements;
  return bytes / kernels::piece_bytes * kernels::piece_data_bytes(launch.wire);
}

class Fits {
 public:
  Fits(const Machine& machine, std::uint32_t most_blocks) : machine_(machine), most_blocks_(most_blocks) {}
  void check(const DeviceLaunch& launch) const {
    std::visit([&](const auto& argument) { check(launch, argument); }, launch.argument);
  }

 private:
  void check(const DeviceLaunch& launch, const Exchange& exchange) const {
    check_shape(launch, exchange.width);
    for (std::uint32_t peer = 0; peer < machine_.ranks; ++peer)
      for (const Message* message : {&exchange.send[peer], &exchange.receive[peer]})
        if (message->bytes != 0)
          check_parts(launch, *message, exchange.width, exchange.rounds, exchange.pieces, exchange.lead);
  }
  void check(const DeviceLaunch& launch, const TwoHop& two_hop) const {
    check_shape(launch, two_hop.width);
    const Message slice{nullptr, std::min(two_hop.slice_bytes, two_hop.bytes), two_hop.chunk_bytes, two_hop.lanes, 0};
    check_parts(launch, slice, two_hop.width, two_hop.rounds, two_hop.pieces, 1);
    const auto owners = static_cast<std::size_t>(std::popcount(two_hop.owners));
    EXPECT_GE(owners * two_hop.slice_bytes, two_hop.bytes);
  }
  void check_shape(const DeviceLaunch& launch, std::uint32_t width) const {
    EXPECT_LE(launch.blocks * width, kernels::max_lanes) << "lanes have counters";
    EXPECT_TRUE(width >= 1 && width <= kernels::max_width) << width;
    EXPECT_TRUE(width == 1 || launch.wire == Wire::bulk);
    EXPECT_GE(launch.blocks, 1u);
    EXPECT_LE(launch.blocks, most_blocks_);
    EXPECT_EQ(launch.threads % 32, 0u);
    EXPECT_GE(launch.threads, machine_.ranks * width) << "a thread for each rank on each lane";
    if (launch.piped) {
      EXPECT_EQ(launch.threads, kernels::piped_threads);
      EXPECT_TRUE(launch.wire == Wire::bulk && machine_.ring.has_async_copies && !launch.apart);
    } else {
      EXPECT_LE(launch.threads, kernels::max_threads);
    }
  }
  void check_parts(const DeviceLaunch& launch, const Message& message, std::uint32_t width, std::uint32_t rounds,
                   std::uint32_t pieces, std::uint32_t lead) const {
    EXPECT_GE(launch.blocks * width, message.lanes);
    EXPECT_LE(message.lanes, machine_.ring.slots[static_cast<std::size_t>(launch.wire)].lanes);
    EXPECT_TRUE(message.chunk_bytes != 0 && message.chunk_bytes <= slot_units(launch, machine_.ring));
    EXPECT_EQ(message.chunk_bytes % 16, 0u);
    EXPECT_GE(std::size_t{rounds} * message.lanes * message.chunk_bytes, message.bytes);
    EXPECT_EQ(chunk_at(message, 0, rounds).bytes, 0u);
    EXPECT_GE(std::size_t{pieces} * kernels::piece_data_bytes(launch.wire),
              std::min<std::size_t>(message.bytes, message.chunk_bytes));
    EXPECT_LT(lead, kernels::slot_depth);
    // Warps count what they have done in 32 bits.
    EXPECT_LT(std::uint64_t{rounds + 1} * width * machine_.ranks, std::uint64_t{1} << 32);
  }

  const Machine& machine_;
  std::uint32_t most_blocks_;
};

/// Blocks at most that a call may have.
std::uint32_t most_blocks(const Machine& machine, std::uint32_t of_call, bool adds) {
  const std::uint32_t asked = blocks_of(of_call != 0 ? of_call : machine.options.max_sms, adds);
  std::uint32_t most = asked != 0 ? asked : kernels::max_lanes;
  if (machine.options.most_blocks != 0) most = std::min(most, machine.options.most_blocks);
  if (machine.options.sms != 0 && asked != 0) most = std::min(most, machine.options.sms);
  if (machine.options.sms != 0 && machine.options.most_blocks == 0) most = std::min(most, machine.options.sms);
  return most;
}

/// What travels, apart from where it lies.
auto cut_of(Wire wire, const Message& message) {
  return std::tuple(wire, message.bytes, message.chunk_bytes, message.lanes, message.call_hash);
}
auto cut_of(const TwoHop& two_hop) {
  return std::tuple(two_hop.bytes, two_hop.slice_bytes, two_hop.chunk_bytes, two_hop.lanes, two_hop.call_hash,
                    two_hop.pieces, two_hop.rounds, two_hop.contributors, two_hop.owners, two_hop.receivers,
                    two_hop.results);
}

/// All that ranks send, in the order of their launches, is what their peers take.
class Alike {
 public:
  void add(std::uint32_t rank, const std::vector<DeviceLaunch>& launches) {
    for (const DeviceLaunch& launch : launches)
      std::visit([&](const auto& call) { add(rank, launch, call); }, launch.argument);
  }
  void check() {
    EXPECT_TRUE(two_hops_.empty() || ends_.empty()) << "some in one hop, others in two";
    for (const auto& two_hop : two_hops_) EXPECT_EQ(two_hop, two_hops_.front());
    for (auto& [ranks, ends] : ends_)
      EXPECT_EQ(ends.sent, ends.taken) << "from " << ranks.first << " to " << ranks.second;
  }

 private:
  void add(std::uint32_t rank, const DeviceLaunch& launch, const Exchange& exchange) {
    for (std::uint32_t peer = 0; peer < exchange.ring.ranks; ++peer) {
      if (peer == rank) continue;
      if (exchange.send[peer].bytes != 0)
        ends_[{rank, peer}].sent.push_back(cut(launch, exchange, exchange.send[peer]));
      if (exchange.receive[peer].bytes != 0)
        ends_[{peer, rank}].taken.push_back(cut(launch, exchange, exchange.receive[peer]));
    }
  }
  void add(std::uint32_t /*rank*/, const DeviceLaunch& launch, const TwoHop& two_hop) {
    two_hops_.emplace_back(launch.wire, launch.encoding, cut_of(two_hop));
  }
  using Cut = std::tuple<decltype(cut_of({}, Message{})), kernels::Cast, WireFormat>;
  static Cut cut(const DeviceLaunch& launch, const Exchange& exchange, const Message& message) {
    return {cut_of(launch.wire, message), exchange.cast, launch.encoding};
  }
  struct Ends {
    std::vector<Cut> sent, taken;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Ends> ends_;
  std::vector<std::tuple<Wire, WireFormat, decltype(cut_of(TwoHop{}))>> two_hops_;
};

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter,    Collective::barrier};

Call random_call(Random& random, const Machine& machine) {
  Call call;
  call.collective = collectives[random() % std::size(collectives)];
  call.type = static_cast<DataType>(random() % data_type_count);
  call.op = static_cast<ReduceOp>(random() % reduce_op_count);
  call.root = static_cast<std::uint32_t>(random() % machine.ranks);
  call.count = random_bytes(random) / size_bytes(call.type);
  if (random() % 4 == 0)
    call.max_sms = one_of<std::uint32_t>(random, {static_cast<std::uint32_t>(random() % 200 + 1), no_sms});
  return call;
}

TEST(Launches, OfCollectivesFitAndAreAlike) {
  std::size_t piped = 0, two_hops = 0, staggered = 0;
  for (std::uint64_t seed = 0; seed < 60'000; ++seed) {
    Random random(seed);
    const Machine machine(random);
    Call call = random_call(random, machine);
    const Fits fits(machine, most_blocks(machine, call.max_sms, is_reduction(call.collective)));
    Alike alike;
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      call.send = random_buffer(random, call.type);
      call.receive = random() % 2 == 0 ? const_cast<void*>(call.send) : random_buffer(random, call.type);
      const auto launches = machine.calls(rank).launches_of(call);
      for (const DeviceLaunch& launch : launches) {
        fits.check(launch);
        piped += launch.piped ? 1 : 0;
        const auto* two_hop = std::get_if<TwoHop>(&launch.argument);
        two_hops += two_hop != nullptr ? 1 : 0;
        staggered += two_hop != nullptr && two_hop->stagger_ns != 0 ? 1 : 0;
      }
      alike.add(rank, launches);
    }
    alike.check();
    if (HasFailure())
      FAIL() << "seed " << seed << ": " << machine.text() << "; " << name(call.collective) << " of " << call.count
             << " " << name(call.type) << ", max_sms " << call.max_sms;
  }
  EXPECT_GT(piped, 20'000u);
  EXPECT_GT(two_hops, 20'000u);
  EXPECT_GT(staggered, 1'000u);
}

TEST(Launches, OfEncodedCollectivesFitAndAreAlike) {
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    Random random(seed);
    const Machine machine(random);
    Call call = random_call(random, machine);
    call.collective = collectives[random() % 4];
    call.type = one_of(random, {DataType::float32, DataType::bfloat16, DataType::float16});
    call.wire = one_of(random, {WireFormat::int8, WireFormat::fp8, WireFormat::int4});
    const Fits fits(machine, most_blocks(machine, call.max_sms, is_reduction(call.collective)));
    Alike alike;
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      call.send = random_buffer(random, call.type);
      call.receive = random() % 2 == 0 ? const_cast<void*>(call.send) : random_buffer(random, call.type);
      const auto launches = machine.calls(rank).encoded_launches_of(call);
      for (const DeviceLaunch& launch : launches) fits.check(launch);
      alike.add(rank, launches);
    }
    alike.check();
    if (HasFailure())
      FAIL() << "seed " << seed << ": " << machine.text() << "; " << name(call.collective) << " of " << call.count
             << " " << name(call.type) << ", max_sms " << call.max_sms;
  }
}

TEST(Launches, OfMessagesFitAndAreAlike) {
  std::size_t piped = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    const Machine machine(random);
    const Fits fits(machine, most_blocks(machine, 0, false));
    std::vector<std::size_t> lengths{0};
    for (int i = 0; i < 3; ++i) lengths.push_back(random_bytes(random));
    Messages messages = random_messages(random, machine.ranks, lengths);
    if (random() % 2 == 0)  // a ring
      for (std::size_t number = 0; number < messages.size(); ++number) {
        messages[number].from = static_cast<std::uint32_t>(number % machine.ranks);
        messages[number].to = static_cast<std::uint32_t>((number + 1) % machine.ranks);
      }
    Alike alike;
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      const auto buffer_of = [&](std::size_t, bool) { return random_buffer(random, DataType::uint8); };
      const auto launches = machine.calls(rank).launches_of(calls_of(messages, rank, random, buffer_of));
      for (const DeviceLaunch& launch : launches) {
        fits.check(launch);
        piped += launch.piped ? 1 : 0;
        apart += launch.apart ? 1 : 0;
      }
      alike.add(rank, launches);
    }
    alike.check();
    if (HasFailure()) FAIL() << "seed " << seed << ": " << machine.text();
  }
  EXPECT_GT(piped, 1'000u);
  EXPECT_GT(apart, 1'000u);
}

TEST(Launches, OfAllToAllVFitAndAreAlike) {
  for (std::uint64_t seed = 0; seed < 6'000; ++seed) {
    Random random(seed);
    const Machine machine(random);
    const Fits fits(machine, most_blocks(machine, 0, false));
    std::vector<std::vector<std::size_t>> bytes(machine.ranks, std::vector<std::size_t>(machine.ranks));
    for (auto& row : bytes)
      for (std::size_t& each : row) each = random() % 4 == 0 ? 0 : random_bytes(random);
    Alike alike;
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      Call call;
      call.collective = Collective::all_to_all_v;
      call.send = random_buffer(random, DataType::uint8);
      call.receive = random_buffer(random, DataType::uint8);
      std::size_t sent = 0, received = 0;
      for (std::uint32_t peer = 0; peer < machine.ranks; ++peer) {
        call.send_counts.push_back(bytes[rank][peer]);
        call.send_offsets.push_back(std::exchange(sent, sent + bytes[rank][peer]));
        call.receive_counts.push_back(bytes[peer][rank]);
        call.receive_offsets.push_back(std::exchange(received, received + bytes[peer][rank]));
      }
      const auto launches = machine.calls(rank).launches_of(call);
      for (const DeviceLaunch& launch : launches) fits.check(launch);
      alike.add(rank, launches);
    }
    alike.check();
    if (HasFailure()) FAIL() << "seed " << seed << ": " << machine.text();
  }
}

}  // namespace
}  // namespace strait::testing
