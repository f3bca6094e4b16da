// The rates that ranks measure when they make a communicator through host memory.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "api/api.hpp"
#include "gpu/device_checks.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::Le;

/// Returns the values of all ranks, by rank.
std::vector<double> everybodys(double own, straitComm_t comm, int rank, int ranks) {
  std::vector<double> all(static_cast<std::size_t>(ranks));
  const std::size_t bytes = all.size() * sizeof(double);
  DeviceSide side(bytes);
  auto* const values = reinterpret_cast<double*>(side.receive());
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(values + rank, &own, sizeof own, cudaMemcpyHostToDevice, side.stream()));
  STRAIT_EXPECT_OK(straitAllGather(values + rank, values, 1, straitFloat64, comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(all.data(), values, bytes, cudaMemcpyDeviceToHost, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  return all;
}

/// Expects one rate on all ranks: no link of today gives more than 200 GB/s, and no test machine less than 1 GB/s.
void check_rate(straitComm_t comm, int rank, int ranks) {
  const ExchangeRates rates = comm->comm->exchange_rates();
  EXPECT_THAT(everybodys(rates.measured_gbps, comm, rank, ranks),
              AllOf(Each(rates.measured_gbps), Each(Ge(1)), Each(Le(200))));
  EXPECT_THAT(everybodys(rates.gbps, comm, rank, ranks), Each(rates.gbps));
  check_shapes(comm, rank, ranks);  // the zeros that the measurement copied must not be taken for data
}

void check_no_rate(straitComm_t comm, int /*rank*/, int /*ranks*/) {
  EXPECT_EQ(comm->comm->exchange_rates().measured_gbps, 0);
}

class DeviceRates : public DeviceRanks {
 protected:
  void run_with(const std::map<std::string, std::string>& settings, const RankBody& body) {
    for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
    run(body);
    for (const auto& [name, value] : settings) unsetenv(name.c_str());
  }
};
TEST_P(DeviceRates, AreMeasuredThroughHostMemory) { run_with({{"STRAIT_P2P", "off"}}, check_rate); }
TEST_P(DeviceRates, AreNotMeasuredWhereTheyAreGiven) {
  run_with({{"STRAIT_P2P", "off"}, {"STRAIT_EXCHANGE_GBPS", "20"}}, check_no_rate);
}
TEST_P(DeviceRates, AreNotMeasuredWhereGpusReachOneAnother) {
  run_with({{"STRAIT_P2P", "auto"}}, [](straitComm_t comm, int rank, int ranks) {
    if (comm->comm->transport_name() == "cuda_p2p") check_no_rate(comm, rank, ranks);
  });
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceRates, ::testing::Values(Setup{false, 2}, Setup{true, 2}, Setup{true, 4}),
                         name_of);

}  // namespace
}  // namespace strait::testing
