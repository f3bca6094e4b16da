// One rank, told by its environment where the others are: net_rank <megabytes> [victim]. All-reduces that much and
// checks every number; then the victim, if there is one, dies, and the others must hear of it within a second.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "strait/strait.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, straitGetLastError(nullptr));
  std::exit(1);
}

void all_reduce(straitComm_t comm, int rank, int ranks, std::size_t count) {
  std::vector<std::uint32_t> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<std::uint32_t>(i) * static_cast<std::uint32_t>(rank + 1);
  require(straitAllReduce(values.data(), values.data(), count, straitUint32, straitSum, comm, nullptr) == straitSuccess,
          "all-reduce");
  const auto triangle = static_cast<std::uint32_t>(ranks * (ranks + 1) / 2);
  for (std::size_t i = 0; i < count; ++i)
    require(values[i] == static_cast<std::uint32_t>(i) * triangle, "the all-reduce gave wrong bits");
}

void outlive(straitComm_t comm, int rank, int victim) {
  require(straitBarrier(comm, nullptr) == straitSuccess, "barrier");
  if (rank == victim) raise(SIGKILL);
  const auto began = std::chrono::steady_clock::now();
  require(straitBarrier(comm, nullptr) == straitRemoteError, "a barrier with a dead rank");
  require(std::chrono::steady_clock::now() - began < std::chrono::seconds(1), "the error came late");
  const std::string name = "rank " + std::to_string(victim) + " (host";
  require(std::strstr(straitGetLastError(comm), name.c_str()) != nullptr, "the error does not name the victim");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t megabytes = argc > 1 ? std::stoul(argv[1]) : 1;
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.init_timeout_ms = 20'000;
  straitComm_t comm = nullptr;
  int rank = 0, ranks = 0;
  require(straitCommInitEnv(&comm, &config) == straitSuccess, "init");
  require(straitCommUserRank(comm, &rank) == straitSuccess && straitCommCount(comm, &ranks) == straitSuccess, "rank");
  require(ranks == 2, "there should be two ranks");
  all_reduce(comm, rank, ranks, megabytes << 18);
  if (argc > 2) outlive(comm, rank, std::atoi(argv[2]));
  require(straitCommDestroy(comm) == straitSuccess, "destroy");
  std::printf("rank %d of %d: ok\n", rank, ranks);
}
