// Every collective, type, operation and shape of buffer between GPU ranks, through the public interface, bit by bit.
#include "gpu/device_checks.hpp"

namespace strait::testing {
namespace {

using DeviceCollectives = DeviceRanks;
TEST_P(DeviceCollectives, AllShapes) {
  run([](straitComm_t comm, int rank, int ranks) { check_shapes(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, AllTypesAndOperations) {
  run([](straitComm_t comm, int rank, int ranks) { check_arithmetic(comm, rank, ranks); });
}
TEST_P(DeviceCollectives, Messages) { run(check_messages); }
TEST_P(DeviceCollectives, Repeats) { run(check_repeats); }
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceCollectives,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{false, 3}, Setup{false, 4},
                                           Setup{true, 2}, Setup{true, 4}, Setup{false, 8}),
                         name_of);

}  // namespace
}  // namespace strait::testing
