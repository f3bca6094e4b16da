#include "communicator/device_arenas.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "base/stages.hpp"
#include "communicator/device_links.hpp"
#include "kernels/kernels.hpp"

namespace strait {

using cuda::check;
using kernels::arena_layout;
using kernels::ArenaKind;
using kernels::ArenaLayout;

Result<DeviceArenas> DeviceArenas::open(const DeviceRank::Request& request, kernels::Mailbox* mailbox) {
  DeviceArenas arenas;
  Stages stages;
  arenas.ring_.mailbox = mailbox;
  arenas.ring_.rank = request.rank;
  arenas.ring_.ranks = request.ranks;
  STRAIT_ASSIGN(arenas.counts_,
                cuda::DeviceMemory::allocate(request.device, kernels::lane_count * sizeof(kernels::LaneCounts)));
  arenas.ring_.counts = reinterpret_cast<kernels::LaneCounts*>(arenas.counts_.data());
  stages.done("counts");
  if (request.p2p != P2p::off) {
    Status direct = arenas.open_peers(request);
    stages.done("memory of peers");
    if (direct) direct = request.agree(arenas.probe(request, mailbox), "reach its peers' memory");
    stages.done("probe");
    log_trace(static_cast<int>(request.rank), "set-up of arenas: " + stages.text());
    if (direct) return arenas;
    arenas.peers_.clear();
    arenas.why_staged_ = direct.error().message;
  } else {
    arenas.why_staged_ = "P2P is switched off (STRAIT_P2P, NCCL_P2P_DISABLE)";
  }
  STRAIT_TRY(arenas.open_staging(request));
  return arenas;
}

namespace {

/// Allocates, trades descriptors, maps: every rank's memory, by rank. `kind` is what of it an error names.
template <class Memory>
Result<std::vector<Memory>> trade(const DeviceRank::Request& request, std::size_t bytes, const std::string& kind) {
  Stages stages;
  auto own = Memory::allocate(request.device, bytes);
  stages.done("own");
  auto shared = own ? own->share() : Result<UniqueFd>(tl::unexpected(own.error()));
  STRAIT_TRY(request.agree(shared.map([](const UniqueFd&) {}), "share " + kind));
  STRAIT_ASSIGN(const auto descriptors, request.exchange(shared->get()));
  stages.done("exchange");
  std::vector<Memory> all(request.ranks);
  Status mapped;
  for (std::uint32_t peer = 0; peer < request.ranks && mapped; ++peer) {
    auto memory =
        peer == request.rank ? std::move(own) : Memory::import(descriptors[peer].get(), bytes, request.device);
    if (memory)
      all[peer] = std::move(*memory);
    else
      mapped = tl::unexpected(memory.error());
  }
  stages.done("map");
  STRAIT_TRY(request.agree(mapped, "map its peers' " + kind));
  stages.done("the others");
  log_trace(static_cast<int>(request.rank), "set-up of " + kind + ": " + stages.text());
  return all;
}

}  // namespace

Status DeviceArenas::open_peers(const DeviceRank::Request& request) {
  const Status nvlink = request.agree(request.p2p == P2p::pcie ? fail(Code::unsupported, "STRAIT_P2P=pcie")
                                                               : check_nvlink(request.device, request.bus_ids),
                                      "use NVLink");
  const ArenaLayout layout = arena_layout(nvlink ? ArenaKind::nvlink : ArenaKind::pcie, request.ranks);
  STRAIT_ASSIGN(peers_, trade<cuda_p2p::SharedMemory>(request, layout.size_bytes, "memory of GPUs"));
  for (std::uint32_t peer = 0; peer < request.ranks; ++peer) ring_.arenas[peer] = peers_[peer].data();
  use(layout);
  return {};
}

Status DeviceArenas::open_staging(const DeviceRank::Request& request) {
  const ArenaLayout layout = arena_layout(ArenaKind::host, request.ranks);
  STRAIT_ASSIGN(staging_, trade<host_staged::HostMemory>(request, layout.size_bytes, "host memory"));
  for (std::uint32_t peer = 0; peer < request.ranks; ++peer) ring_.arenas[peer] = staging_[peer].device_data();
  use(layout);
  ring_.staged = true;
  return request.ranks > 1 && request.copy_engine_bytes > 0 ? open_windows(request) : Status();
}

void DeviceArenas::use(const ArenaLayout& layout) {
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring_.slots);
}

/// Rank 0's, which all map.
Status DeviceArenas::open_windows(const DeviceRank::Request& request) {
  Status opened;
  if (request.rank == 0) {
    auto own = host_staged::HostMemory::allocate(request.device, windows_bytes);
    if (own)
      windows_ = std::move(*own);
    else
      opened = tl::unexpected(own.error());
  }
  STRAIT_TRY(request.agree(opened, "share host memory for large messages"));
  // The others have nothing to give, and give what they have.
  STRAIT_ASSIGN(const UniqueFd given, request.rank == 0 ? windows_.share() : staging_[request.rank].share());
  STRAIT_ASSIGN(const auto descriptors, request.exchange(given.get()));
  if (request.rank != 0) {
    auto memory = host_staged::HostMemory::import(descriptors[0].get(), windows_bytes, request.device);
    if (memory)
      windows_ = std::move(*memory);
    else
      opened = tl::unexpected(memory.error());
  }
  return request.agree(opened, "map the host memory for large messages");
}

Status DeviceArenas::probe(const DeviceRank::Request& request, kernels::Mailbox* mailbox) const {
  if (request.ranks == 1) return {};
  cuda::DeviceGuard guard(request.device);
  cudaStream_t stream = nullptr;
  STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream"));
  const Status ran = check(kernels::launch_probe(ring_, stream), "cannot launch the probe of peers' memory");
  const Status ended = check(cudaStreamSynchronize(stream), "the probe of peers' memory failed");
  cudaStreamDestroy(stream);
  STRAIT_TRY(ran);
  STRAIT_TRY(ended);
  if (mailbox->event == kernels::Mailbox::Event::none) return {};
  const std::uint32_t peer = mailbox->peer;
  mailbox->event = kernels::Mailbox::Event::none;
  return fail(Code::unsupported, "the driver grants P2P, but what " + request.watch->name_of(peer) +
                                     " writes into the memory of GPU " + std::to_string(request.device) +
                                     " does not arrive there within " + std::to_string(kernels::probe_timeout_ms) +
                                     " ms, or back. See ACS and IOMMU (`strait doctor`)");
}

}  // namespace strait
