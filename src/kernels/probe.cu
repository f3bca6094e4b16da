#include <cuda_runtime_api.h>

#include "kernels/kernels.hpp"
#include "kernels/wire.cuh"

/// Whether memory that the driver has mapped for its peers really carries bytes both ways, between kernels that run at
/// the same time: on machines with a misconfigured IOMMU or ACS, P2P is granted and moves nothing, or something else.
namespace strait::kernels {
namespace {

constexpr std::uint64_t probe_word(std::uint32_t from, std::uint32_t to) {
  return 0x5374726169740000ull | from << 8 | to | 0x80;
}

/// Where the first flags of bulk slots will be: this is none of them.
__device__ std::uint64_t* cell(const Ring& ring, std::uint32_t owner, std::uint32_t writer) {
  return reinterpret_cast<std::uint64_t*>(ring.arenas[owner] + flags_offset_bytes) + writer;
}

/// Whether what this rank writes comes back from the peer's memory, and what the peer writes arrives in this rank's.
__device__ bool reaches(const Ring& ring, std::uint32_t peer) {
  if (peer >= ring.ranks || peer == ring.rank) return true;
  const std::uint64_t mine = probe_word(ring.rank, peer), theirs = probe_word(peer, ring.rank);
  store_word(cell(ring, peer, ring.rank), mine);
  Patience patience;
  while (load_word(cell(ring, ring.rank, peer)) != theirs || load_word(cell(ring, peer, ring.rank)) != mine)
    if (patience.spent(ring, peer, 0, false)) return false;
  return true;
}

/// One warp, a thread for each peer.
__global__ void probe(const __grid_constant__ Ring ring) {
  const std::uint32_t unreached = __ballot_sync(0xffffffffu, !reaches(ring, threadIdx.x));
  if (threadIdx.x == 0) *static_cast<volatile std::uint32_t*>(&ring.mailbox->unreached) = unreached;
}

}  // namespace

cudaError_t launch_probe(Ring ring, cudaStream_t stream) {
  ring.timeout_ns = probe_timeout_ms * 1'000'000;
  ring.slow_ns = ~std::uint64_t{0} >> 8;
  probe<<<1, warp_threads, 0, stream>>>(ring);
  return cudaGetLastError();
}

}  // namespace strait::kernels
