// Checks the launches of all ranks of random machines (launches_fit.hpp).
#include "launches_fit.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <variant>
#include <vector>

#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter,    Collective::barrier};

Call random_call(Random& random, const RandomMachine& machine) {
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
    const RandomMachine machine(random);
    Call call = random_call(random, machine);
    const Fits fits(machine, most_blocks(machine, call.max_sms, is_reduction(call.collective)));
    Alike alike(machine.ranks);
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
    const RandomMachine machine(random);
    Call call = random_call(random, machine);
    call.collective = collectives[random() % 4];
    call.type = one_of(random, {DataType::float32, DataType::bfloat16, DataType::float16});
    call.wire = one_of(random, {WireFormat::int8, WireFormat::fp8, WireFormat::int4});
    const Fits fits(machine, most_blocks(machine, call.max_sms, is_reduction(call.collective)));
    Alike alike(machine.ranks);
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
  std::size_t piped = 0, independent = 0;
  for (std::uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(seed);
    const RandomMachine machine(random);
    const Fits fits(machine, most_blocks(machine, 0, false));
    std::vector<std::size_t> lengths{0};
    for (int i = 0; i < 3; ++i) lengths.push_back(random_bytes(random));
    Messages messages = random_messages(random, machine.ranks, lengths);
    if (random() % 2 == 0)  // a ring
      for (std::size_t number = 0; number < messages.size(); ++number) {
        messages[number].from = static_cast<std::uint32_t>(number % machine.ranks);
        messages[number].to = static_cast<std::uint32_t>((number + 1) % machine.ranks);
      }
    Alike alike(machine.ranks);
    for (std::uint32_t rank = 0; rank < machine.ranks; ++rank) {
      const auto buffer_of = [&](std::size_t, bool) { return random_buffer(random, DataType::uint8); };
      const auto launches = machine.calls(rank).launches_of(calls_of(messages, rank, random, buffer_of));
      for (const DeviceLaunch& launch : launches) {
        fits.check(launch);
        piped += launch.piped ? 1 : 0;
        independent += launch.independent ? 1 : 0;
      }
      alike.add(rank, launches);
    }
    alike.check();
    if (HasFailure()) FAIL() << "seed " << seed << ": " << machine.text();
  }
  EXPECT_GT(piped, 1'000u);
  EXPECT_GT(independent, 1'000u);
}

TEST(Launches, OfAllToAllVFitAndAreAlike) {
  for (std::uint64_t seed = 0; seed < 6'000; ++seed) {
    Random random(seed);
    const RandomMachine machine(random);
    const Fits fits(machine, most_blocks(machine, 0, false));
    std::vector<std::vector<std::size_t>> bytes(machine.ranks, std::vector<std::size_t>(machine.ranks));
    for (auto& row : bytes)
      for (std::size_t& each : row) each = random() % 4 == 0 ? 0 : random_bytes(random);
    Alike alike(machine.ranks);
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
