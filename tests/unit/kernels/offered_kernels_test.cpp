// Messages whose receivers offer a place for the data, by the kernel of src/kernels on the CPU.
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <variant>
#include <vector>

#include "support/emulated_registrations.hpp"
#include "support/message_memory.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

constexpr std::size_t bytes = 400'003;  // several times what slots hold
constexpr std::uint32_t blocks = 1, lanes = blocks * kernels::max_width;
constexpr std::chrono::milliseconds late(30);
/// The most slots that a message uses if a place is offered: what a lane holds, one more chunk that is taken meanwhile,
/// and the last flag.
constexpr std::uint64_t most_of_offered_ones = lanes * (kernels::slot_depth + 2);

/// Two ranks, as if so many slots (the parameter) had been used before.
class Offered : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  void SetUp() override { (void)all_memory.of(memory_.receive[0].data(), bytes); }  // registers the memory

  std::vector<DeviceLaunch> launches(std::uint32_t rank, const MessageOffers& offer) {
    Random random(rank);
    const auto buffer_of = [&](std::size_t number, bool sends) {
      return (sends ? memory_.send : memory_.receive)[number].data();
    };
    return machine_.calls(rank).launches_of(calls_of(messages_, rank, random, buffer_of), offer);
  }
  void run(std::uint32_t rank, const MessageOffers& offer = all_memory) {
    machine_.run(launches(rank, offer), DataType::uint8);
  }
  /// Runs both ranks; rank `first` begins long before the other.
  void run_in_turn(std::uint32_t first, const MessageOffers& of_0, const MessageOffers& of_1) {
    {
      const std::jthread other([&] { run(first, first == 0 ? of_0 : of_1); });
      std::this_thread::sleep_for(late);
      run(1 - first, first == 0 ? of_1 : of_0);
    }
    memory_.expect_received(messages_);
  }
  /// Returns the number of slots that the first message has used.
  std::uint64_t slots() const {
    std::uint64_t used = 0;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) used += machine_.sent(0, 1, lane) - GetParam();
    return used;
  }

  Machine machine_{
      2,
      lanes,
      {.first_use = GetParam(), .p2p = true, .small_slots = true, .together = true, .least_offered_bytes = bytes}};
  Messages messages_{{0, 1, bytes}};
  MessageMemory memory_{messages_, 1};
};
INSTANTIATE_TEST_SUITE_P(FirstUse, Offered, ::testing::Values(0u, 0xfffeu),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(Offered, GoInOneLaunchWhateverTheirLengths) {
  messages_ = {{0, 1, bytes}, {1, 0, bytes - 1}};
  memory_ = MessageMemory(messages_, 1);
  const std::vector<DeviceLaunch> made = launches(1, all_memory);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(std::get<kernels::OfferedMessages>(made[0].argument).offers[0],
            all_memory.of(memory_.receive[0].data(), bytes));
  EXPECT_FALSE(std::holds_alternative<kernels::OfferedMessages>(launches(1, {})[0].argument));
  for (std::uint32_t first = 0; first < 2; ++first) run_in_turn(first, all_memory, all_memory);
}

/// If the receiver already waits, data goes directly to its place. The last chunk of each lane has the flag, and uses
/// up the number of a slot.
TEST_P(Offered, GoStraightToWhoWaitsForThem) {
  run_in_turn(1, no_memory, all_memory);
  EXPECT_EQ(slots(), lanes);
}

TEST_P(Offered, GoThroughSlotsWhereNothingIsRegistered) {
  run_in_turn(1, no_memory, no_memory);
  EXPECT_GT(slots(), most_of_offered_ones);
}

/// What slots hold goes through them, and the rest goes directly once the receiver has come.
TEST_P(Offered, ChangeTheirWayForWhoComesLater) {
  run_in_turn(0, no_memory, all_memory);
  EXPECT_LE(slots(), most_of_offered_ones);
}

TEST_P(Offered, AreNotWrittenBeforeTheCall) {
  const Bytes before = memory_.receive[0].contents();
  {
    const std::jthread sender([&] { run(0); });
    std::this_thread::sleep_for(late);
    EXPECT_EQ(memory_.receive[0].contents(), before);
    run(1);
  }
  memory_.expect_received(messages_);
}

/// The sender has undone the registration, or has another one in its place.
TEST_P(Offered, GoThroughSlotsWhereTheSenderHasNoSuchRegistration) {
  const std::vector<DeviceLaunch> taken = launches(1, all_memory);
  EmulatedRegistrations::forget(memory_.receive[0].data(), 1);
  const std::vector<DeviceLaunch> sent = launches(0, no_memory);
  {
    const std::jthread receiver([&] { machine_.run(taken, DataType::uint8); });
    machine_.run(sent, DataType::uint8);
  }
  memory_.expect_received(messages_);
  EXPECT_GT(slots(), most_of_offered_ones);
}

/// As if one rank did not know yet that memory is registered.
TEST_P(Offered, ArriveWhereOneKnowsNothingOfOffers) {
  for (std::uint32_t first = 0; first < 2; ++first) {
    run_in_turn(first, {}, all_memory);
    run_in_turn(first, all_memory, {});
  }
}

/// A place offered for one message is not used for another, whether or not it was used.
TEST_P(Offered, FollowOneAnother) {
  std::vector<MessageMemory> memories;
  for (std::uint64_t seed = 0; seed < 100; ++seed) memories.emplace_back(messages_, seed);
  const auto run_all = [&](std::uint32_t rank) {
    Random random(rank);
    for (MessageMemory& memory : memories) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
      const auto buffer_of = [&](std::size_t number, bool sends) {
        return (sends ? memory.send : memory.receive)[number].data();
      };
      const MessageOffers& offer = random() % 4 == 0 ? no_memory : all_memory;
      machine_.run(machine_.calls(rank).launches_of(calls_of(messages_, rank, random, buffer_of), offer),
                   DataType::uint8);
    }
  };
  {
    const std::jthread sender([&] { run_all(0); });
    run_all(1);
  }
  for (const MessageMemory& memory : memories) memory.expect_received(messages_);
}

/// The message sent is longer than the place offered for the one expected, whichever rank comes first.
TEST(OfferedPlaces, AreNotWrittenByOtherMessages) {
  for (std::uint32_t first = 0; first < 2; ++first) {
    Machine machine(2, lanes, {.p2p = true, .small_slots = true, .together = true, .least_offered_bytes = bytes / 2});
    const Messages messages{{0, 1, bytes}};
    MessageMemory memory(messages, 1);
    const auto launches = [&](std::uint32_t rank, const Messages& meant) {
      Random random(rank);
      const auto made = machine.calls(rank).launches_of(
          calls_of(meant, rank, random,
                   [&](std::size_t, bool sends) { return (sends ? memory.send : memory.receive)[0].data(); }),
          all_memory);
      std::vector<DeviceLaunch> impatient = made;
      std::visit([](auto& argument) { argument.ring.timeout_ns = 200'000'000; }, impatient.at(0).argument);
      return impatient;
    };
    const std::vector<DeviceLaunch> of_rank[] = {launches(0, messages), launches(1, {{0, 1, bytes / 2}})};
    ASSERT_TRUE(std::holds_alternative<kernels::OfferedMessages>(of_rank[1][0].argument));
    const Bytes before = memory.receive[0].contents();
    {
      const std::jthread other([&] { machine.run(of_rank[first], DataType::uint8); });
      std::this_thread::sleep_for(late);
      machine.run(of_rank[1 - first], DataType::uint8);
    }
    EXPECT_EQ(memory.receive[0].contents(), before);
    for (std::uint32_t rank = 0; rank < 2; ++rank)
      EXPECT_NE(machine.mailbox(rank).event, kernels::Mailbox::Event::none) << "rank " << rank;
  }
}

TEST(AreOffered, LongOnesBetweenPeers) {
  const auto may_be_offered = [&](std::uint32_t ranks, bool p2p, std::uint32_t peer, std::size_t count,
                                  const MessageOffers& offer) {
    const Machine machine(ranks, 0, {.p2p = p2p, .least_offered_bytes = 0});
    std::byte buffer{};
    Call call;
    call.collective = Collective::send_recv;
    call.type = DataType::uint8;
    call.count = count;
    call.peer = peer;
    call.sends = true;
    call.send = &buffer;
    const auto made = machine.calls(0).launches_of(std::span(&call, 1), offer);
    return std::any_of(made.begin(), made.end(), [](const DeviceLaunch& each) {
      return std::holds_alternative<kernels::OfferedMessages>(each.argument);
    });
  };
  for (const std::uint32_t ranks : {2u, 3u}) {
    const std::size_t least = std::size_t{ranks == 2 ? 256u : 32u} << 20;
    EXPECT_TRUE(may_be_offered(ranks, true, 1, least, all_memory));
    EXPECT_FALSE(may_be_offered(ranks, true, 1, least - 1, all_memory));
    EXPECT_FALSE(may_be_offered(ranks, true, 1, least, {})) << "nothing was registered";
    EXPECT_FALSE(may_be_offered(ranks, true, 0, least, all_memory)) << "it stays on this rank";
    EXPECT_FALSE(may_be_offered(ranks, false, 1, least, all_memory)) << "no peer reaches it";
  }
}

TEST(AreOffered, WholeGranulesThatAWordCanName) {
  constexpr std::size_t most = (std::size_t{1} << 32) * 16;
  EXPECT_EQ(kernels::offer_of(3, 48), std::uint64_t{3} << 32 | 3);
  EXPECT_EQ(kernels::offer_of(3, 48), kernels::offer_of(3 + (1 << 16), 48)) << "of the number, the lower bits";
  EXPECT_NE(kernels::offer_of(3, most - 16), 0u);
  EXPECT_EQ(kernels::offer_of(3, most), 0u);
  EXPECT_EQ(kernels::offer_of(3, 8), 0u);
}

}  // namespace
}  // namespace strait::testing
