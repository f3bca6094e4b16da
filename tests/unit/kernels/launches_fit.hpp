#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/layout.hpp"
#include "kernels/piped.hpp"
#include "launches/device_calls.hpp"
#include "support/random_messages.hpp"

/// Checks of the launches of all ranks: they must cut what travels between two ranks alike, and everything must fit
/// into the available lanes, slots, threads and SMs.
namespace strait::testing {

using kernels::ArenaKind;
using kernels::Exchange;
using kernels::Message;
using kernels::Protocol;
using kernels::TwoHop;

constexpr std::size_t kb = 1 << 10, mb = 1 << 20;

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return *(values.begin() + random() % values.size());
}

/// A random machine: what its ranks have, and their options.
struct RandomMachine {
  explicit RandomMachine(Random& random)
      : RandomMachine(random, one_of(random, {ArenaKind::nvlink, ArenaKind::nvlink, ArenaKind::pcie, ArenaKind::host}),
                      static_cast<std::uint32_t>(random() % 15 + 2)) {}
  RandomMachine(Random& random, ArenaKind of_kind, std::uint32_t of_ranks) : kind(of_kind), ranks(of_ranks) {
    const auto layout = kernels::arena_layout(kind, ranks);
    std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
    ring.ranks = ring.averaged = ranks;
    ring.staged = kind == ArenaKind::host;
    ring.has_async_copies = kind == ArenaKind::nvlink && random() % 4 != 0;
    const auto any_blocks = static_cast<std::uint32_t>(random() % 200 + 1);
    options.max_sms = one_of(random, {0u, 0u, 0u, any_blocks, no_sms});
    options.sms = one_of(random, {0u, 132u, static_cast<std::uint32_t>(random() % 200 + 1)});
    if (random() % 8 == 0) options.most_blocks = std::max(options.sms / 2, 1u);
    options.flagged_bytes = one_of<std::optional<std::size_t>>(random, {{}, 0, 256 * kb, 16 * mb});
    options.piped_unit_bytes = one_of(random, {0 * mb, 64 * kb, 2 * mb, 2 * mb, ~std::size_t{0}});
    options.hops = one_of(random, {Hops::chosen, Hops::chosen, Hops::one, Hops::two});
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
           std::to_string(options.most_blocks) + ", piped_bytes " + std::to_string(options.piped_unit_bytes);
  }

  ArenaKind kind;
  std::uint32_t ranks;
  kernels::Ring ring{};
  DeviceCalls::Options options;
};

/// Returns a length near a border, or of any magnitude, including lengths beyond 32 bits.
inline std::size_t random_bytes(Random& random) {
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

inline std::byte* random_buffer(Random& random, DataType type) {
  const std::size_t misaligned_bytes = random() % 6 == 0 ? random() % 16 / size_bytes(type) * size_bytes(type) : 0;
  return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 40) + misaligned_bytes);
}

/// Returns how much a slot holds, in the unit in which a launch counts (bytes, or elements if it encodes).
inline std::size_t slot_units(const DeviceLaunch& launch, const kernels::Ring& ring) {
  const std::size_t bytes = ring.slots[static_cast<std::size_t>(launch.protocol)].slot_bytes;
  if (launch.encoding != WireFormat::off)
    return bytes / wire::granular_run_bytes(launch.encoding) * wire::granular_run_elements;
  return bytes / kernels::piece_bytes * kernels::piece_data_bytes(launch.protocol);
}

class Fits {
 public:
  Fits(const RandomMachine& machine, std::uint32_t most_blocks) : machine_(machine), most_blocks_(most_blocks) {}
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
    check_slices(two_hop);
  }
  /// Checks that each owner has a slice, that slices cover all bytes, and that the last slice is not longer than
  /// others.
  static void check_slices(const TwoHop& two_hop) {
    const auto owners = static_cast<std::size_t>(std::popcount(two_hop.owners));
    EXPECT_GE(owners * two_hop.slice_bytes, two_hop.bytes);
    EXPECT_EQ(two_hop.first_owners & ~two_hop.owners, 0u);
    EXPECT_LE(std::popcount(two_hop.owners & ~two_hop.first_owners), 1);
    const std::size_t before = std::min((owners - 1) * two_hop.slice_bytes, two_hop.bytes);
    EXPECT_LE(two_hop.bytes - before, two_hop.slice_bytes);
  }
  void check_shape(const DeviceLaunch& launch, std::uint32_t width) const {
    EXPECT_LE(launch.blocks * width, kernels::max_lanes) << "lanes have counters";
    EXPECT_TRUE(width >= 1 && width <= kernels::max_width) << width;
    EXPECT_TRUE(width == 1 || launch.protocol == Protocol::bulk);
    EXPECT_GE(launch.blocks, 1u);
    EXPECT_LE(launch.blocks, most_blocks_);
    EXPECT_EQ(launch.threads % 32, 0u);
    EXPECT_GE(launch.threads, machine_.ranks * width) << "a thread for each rank on each lane";
    if (launch.piped) {
      EXPECT_EQ(launch.threads, kernels::piped_threads);
      EXPECT_TRUE(launch.protocol == Protocol::bulk && machine_.ring.has_async_copies && !launch.independent);
    } else {
      EXPECT_LE(launch.threads, kernels::max_threads);
    }
  }
  void check_parts(const DeviceLaunch& launch, const Message& message, std::uint32_t width, std::uint32_t rounds,
                   std::uint32_t pieces, std::uint32_t lead) const {
    EXPECT_GE(launch.blocks * width, message.lanes);
    EXPECT_LE(message.lanes, machine_.ring.slots[static_cast<std::size_t>(launch.protocol)].lanes);
    EXPECT_TRUE(message.chunk_bytes != 0 && message.chunk_bytes <= slot_units(launch, machine_.ring));
    EXPECT_EQ(message.chunk_bytes % 16, 0u);
    EXPECT_GE(std::size_t{rounds} * message.lanes * message.chunk_bytes, message.bytes);
    EXPECT_EQ(chunk_at(message, 0, rounds).bytes, 0u);
    EXPECT_GE(std::size_t{pieces} * kernels::piece_data_bytes(launch.protocol),
              std::min<std::size_t>(message.bytes, message.chunk_bytes));
    EXPECT_LT(lead, kernels::slot_depth);
    // Warps count their work in 32 bits.
    EXPECT_LT(std::uint64_t{rounds + 1} * width * machine_.ranks, std::uint64_t{1} << 32);
  }

  const RandomMachine& machine_;
  std::uint32_t most_blocks_;
};

/// Returns the largest number of blocks that a call may have.
inline std::uint32_t most_blocks(const RandomMachine& machine, std::uint32_t of_call, bool adds) {
  const std::uint32_t asked = blocks_of(of_call != 0 ? of_call : machine.options.max_sms, adds);
  std::uint32_t most = asked != 0 ? asked : kernels::max_lanes;
  if (machine.options.most_blocks != 0) most = std::min(most, machine.options.most_blocks);
  if (machine.options.sms != 0 && asked != 0) most = std::min(most, machine.options.sms);
  if (machine.options.sms != 0 && machine.options.most_blocks == 0) most = std::min(most, machine.options.sms);
  return most;
}

/// Returns how data is cut, regardless of where it is.
inline auto cut_of(Protocol protocol, const Message& message) {
  return std::tuple(protocol, message.bytes, message.chunk_bytes, message.lanes, message.call_hash);
}
inline auto cut_of(const TwoHop& two_hop) {
  return std::tuple(two_hop.bytes, two_hop.slice_bytes, two_hop.chunk_bytes, two_hop.lanes, two_hop.call_hash,
                    two_hop.pieces, two_hop.rounds, two_hop.contributors, two_hop.owners, two_hop.first_owners,
                    two_hop.receivers, two_hop.results);
}

/// Checks that what ranks send, in the order of their launches, is what their peers receive. Launches of two hops must
/// be the same on all ranks.
class Alike {
 public:
  explicit Alike(std::uint32_t ranks) : two_hops_(ranks) {}
  void add(std::uint32_t rank, const std::vector<DeviceLaunch>& launches) {
    for (const DeviceLaunch& launch : launches)
      std::visit([&](const auto& call) { add(rank, launch, call); }, launch.argument);
  }
  void check() {
    for (const auto& two_hops : two_hops_) EXPECT_EQ(two_hops, two_hops_.front());
    for (auto& [ranks, ends] : ends_)
      EXPECT_EQ(ends.sent, ends.taken) << "from " << ranks.first << " to " << ranks.second;
  }

 private:
  void add(std::uint32_t rank, const DeviceLaunch& launch, const Exchange& exchange) {
    for (std::uint32_t peer = 0; peer < exchange.ring.ranks; ++peer) {
      if (peer == rank) continue;
      const auto cut = [&](const Message& message) {
        return Cut(cut_of(launch.protocol, message), exchange.cast, launch.encoding);
      };
      if (exchange.send[peer].bytes != 0) ends_[{rank, peer}].sent.push_back(cut(exchange.send[peer]));
      if (exchange.receive[peer].bytes != 0) ends_[{peer, rank}].taken.push_back(cut(exchange.receive[peer]));
    }
  }
  void add(std::uint32_t rank, const DeviceLaunch& launch, const TwoHop& two_hop) {
    two_hops_[rank].emplace_back(launch.protocol, launch.encoding, cut_of(two_hop));
  }
  using Cut = std::tuple<decltype(cut_of({}, Message{})), kernels::Cast, WireFormat>;
  struct Ends {
    std::vector<Cut> sent, taken;
  };
  std::map<std::pair<std::uint32_t, std::uint32_t>, Ends> ends_;
  std::vector<std::vector<std::tuple<Protocol, WireFormat, decltype(cut_of(TwoHop{}))>>> two_hops_;  ///< by rank
};

}  // namespace strait::testing
