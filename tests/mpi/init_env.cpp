// Under mpirun: straitCommInitEnv gives each process mpirun's rank, and collectives work.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "strait/strait.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, straitGetLastError(nullptr));
  std::exit(1);
}

int from_environment(const char* name) {
  const char* value = std::getenv(name);
  require(value != nullptr, name);
  return std::atoi(value);
}

}  // namespace

int main() {
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.init_timeout_ms = 20'000;
  straitComm_t comm = nullptr;
  int rank = -1, ranks = 0;
  require(straitCommInitEnv(&comm, &config) == straitSuccess, "init");
  require(straitCommUserRank(comm, &rank) == straitSuccess && straitCommCount(comm, &ranks) == straitSuccess, "rank");
  require(rank == from_environment("OMPI_COMM_WORLD_RANK"), "the rank is not mpirun's");
  require(ranks == from_environment("OMPI_COMM_WORLD_SIZE"), "the number of ranks is not mpirun's");

  const std::vector<int> mine(1000, rank + 1);
  std::vector<int> sum(1000), all(1000 * static_cast<std::size_t>(ranks));
  require(straitAllReduce(mine.data(), sum.data(), 1000, straitInt32, straitSum, comm, nullptr) == straitSuccess,
          "all-reduce");
  require(sum == std::vector<int>(1000, ranks * (ranks + 1) / 2), "the all-reduce gave wrong bits");
  require(straitAllGather(mine.data(), all.data(), 1000, straitInt32, comm, nullptr) == straitSuccess, "all-gather");
  for (std::size_t i = 0; i < all.size(); ++i)
    require(all[i] == static_cast<int>(i / 1000) + 1, "the all-gather gave wrong bits");
  require(straitCommDestroy(comm) == straitSuccess, "destroy");
}
