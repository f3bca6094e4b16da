#include "executor/copy_engine/rounds.hpp"

#include <gtest/gtest.h>

namespace strait::copy_engine {
namespace {

constexpr Collective supported[] = {Collective::all_gather, Collective::all_to_all, Collective::broadcast,
                                    Collective::gather, Collective::scatter};

StagedWindows windows(std::uint32_t ranks) { return StagedWindows::within(80 << 20, ranks, 4, 4 << 20).value(); }

Rounds cut(Collective collective, std::size_t count, std::uint32_t ranks, std::uint32_t rank = 0) {
  return Rounds({.collective = collective, .type = DataType::float32, .count = count}, windows(ranks), {}, rank);
}

TEST(Rounds, ChunksSuitTheSize) {
  EXPECT_EQ(cut(Collective::all_gather, 64 << 20, 4).count(), 64u);  // 256 MB: the largest chunks
  EXPECT_EQ(cut(Collective::all_gather, 4 << 20, 4).count(), 12u);  // 16 MB: enough rounds for uploads beside downloads
  EXPECT_EQ(cut(Collective::all_gather, 1 << 20, 4).count(), 4u);   // 4 MB: the smallest chunks
  EXPECT_EQ(cut(Collective::all_gather, 1, 4).count(), 1u);
  EXPECT_EQ(cut(Collective::all_to_all, 16 << 20, 4).count(), 64u);
}

TEST(Rounds, AreOfCollectivesThatCopy) {
  for (const Collective other : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce,
                                 Collective::all_to_all_v, Collective::send_recv, Collective::barrier})
    EXPECT_FALSE(Rounds::supports(other));
}

/// Every copy lies within its slot, uploads begin where the rank's chunk begins, and all rounds together carry every
/// byte once.
TEST(Rounds, CopiesStayWithinTheirSlots) {
  for (const Collective collective : supported) {
    ASSERT_TRUE(Rounds::supports(collective));
    for (const std::uint32_t ranks : {2u, 3u, 5u, 16u}) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        const std::size_t count = 20'000'003;
        const Rounds rounds = cut(collective, count, ranks, rank);
        const StagedWindows shape = windows(ranks);
        std::size_t uploaded = 0, downloaded = 0;
        for (std::uint64_t round = 0; round < rounds.count(); ++round) {
          const auto slot = static_cast<std::uint32_t>(round % shape.depth);
          std::vector<RowCopy> copies;
          if (rounds.uploads(rank)) rounds.append_uploads(round, slot, nullptr, copies);
          EXPECT_LE(copies.size(), 2u);
          for (const RowCopy& copy : copies) {
            const auto begin = reinterpret_cast<std::size_t>(copy.to);
            EXPECT_GE(begin, shape.upload(slot, rank));
            EXPECT_LE(begin + (copy.rows - 1) * copy.to_pitch_bytes + copy.row_bytes,
                      shape.upload(slot, rank) + shape.chunk_bytes);
            uploaded += copy.rows * copy.row_bytes;
          }
          copies.clear();
          if (rounds.downloads(rank)) rounds.append_downloads(round, slot, nullptr, copies);
          EXPECT_LE(copies.size(), 2u);
          for (const RowCopy& copy : copies) {
            const auto begin = reinterpret_cast<std::size_t>(copy.from);
            EXPECT_GE(begin, shape.upload(slot, 0));
            EXPECT_LE(begin + (copy.rows - 1) * copy.from_pitch_bytes + copy.row_bytes,
                      shape.upload(slot, ranks - 1) + shape.chunk_bytes);
            downloaded += copy.rows * copy.row_bytes;
          }
        }
        const bool blocks = collective == Collective::all_to_all || collective == Collective::scatter;
        const std::size_t parts = blocks ? ranks - 1 : 1;
        EXPECT_EQ(uploaded, rounds.uploads(rank) ? parts * count * 4 : 0) << name(collective) << " rank " << rank;
        const bool from_root = collective == Collective::broadcast || collective == Collective::scatter;
        const std::size_t blocks_back = from_root ? 1 : ranks - 1;
        EXPECT_EQ(downloaded, rounds.downloads(rank) ? blocks_back * count * 4 : 0)
            << name(collective) << " rank " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace strait::copy_engine
