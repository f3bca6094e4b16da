// Whether ranks agree on which registration holds their buffers, whatever registrations overlap on which ranks.
#include "device/registered_ranges.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace strait::testing {
namespace {

/// A registration: its beginning and length on each rank.
struct Memory {
  std::vector<std::uintptr_t> begins;
  std::vector<std::size_t> bytes;
};

class Ranks {
 public:
  explicit Ranks(std::size_t ranks) : ranges_(ranks), live_(ranks) {}

  /// Registers the memory on all ranks; returns the number of the registration.
  std::uint64_t add(const Memory& memory) {
    const std::uint64_t number = ++last_;
    all_[number] = memory;
    const std::size_t bytes = least_bytes(number);
    std::vector<std::vector<RegisteredRanges::Overlap>> overlaps;
    for (std::size_t rank = 0; rank < ranges_.size(); ++rank)
      overlaps.push_back(ranges_[rank].overlaps(at(number, rank, 0), bytes));
    std::set<bool> counts;
    for (std::size_t rank = 0; rank < ranges_.size(); ++rank) {
      counts.insert(ranges_[rank].add(number, at(number, rank, 0), bytes, overlaps));
      live_[rank].insert(number);
    }
    EXPECT_EQ(counts.size(), 1u) << "ranks differ";
    return number;
  }
  std::uint64_t add(std::vector<std::uintptr_t> begins, std::size_t bytes) {
    const std::vector<std::size_t> lengths(begins.size(), bytes);
    return add({std::move(begins), lengths});
  }
  void remove(std::uint64_t number, std::size_t rank) {
    ranges_[rank].remove(number);
    live_[rank].erase(number);
  }
  bool is_live(std::uint64_t number, std::size_t rank) const { return live_[rank].count(number) != 0; }
  std::size_t least_bytes(std::uint64_t number) const {
    const std::vector<std::size_t>& bytes = all_.at(number).bytes;
    return *std::min_element(bytes.begin(), bytes.end());
  }
  std::uint64_t last() const { return last_; }

  /// Returns whether outputs at that offset in that registration are found, so that calls write them in place. All
  /// ranks must find the same.
  bool finds(std::uint64_t number, std::size_t offset, std::size_t bytes) const {
    std::vector<std::optional<RegisteredRanges::Place>> places;
    for (std::size_t rank = 0; rank < ranges_.size(); ++rank)
      places.push_back(ranges_[rank].find(at(number, rank, offset), bytes));
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      EXPECT_EQ(places[rank].has_value(), places[0].has_value()) << "of rank " << rank;
      if (!places[rank] || !places[0]) continue;
      EXPECT_EQ(places[rank]->frame, places[0]->frame);
      EXPECT_EQ(places[rank]->distance, places[0]->distance);
      EXPECT_TRUE(is_live(places[rank]->number, rank));
      for (std::size_t peer = 0; peer < places.size(); ++peer)
        EXPECT_EQ(at(places[rank]->number, peer, places[rank]->offset), at(number, peer, offset))
            << "rank " << rank << " would write elsewhere into the memory of " << peer;
    }
    return places[0].has_value();
  }

 private:
  const void* at(std::uint64_t number, std::size_t rank, std::size_t offset) const {
    return reinterpret_cast<const void*>(all_.at(number).begins[rank] + offset);
  }
  std::vector<RegisteredRanges> ranges_;
  std::map<std::uint64_t, Memory> all_;
  std::vector<std::set<std::uint64_t>> live_;
  std::uint64_t last_ = 0;
};

TEST(RegisteredRanges, LieApart) {
  Ranks ranks(2);
  const auto first = ranks.add({1000, 5000}, 100), second = ranks.add({{1100, 7000}, {300, 200}});
  EXPECT_TRUE(ranks.finds(first, 0, 100));
  EXPECT_FALSE(ranks.finds(first, 0, 101)) << "of which a part lies in the other one";
  EXPECT_TRUE(ranks.finds(second, 20, 180));
  EXPECT_FALSE(ranks.finds(second, 20, 181)) << "more than rank 1 has";
  ranks.remove(first, 0);
  ranks.remove(first, 1);
  EXPECT_FALSE(ranks.finds(first, 0, 1));
  EXPECT_TRUE(ranks.finds(second, 0, 1));
}

/// Each rank may undo either of two equal registrations at any time.
TEST(RegisteredRanges, TheSameTwice) {
  for (const bool undoes_first : {false, true}) {
    Ranks ranks(2);
    const auto first = ranks.add({1000, 5000}, 100), second = ranks.add({1000, 5000}, 100);
    EXPECT_TRUE(ranks.finds(first, 10, 90));
    ranks.remove(undoes_first ? first : second, 1);
    EXPECT_TRUE(ranks.finds(undoes_first ? second : first, 10, 90));
  }
}

/// On rank 1 two registrations overlap, so it cannot be told which one a buffer is in, whereas rank 0 finds only one.
TEST(RegisteredRanges, OverlappingOnOneRankOnly) {
  Ranks ranks(3);
  const auto first = ranks.add({1000, 5000, 1000}, 100), second = ranks.add({2000, 5050, 2000}, 100);
  const auto third = ranks.add({3000, 6000, 3000}, 100);
  for (const auto number : {first, second})
    for (const std::size_t offset : {0, 60}) EXPECT_FALSE(ranks.finds(number, offset, 40));
  EXPECT_TRUE(ranks.finds(third, 0, 40));
  for (const auto number : {first, second}) ranks.remove(number, 1);
  const auto fourth = ranks.add({4000, 5000, 4000}, 100);
  EXPECT_TRUE(ranks.finds(fourth, 0, 40));
}

TEST(RegisteredRanges, OverlappingAtOtherDistances) {
  Ranks ranks(2);
  const auto whole = ranks.add({1000, 5000}, 1000), part = ranks.add({1100, 5200}, 100);
  EXPECT_FALSE(ranks.finds(part, 0, 100));
  EXPECT_FALSE(ranks.finds(whole, 150, 10));
}

/// For example a tensor within a pool.
TEST(RegisteredRanges, NestedAlike) {
  Ranks ranks(2);
  const auto whole = ranks.add({1000, 5000}, 1000), part = ranks.add({1100, 5100}, 100);
  EXPECT_TRUE(ranks.finds(part, 10, 50));
  EXPECT_TRUE(ranks.finds(whole, 110, 50));
  EXPECT_TRUE(ranks.finds(whole, 150, 100));
  ranks.remove(whole, 0);
  EXPECT_TRUE(ranks.finds(part, 10, 50)) << "which rank 1 has in both";
  ranks.remove(part, 1);
  ranks.remove(whole, 1);
  EXPECT_FALSE(ranks.finds(whole, 500, 10));
}

TEST(RegisteredRanges, JoinedByALaterOne) {
  Ranks ranks(2);
  const auto left = ranks.add({1000, 5000}, 100), right = ranks.add({1100, 5100}, 100);
  const auto both = ranks.add({1000, 5000}, 200);
  EXPECT_TRUE(ranks.finds(both, 50, 100));
  ranks.remove(both, 0);
  EXPECT_TRUE(ranks.finds(right, 10, 50)) << "which rank 1 has in both";
  ranks.remove(left, 1);
  EXPECT_TRUE(ranks.finds(right, 0, 100));
}

/// One rank still has the memory in an earlier registration, which the other has undone.
TEST(RegisteredRanges, AfterOneRankHasUndoneWhatItOverlaps) {
  Ranks ranks(2);
  const auto first = ranks.add({1000, 5000}, 100);
  ranks.remove(first, 0);
  const auto second = ranks.add({1000, 5000}, 100);
  EXPECT_FALSE(ranks.finds(second, 0, 100));
  ranks.remove(first, 1);
  ranks.remove(second, 0);
  ranks.remove(second, 1);
  EXPECT_TRUE(ranks.finds(ranks.add({1000, 5000}, 100), 0, 100));
}

/// Registers and deregisters at random: ranks always agree about registrations that all of them have.
TEST(RegisteredRanges, AtRandom) {
  int found = 0, missed = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const std::size_t count = 2 + seed % 3;
    Ranks ranks(count);
    for (int step = 0; step < 40; ++step) {
      const bool alike = random() % 8 != 0;
      Memory memory;
      const std::uintptr_t place = random() % 12;
      const std::size_t length = 1 + random() % 6;
      for (std::size_t rank = 0; rank < count; ++rank) {
        memory.begins.push_back(64 * (rank + 1) + (alike ? place : random() % 12));
        memory.bytes.push_back(length + random() % 2);
      }
      ranks.add(memory);
      for (std::uint64_t number = 1; number <= ranks.last(); ++number)
        for (std::size_t rank = 0; rank < count; ++rank)
          if (random() % 10 < (random() % 4 == 0 ? 9 : 1)) ranks.remove(number, rank);
      for (std::uint64_t number = 1; number <= ranks.last(); ++number) {
        bool have_all = true;
        for (std::size_t rank = 0; rank < count; ++rank) have_all = have_all && ranks.is_live(number, rank);
        for (std::size_t offset = 0; have_all && offset < ranks.least_bytes(number); ++offset)
          ++(ranks.finds(number, offset, 1 + random() % (ranks.least_bytes(number) - offset)) ? found : missed);
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_GT(missed, 1000);
}

}  // namespace
}  // namespace strait::testing
