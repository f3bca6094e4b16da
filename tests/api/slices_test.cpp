// Element counts around the edges of slices, for the slice sizes that selection may choose.
#include <cstdlib>
#include <string>

#include "host/collective_case.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

class Slices : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override { setenv("STRAIT_SLICE_BYTES", std::to_string(GetParam()).c_str(), 1); }
  void TearDown() override { unsetenv("STRAIT_SLICE_BYTES"); }
};
INSTANTIATE_TEST_SUITE_P(Bytes, Slices,
                         ::testing::Values(16, 4096, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10));

void check_around(straitComm_t comm, int rank, int ranks, std::size_t slice_bytes) {
  const auto n = static_cast<std::size_t>(ranks);
  std::uint64_t seed = 0;
  for (DataType type : {DataType::float32, DataType::bfloat16, DataType::uint8})
    for (Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::broadcast})
      for (std::size_t edge : {slice_bytes, n * slice_bytes}) {
        if (type == DataType::uint8 && edge != slice_bytes) continue;
        for (std::size_t more : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = type;
          c.count = edge / size_bytes(type) + more - 1;
          c.seed = ++seed;
          c.in_place = seed % 2 == 0;
          check_collective(comm, rank, ranks, c);
        }
      }
}

TEST_P(Slices, EdgesAsThreads) {
  run_as_threads(3, [](straitComm_t comm, int rank, int ranks) { check_around(comm, rank, ranks, GetParam()); });
}
TEST_P(Slices, EdgesAsProcesses) {
  run_as_processes(2, [](straitComm_t comm, int rank, int ranks) { check_around(comm, rank, ranks, GetParam()); });
}

/// TCP's slots are longer than those of shared memory.
TEST_P(Slices, EdgesOverTcp) {
  setenv("STRAIT_TRANSPORT", "tcp", 1);
  run_as_processes(2, [](straitComm_t comm, int rank, int ranks) { check_around(comm, rank, ranks, GetParam()); });
  unsetenv("STRAIT_TRANSPORT");
}

}  // namespace
}  // namespace strait::testing
