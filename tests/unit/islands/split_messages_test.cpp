// Which messages of a group stay within an island.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "device/island_messages.hpp"
#include "support/random_messages.hpp"

namespace strait::testing {
namespace {

/// Returns a buffer address that is the same for both ends of a message.
std::byte* buffer_of(std::size_t number, bool /*sends*/) { return reinterpret_cast<std::byte*>(number + 1); }
std::uintptr_t number_of(const Call& call) {
  return reinterpret_cast<std::uintptr_t>(call.sends ? call.send : call.receive);
}

/// Both ends of each message put it into the same part, and name each other by their ranks in that part. Between two
/// ranks, messages keep their order.
TEST(SplitMessages, BothEndsDecideAlike) {
  const std::vector<std::vector<Island>> machines{
      {{0, 1}, {2, 3}}, {{0, 3}, {1, 2}}, {{0}, {1, 4}, {2, 3, 5}}, {{0, 2, 4, 6}, {1}, {3, 5}}};
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::vector<Island>& islands = machines[seed % machines.size()];
    std::uint32_t ranks = 0;
    for (const Island& island : islands) ranks += static_cast<std::uint32_t>(island.size());
    Random random(seed);
    const Messages messages = random_messages(random, ranks, {100});
    std::size_t ends = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const Island& island = islands[place_of(islands, rank).island];
      const std::vector<Call> posted = calls_of(messages, rank, random, buffer_of);
      const SplitMessages split = split_messages(posted, island, rank);
      ends += split.inside.size() + split.others.size();
      EXPECT_EQ(split.inside.size() + split.others.size(), posted.size());
      std::map<std::pair<std::uint32_t, bool>, std::uintptr_t> last;
      for (const auto* part : {&split.inside, &split.others})
        for (const Call& call : *part) {
          const bool inside = part == &split.inside;
          const std::uint32_t peer = inside ? island.at(call.peer) : call.peer;
          const Sent& message = messages.at(number_of(call) - 1);
          EXPECT_EQ(rank, call.sends ? message.from : message.to);
          EXPECT_EQ(peer, call.sends ? message.to : message.from);
          EXPECT_GT(number_of(call), std::exchange(last[{peer, call.sends}], number_of(call)));
          if (peer == rank)
            EXPECT_EQ(inside, !split.inside.empty() || split.others.empty());
          else
            EXPECT_EQ(inside, std::find(island.begin(), island.end(), peer) != island.end());
        }
    }
    EXPECT_EQ(ends, 2 * messages.size());
  }
}

}  // namespace
}  // namespace strait::testing
