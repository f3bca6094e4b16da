// One rank, told by its environment where the others are: net_rank <transport> <megabytes> [victim] [shrink]. Expects
// that transport, all-reduces that much and checks every number. Then the victim (a rank), if there is one, dies, and
// the others must hear of it within a second, and with "shrink" go on without it; or rank 1's network goes down (victim
// "network"), and both must hear of it within five.
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "strait/strait.h"
#include "support/stopwatch.hpp"

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

void expect_error(straitComm_t comm, int victim, std::chrono::seconds within) {
  const strait::testing::Stopwatch watch;
  straitResult_t result = straitBarrier(comm, nullptr);
  if (result == straitSuccess) result = straitBarrier(comm, nullptr);  // the other's part in the first had arrived
  require(result == straitRemoteError, "a barrier without one rank");
  require(watch.elapsed() < within, "the error came late");
  const std::string name = "needs rank " + std::to_string(victim) + " (host";
  require(std::strstr(straitGetLastError(comm), name.c_str()) != nullptr, "the error does not name the victim");
}

void outlive(straitComm_t comm, int rank, const std::string& victim) {
  require(straitBarrier(comm, nullptr) == straitSuccess, "barrier");
  if (victim != "network") {
    if (rank == std::stoi(victim)) raise(SIGKILL);
    return expect_error(comm, std::stoi(victim), std::chrono::seconds(1));
  }
  if (rank == 1) require(std::system("ip link set eth0 down") == 0, "taking the network down");
  expect_error(comm, 1 - rank, std::chrono::seconds(5));
}

/// The same work without the victim.
void go_on(straitComm_t comm, int rank, int ranks, int victim, std::size_t count, const straitConfig_t& config) {
  straitComm_t smaller = nullptr;
  int new_rank = -1, new_ranks = 0;
  require(straitCommShrink(comm, &victim, 1, &smaller, &config) == straitSuccess, "shrink");
  require(
      straitCommUserRank(smaller, &new_rank) == straitSuccess && straitCommCount(smaller, &new_ranks) == straitSuccess,
      "the rank of those that remain");
  require(new_ranks == ranks - 1 && new_rank == (rank > victim ? rank - 1 : rank), "the wrong ranks remain");
  for (int i = 0; i < 10; ++i) all_reduce(smaller, new_rank, new_ranks, count + static_cast<std::size_t>(i));
  require(straitBarrier(smaller, nullptr) == straitSuccess, "the barrier of those that remain");
  require(straitCommDestroy(smaller) == straitSuccess, "destroy");
  std::printf("rank %d goes on as rank %d of %d\n", rank, new_rank, new_ranks);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::size_t megabytes = std::stoul(argv[2]);
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.init_timeout_ms = 20'000;
  straitComm_t comm = nullptr;
  int rank = 0, ranks = 0;
  require(straitCommInitEnv(&comm, &config) == straitSuccess, "init");
  require(straitCommUserRank(comm, &rank) == straitSuccess && straitCommCount(comm, &ranks) == straitSuccess, "rank");
  require(std::to_string(ranks) == std::getenv("STRAIT_RANKS"), "another number of ranks was expected");
  const char *transport = "", *why = "";
  require(straitCommGetTransport(comm, &transport, &why) == straitSuccess, "transport");
  std::printf("rank %d goes over %s%s%s\n", rank, transport, *why == '\0' ? "" : ", because ", why);
  require(std::strcmp(transport, argv[1]) == 0, "another transport was expected");
  const std::size_t count = megabytes << 18;
  all_reduce(comm, rank, ranks, count);
  if (argc > 3) outlive(comm, rank, argv[3]);
  if (argc > 4) go_on(comm, rank, ranks, std::stoi(argv[3]), count, config);
  require(straitCommDestroy(comm) == straitSuccess, "destroy");
  std::printf("rank %d of %d: ok\n", rank, ranks);
}
