#include "device/staging_places.hpp"

#include <gtest/gtest.h>

#include "base/cpus.hpp"
#include "support/temporary_folder.hpp"

namespace strait {
namespace {

/// Returns the NUMA node of the part that holds this byte, or nothing if the byte may be on any node. Parts must not
/// overlap.
std::optional<std::uint32_t> node_at(const std::vector<PlacedPart>& parts, std::size_t offset) {
  std::optional<std::uint32_t> found;
  for (const PlacedPart& part : parts) {
    if (offset < part.offset || offset >= part.offset + part.size_bytes) continue;
    EXPECT_FALSE(found) << "two parts hold byte " << offset;
    found = part.node;
  }
  return found;
}

TEST(StagingPlaces, AnArenaLiesBesideItsGpu) {
  EXPECT_EQ(places_of_arena(8192, {3, 1}), (std::vector<PlacedPart>{{0, 8192, 3}}));
  EXPECT_TRUE(places_of_arena(8192, {std::nullopt, 1}).empty());
}

TEST(StagingPlaces, AWindowsChunkLiesBesideTheGpuThatUploadsIt) {
  const copy_engine::StagedWindows windows{.ranks = 3, .depth = 2, .chunk_bytes = 8192};
  const auto parts = places_of_windows(windows, {{0, 9}, {std::nullopt, 9}, {1, 9}});
  EXPECT_EQ(parts.size(), 4u);
  for (const std::uint32_t slot : {0u, 1u}) {
    for (const std::size_t byte : {std::size_t{0}, windows.chunk_bytes - 1}) {
      EXPECT_EQ(node_at(parts, windows.upload(slot, 0) + byte), 0u);
      EXPECT_EQ(node_at(parts, windows.upload(slot, 1) + byte), std::nullopt);
      EXPECT_EQ(node_at(parts, windows.upload(slot, 2) + byte), 1u);
    }
  }
  EXPECT_EQ(node_at(parts, windows.uploaded(0)), std::nullopt);
}

TEST(StagingPlaces, ResultsLieBesideTheThreadsThatWriteThem) {
  constexpr std::uint32_t ranks = 3, threads = 2;
  constexpr std::size_t offset = 12288;
  const auto memory = cpu_reducers::ReducerMemory::of(ranks);
  const std::vector<RankNodes> nodes{{0, 10}, {1, 11}, {2, 12}};
  const auto parts = places_of_reducers(memory, offset, threads, nodes);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(node_at(parts, offset + memory.up(rank)), nodes[rank].gpu);
    EXPECT_EQ(node_at(parts, offset + memory.uploads(rank) + memory.slots_bytes() - 1), nodes[rank].gpu);
    for (std::uint32_t thread = 0; thread < threads; ++thread)  // in the order of LaneReducers::work()
      for (std::uint32_t lane = rank * threads + thread; lane < memory.lanes; lane += ranks * threads)
        for (std::uint32_t slot = 0; slot < kernels::slot_depth; ++slot)
          EXPECT_EQ(node_at(parts, offset + memory.results() +
                                       (std::size_t{lane} * kernels::slot_depth + slot) * memory.slot_bytes),
                    nodes[rank].threads)
              << "lane " << lane;
  }
  EXPECT_EQ(node_at(parts, offset + memory.size_bytes()), std::nullopt);
  EXPECT_EQ(node_at(parts, offset + memory.down(1)), std::nullopt);
}

TEST(RankNodes, GoThroughOneWord) {
  for (const RankNodes& nodes : {RankNodes{}, RankNodes{0, 0}, RankNodes{std::nullopt, 7}, RankNodes{1000, {}}}) {
    const RankNodes same = RankNodes::of_word(nodes.word());
    EXPECT_EQ(same.gpu, nodes.gpu);
    EXPECT_EQ(same.threads, nodes.threads);
  }
}

class FoundNodes : public ::testing::Test {
 protected:
  FoundNodes() {
    write("bus/pci/devices/0000:1b:00.0/numa_node", "66");
    write("bus/pci/devices/0000:1c:00.0/numa_node", "-1");
    write("devices/system/node/node0/cpulist", "0-3,8");
    write("devices/system/node/node66/cpulist", "4-7,9");
  }
  void write(const std::string& path, const std::string& text) const { folder_.write("sys/" + path, text + "\n"); }
  const testing::TemporaryFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(FoundNodes, AreThoseOfTheGpuAndOfTheThreadsCores) {
  const RankNodes apart = RankNodes::find("0000:1B:00.0", {1, 8}, root_);  // in CUDA's spelling
  EXPECT_EQ(apart.gpu, 66u);
  EXPECT_EQ(apart.threads, 0u);
  EXPECT_EQ(RankNodes::find("0000:1B:00.0", {3, 4}, root_).threads, 66u) << "threads anywhere: beside the GPU";
  const RankNodes hidden = RankNodes::find("0000:1c:00.0", {4, 9}, root_);
  EXPECT_EQ(hidden.gpu, std::nullopt);
  EXPECT_EQ(hidden.threads, 66u);
  EXPECT_EQ(RankNodes::find("0000:ff:00.0", {100}, root_).threads, std::nullopt);
  EXPECT_EQ(RankNodes::find("nonsense", {}, root_ + "/absent").gpu, std::nullopt);
}

TEST_F(FoundNodes, OfUnnamedCoresAreThoseWhereTheThreadMayRun) {
  std::string list;
  for (const std::uint32_t cpu : allowed_cpus()) list += (list.empty() ? "" : ",") + std::to_string(cpu);
  ASSERT_FALSE(list.empty());
  write("devices/system/node/node0/cpulist", "");
  write("devices/system/node/node66/cpulist", list);
  EXPECT_EQ(RankNodes::find("0000:1c:00.0", {}, root_).threads, 66u);
}

}  // namespace
}  // namespace strait
