// Sums in bulk of chunks at unaligned places and of odd lengths, by the kernels of src/kernels on the CPU.
#include "host/collective_case.hpp"
#include "support/emulated_collectives.hpp"
#include "support/emulated_machine.hpp"
//
#include <gtest/gtest.h>

#include <array>

namespace strait::testing {
namespace {

/// Numbers of ranks for which there are specialised kernels, and five ranks.
class OddSums : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static constexpr std::array types{DataType::uint8, DataType::bfloat16, DataType::float32};
  /// Checks calls in bulk of 48 consecutive lengths, of the three types in turn, at all distances from multiples of 16
  /// bytes that elements can have.
  void check_lengths(Collective collective, std::size_t least) {
    Machine machine(GetParam(), 1, {.p2p = true, .small_slots = true, .together = true});
    for (std::size_t count = least; count < least + 48; ++count) {
      CollectiveCase c;
      c.collective = collective;
      c.type = types[count % types.size()];
      c.count = count;
      c.in_place = count % 4 < 2;
      c.root = static_cast<std::uint32_t>(count % GetParam());
      c.seed = count;
      c.misalignment_bytes = count * 5 * size_bytes(c.type) % 16;
      check(machine, c);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, OddSums, ::testing::Values(2u, 3u, 4u, 5u),
                         [](const auto& test) { return std::to_string(test.param); });

TEST_P(OddSums, OfAFewElements) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    check_lengths(collective, 1);
}

TEST_P(OddSums, OfSeveralChunks) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    check_lengths(collective, 4000);
}

/// Contributions are products; whole granules take a different path from unaligned parts.
TEST_P(OddSums, OfProducts) {
  for (const char* algorithm : {"one_hop", "two_hop"}) {
    Machine machine(GetParam(), 1, {.p2p = true, .algorithm = algorithm, .small_slots = true, .together = true});
    std::uint64_t seed = 1;
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
      for (const DataType type : {DataType::bfloat16, DataType::float16, DataType::float32, DataType::float64})
        for (const std::size_t count : {8u, 4000u, 4001u}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = type;
          c.op = ReduceOp::premul_sum;
          c.count = count;
          c.in_place = seed % 2 == 0;
          c.root = static_cast<std::uint32_t>(seed % GetParam());
          c.misalignment_bytes = seed % 5 == 0 ? size_bytes(type) : 0;
          c.seed = ++seed;
          check(machine, c);
        }
  }
}

/// Operations other than sums use plain loops if all of a chunk is whole granules, and another path otherwise.
TEST_P(OddSums, OfAllOperations) {
  constexpr ReduceOp operations[] = {ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg};
  constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce};
  std::uint64_t seed = 1;
  for (const char* algorithm : {"one_hop", "two_hop"}) {
    Machine machine(GetParam(), 1, {.p2p = true, .algorithm = algorithm, .small_slots = true, .together = true});
    for (int type = 0; type < data_type_count; ++type)
      for (const ReduceOp op : operations)
        for (const std::size_t bytes : {16u, 16'000u, 16'040u}) {
          CollectiveCase c;
          c.type = static_cast<DataType>(type);
          c.op = op;
          c.count = bytes / size_bytes(c.type);
          c.collective = collectives[seed % std::size(collectives)];
          c.in_place = seed % 2 == 0;
          c.root = static_cast<std::uint32_t>(seed % GetParam());
          c.misalignment_bytes = seed % 5 == 0 ? size_bytes(c.type) : 0;
          c.seed = ++seed;
          check(machine, c);
        }
  }
}

/// In two hops, data from the root is kept at an unaligned place and passed on.
TEST_P(OddSums, AndBroadcasts) { check_lengths(Collective::broadcast, 4000); }

}  // namespace
}  // namespace strait::testing
