// The directory of a shared segment: ranks that race for a block, and ranks that were killed halfway.
#include "transports/slots/segment.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

namespace strait::slots {
namespace {

/// Zeroed memory for a segment, of which only those pages are allocated that are used.
class Memory {
 public:
  explicit Memory(const Geometry& geometry)
      : size_bytes_(Segment::size_bytes(geometry)),
        data_(static_cast<std::byte*>(
            mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~Memory() { munmap(data_, size_bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t size_bytes_;
  std::byte* data_;
};

Geometry geometry_of(std::uint32_t ranks) {
  Geometry geometry;
  geometry.ranks = ranks;
  return geometry;
}

Key link_key(std::uint16_t tag, std::uint32_t from, std::uint32_t to) { return {Key::Kind::link, tag, from, {to}}; }

/// Returns where in a segment's memory the directory stores this key.
std::size_t place_of(const Key& key, const Geometry& geometry) {
  const Memory memory(geometry);
  const Segment segment(memory.data(), geometry);
  EXPECT_TRUE(segment.find_or_make(key, segment.link_bytes(1)));
  for (std::size_t at = 0;; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data() + at, sizeof word);
    if (word == key.hash()) return at;
  }
}

TEST(Directory, AnEntryWhoseMakerWasKilledIsCompletedAtOnce) {
  const Geometry geometry = geometry_of(3);
  const Key key = link_key(1, 0, 2);
  const Memory memory(geometry);
  const Segment segment(memory.data(), geometry);
  const std::uint64_t hash = key.hash();  // the first of the two stores that make an entry; the second never comes
  std::memcpy(memory.data() + place_of(key, geometry), &hash, sizeof hash);
  const auto began = std::chrono::steady_clock::now();
  const auto block = segment.find_or_make(key, segment.link_bytes(1));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(1));
  ASSERT_TRUE(block) << block.error().message;
  const auto again = segment.find_or_make(key, segment.link_bytes(1));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *block);
}

TEST(Directory, RanksThatRaceGetTheSameBlocksAndNoBlockTwice) {
  constexpr std::uint32_t ranks = 4;
  const Geometry geometry = geometry_of(ranks);
  const Memory memory(geometry);
  std::vector<std::map<std::uint64_t, std::byte*>> found(ranks);
  std::atomic<std::uint32_t> ready{0};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        const Segment segment(memory.data(), geometry);
        ++ready;
        while (ready.load() < ranks) {
        }
        for (std::uint16_t tag = 0; tag < 4; ++tag)
          for (std::uint32_t to = 1; to < ranks; ++to) {
            const Key key = link_key(tag, 0, to);
            const auto block = segment.find_or_make(key, segment.link_bytes(1));
            ASSERT_TRUE(block) << block.error().message;
            found[rank][key.hash()] = *block;
          }
      });
  }
  for (std::uint32_t rank = 1; rank < ranks; ++rank) EXPECT_EQ(found[rank], found[0]);
  std::set<std::byte*> blocks;
  for (const auto& [key, block] : found[0]) blocks.insert(block);
  EXPECT_EQ(blocks.size(), found[0].size());
}

TEST(Directory, AFullSegmentSaysSo) {
  const Geometry geometry = geometry_of(1);
  const Memory memory(geometry);
  const Segment segment(memory.data(), geometry);
  for (std::uint16_t tag = 0; tag < 200; ++tag) {
    const auto block = segment.find_or_make(link_key(tag, 0, 0), segment.link_bytes(1));
    if (block) {
      EXPECT_LE(*block + segment.link_bytes(1), memory.data() + Segment::size_bytes(geometry));
      continue;
    }
    EXPECT_EQ(block.error().code, Code::out_of_memory);
    EXPECT_GT(tag, 6);
    return;
  }
  FAIL() << "200 links fit into a segment for one rank";
}

}  // namespace
}  // namespace strait::slots
