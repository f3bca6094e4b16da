#include "executor/copy_engine/windows.hpp"

#include <gtest/gtest.h>

#include <set>

namespace strait::copy_engine {
namespace {

TEST(StagedWindows, TakeAsMuchAsTheBudgetAllows) {
  const auto four = StagedWindows::within(96 << 20, 4, 4, 4 << 20);
  ASSERT_TRUE(four);
  EXPECT_EQ(four->chunk_bytes, 4u << 20);
  EXPECT_LE(four->size_bytes(), 96u << 20);
  const auto ten = StagedWindows::within(96 << 20, 10, 4, 4 << 20);
  ASSERT_TRUE(ten);
  EXPECT_EQ(ten->chunk_bytes % StagedWindows::alignment_bytes, 0u);
  EXPECT_GT(ten->chunk_bytes, 2u << 20);
  EXPECT_LE(ten->size_bytes(), 96u << 20);
  EXPECT_GT(ten->size_bytes(), 95u << 20);
}

TEST(StagedWindows, RefuseWhatDoesNotFit) {
  for (const auto& windows :
       {StagedWindows::within(1 << 20, 8, 4, 4 << 20), StagedWindows::within(96 << 20, 4, 4, 1024),
        StagedWindows::within(96 << 20, 0, 4, 4 << 20), StagedWindows::within(96 << 20, 4, 0, 4 << 20),
        StagedWindows::within(0, 2, 1, 4 << 20)}) {
    ASSERT_FALSE(windows);
    EXPECT_EQ(windows.error().code, Code::invalid_argument);
  }
  const auto small = StagedWindows::within(1 << 20, 8, 4, 4 << 20);
  EXPECT_NE(small.error().message.find("give them at least 2101248 bytes"), std::string::npos) << small.error().message;
  EXPECT_TRUE(StagedWindows::within(2101248, 8, 4, 4 << 20));
  EXPECT_FALSE(StagedWindows::within(2101247, 8, 4, 4 << 20));
}

TEST(StagedWindows, PartsDoNotOverlap) {
  for (const std::uint32_t ranks : {1u, 2u, 5u, 16u, 100u}) {
    for (const std::uint32_t depth : {1u, 2u, 4u}) {
      const StagedWindows windows{.ranks = ranks, .depth = depth, .chunk_bytes = 8192};
      std::set<std::size_t> words{windows.geometry()}, chunks;
      for (std::uint32_t rank = 0; rank < ranks; ++rank)
        words.insert({windows.uploaded(rank), windows.downloaded(rank), windows.begun(rank)});
      for (std::uint32_t slot = 0; slot < depth; ++slot)
        for (std::uint32_t rank = 0; rank < ranks; ++rank) chunks.insert(windows.upload(slot, rank));
      EXPECT_EQ(words.size(), 1 + 3 * ranks);
      EXPECT_EQ(chunks.size(), depth * ranks);
      EXPECT_LE(*words.rbegin() + StagedWindows::line_bytes, *chunks.begin());
      EXPECT_EQ(*chunks.rbegin() + windows.chunk_bytes, windows.size_bytes());
      for (const std::size_t chunk : chunks) EXPECT_EQ(chunk % StagedWindows::alignment_bytes, 0u);
    }
  }
}

}  // namespace
}  // namespace strait::copy_engine
