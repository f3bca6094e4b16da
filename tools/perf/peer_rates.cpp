#include "perf/peer_rates.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/deadline.hpp"
#include "perf/bookkeeping.hpp"
#include "perf/call.hpp"
#include "perf/link_copies.hpp"
#include "topo/cuda_driver.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Where a rank's memory lies for others to write to, as it travels.
struct Sink {
  std::int32_t pid = 0;
  std::int32_t device = -1;
  std::uint64_t address = 0;   ///< within the process
  topo::CudaIpcHandle handle;  ///< for the others
};

struct Peer {
  topo::CudaMemory sink;
  topo::CudaStream stream;
};

Status barrier(straitComm_t control) {
  return checked(straitBarrier(control, nullptr), control, "Waiting for the ranks that measure their links");
}

Result<std::vector<Sink>> exchange(Gpu& gpu, const topo::CudaMemory& memory, straitComm_t control, int ranks) {
  Sink mine{getpid(), gpu.device(), memory.address(), {}};
  STRAIT_ASSIGN(mine.handle, gpu.driver().ipc_handle(memory));
  std::vector<Sink> sinks(static_cast<std::size_t>(ranks));
  STRAIT_TRY(all_gather(control, &mine, sinks.data(), sizeof mine, "Learning where the ranks' memory is"));
  return sinks;
}

/// The others, each rank beginning with its successor: else all would begin with the same.
Result<std::vector<Peer>> reach(Gpu& gpu, const std::vector<Sink>& sinks, std::size_t rank) {
  std::vector<Peer> peers(sinks.size() - 1);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const Sink& sink = sinks[(rank + 1 + i) % sinks.size()];
    STRAIT_ASSIGN(peers[i].stream, gpu.driver().stream(gpu.device()));
    if (sink.pid != getpid()) {
      STRAIT_ASSIGN(peers[i].sink, gpu.driver().open(gpu.device(), sink.handle));
      continue;
    }
    if (sink.device != gpu.device()) {
      STRAIT_ASSIGN(const bool direct, gpu.driver().enable_peer(gpu.device(), sink.device));
      if (!direct)
        return fail(Code::unsupported, "no P2P from GPU " + std::to_string(gpu.device()) + " to GPU " +
                                           std::to_string(sink.device) + ". Measure without --floors");
    }
    peers[i].sink = topo::CudaMemory::borrowed(sink.device, reinterpret_cast<const void*>(sink.address));
  }
  return peers;
}

Status copy(Gpu& gpu, const std::vector<Peer>& peers, const topo::CudaMemory& source, int times) {
  for (int i = 0; i < times; ++i)
    for (const Peer& peer : peers)
      STRAIT_TRY(gpu.driver().to_peer(peer.stream, peer.sink, source, link_copies::piece_bytes));
  for (const Peer& peer : peers)
    STRAIT_TRY(gpu.driver().wait(peer.stream, Deadline::after_ms(link_copies::longest_ms)));
  return {};
}

}  // namespace

Result<PeerLinkRates> measure_peer_rates(Gpu& gpu, straitComm_t control) {
  int rank = 0, ranks = 0;
  STRAIT_TRY(checked(straitCommUserRank(control, &rank), control, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(control, &ranks), control, "straitCommCount"));
  if (ranks < 2) return PeerLinkRates{};
  STRAIT_ASSIGN(const topo::CudaMemory source, gpu.memory(link_copies::piece_bytes));
  STRAIT_ASSIGN(const topo::CudaMemory memory, gpu.memory(link_copies::piece_bytes));
  PeerLinkRates rates;
  {
    STRAIT_ASSIGN(const std::vector<Sink> sinks, exchange(gpu, memory, control, ranks));
    STRAIT_ASSIGN(const std::vector<Peer> peers, reach(gpu, sinks, static_cast<std::size_t>(rank)));
    STRAIT_TRY(copy(gpu, peers, source, 1));  // the first touch
    STRAIT_TRY(barrier(control));
    const auto began = Clock::now();
    STRAIT_TRY(copy(gpu, peers, source, link_copies::pieces));
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    rates.out_gbps =
        static_cast<double>(link_copies::piece_bytes * peers.size()) * link_copies::pieces / std::max(us, 1e-3) * 1e-3;
  }
  // Nobody frees what others still copy to or hold open, and nobody's collectives run beside others' copies.
  STRAIT_TRY(barrier(control));
  return rates;
}

}  // namespace strait::perf
