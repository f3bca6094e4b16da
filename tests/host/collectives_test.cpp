// Every collective, type, operation and shape of buffer through the public interface, compared with the reference.
#include "host/collective_case.hpp"
#include "support/ranks.hpp"

namespace strait::testing {
namespace {

constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                      Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                      Collective::gather,     Collective::scatter};

/// Checks sizes and shapes in one type: errors with slices, tails and addresses.
void check_shapes(straitComm_t comm, int rank, int ranks) {
  std::uint64_t seed = 1;
  for (Collective collective : collectives)
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1000}, std::size_t{40961}})
      for (bool in_place : {false, true}) {
        CollectiveCase c;
        c.collective = collective;
        c.count = count;
        c.in_place = in_place;
        c.seed = ++seed;
        c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
        c.misalignment_bytes = seed % 3 == 0 ? 4 : 0;
        check_collective(comm, rank, ranks, c);
      }
}

/// Checks all types and operations, with counts of several slices and a tail.
void check_arithmetic(straitComm_t comm, int rank, int ranks) {
  std::uint64_t seed = 1000;
  for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    for (int type = 0; type < data_type_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op) {
        CollectiveCase c;
        c.collective = collective;
        c.type = static_cast<DataType>(type);
        c.op = static_cast<ReduceOp>(op);
        c.count = 1003;
        c.seed = ++seed;
        c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
        c.in_place = seed % 2 == 0;
        c.misalignment_bytes = seed % 5 == 0 ? 1 : 0;
        check_collective(comm, rank, ranks, c);
      }
}

class Threads : public ::testing::TestWithParam<int> {};
TEST_P(Threads, AllShapes) { run_as_threads(GetParam(), check_shapes); }
TEST_P(Threads, AllTypesAndOperations) { run_as_threads(GetParam(), check_arithmetic); }
INSTANTIATE_TEST_SUITE_P(Ranks, Threads, ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16));

class Processes : public ::testing::TestWithParam<int> {};
TEST_P(Processes, AllShapes) { run_as_processes(GetParam(), check_shapes); }
TEST_P(Processes, AllTypesAndOperations) { run_as_processes(GetParam(), check_arithmetic); }
INSTANTIATE_TEST_SUITE_P(Ranks, Processes, ::testing::Values(2, 3, 4, 8));

}  // namespace
}  // namespace strait::testing
