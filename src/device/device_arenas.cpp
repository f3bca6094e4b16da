#include "device/device_arenas.hpp"

#include <algorithm>

#include "device/arena_trade.hpp"
#include "device/device_copies.hpp"
#include "device/device_links.hpp"
#include "kernels/cut.hpp"
#include "kernels/kernels.hpp"
#include "launches/device_islands.hpp"

namespace strait {

using cuda::check;
using kernels::arena_bytes;
using kernels::arena_layout;
using kernels::ArenaKind;
using kernels::ArenaLayout;
using kernels::Ring;

namespace {

constexpr std::size_t alignment = 4096;                                                  ///< of copy windows
constexpr std::size_t counts_bytes = kernels::lane_count * sizeof(kernels::LaneCounts);  ///< lane counters of a ring

Result<bool> has_async_copies(int device) {
  int block_memory_bytes = 0;
  STRAIT_TRY(check(cudaDeviceGetAttribute(&block_memory_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                   "cannot ask a GPU what it has"));
  STRAIT_ASSIGN(const int compiled, cuda::compiled_for(kernels::piped_copy_kernel(true).kernel));
  return compiled >= kernels::least_piped_capability &&
         static_cast<std::uint32_t>(block_memory_bytes) >= kernels::piped_memory_bytes();
}

}  // namespace

/// Returns the bytes for the lane counters of so many rings, Ring::gave_up, and barrier_and_launch_words_.
std::size_t DeviceArenas::counters_memory_bytes(std::size_t rings) {
  return rings * counts_bytes + alignment + barrier_and_launch_words_bytes;
}

Result<DeviceArenas> DeviceArenas::open(const DeviceRank::Request& request, kernels::Mailbox* mailbox) {
  DeviceArenas arenas;
  arenas.ring_.staged = true;
  if (request.options.p2p->use == P2p::off)
    arenas.why_staged_ = "P2P is switched off (STRAIT_P2P, NCCL_P2P_DISABLE)";
  else if (const Status direct = arenas.open_islands(request, mailbox); !direct)
    arenas.give_up_islands(direct.error().message);
  STRAIT_TRY(arenas.bound_blocks(request));
  if (request.ranks > 1 && kernels::kind_of(arenas.ring_) != ArenaKind::nvlink) {
    STRAIT_ASSIGN(arenas.exchange_rates_, request.exchange_rates(arenas.is_staged()));
  }
  if (arenas.is_staged())
    STRAIT_TRY(arenas.open_staging(request));
  else if (arenas.copy_window_bytes_ > 0)
    STRAIT_TRY(arenas.open_peer_words(request));
  std::vector<Ring*> rings{&arenas.ring_};
  if (!arenas.islands_.empty()) rings.insert(rings.end(), {&arenas.island_ring_, &arenas.across_ring_});
  if (arenas.reducers_memory() != nullptr) rings.push_back(&arenas.reducers_ring_);
  std::byte* next = arenas.is_staged() ? nullptr : arenas.ring_.arenas[request.rank] + arenas.counters_memory_begin_;
  if (next == nullptr) {
    STRAIT_ASSIGN(arenas.counters_memory_,
                  cuda::DeviceMemory::allocate(request.device, counters_memory_bytes(rings.size())));
    next = arenas.counters_memory_.data();
  }
  for (Ring* ring : rings) {
    ring->mailbox = mailbox;
    ring->counts = reinterpret_cast<kernels::LaneCounts*>(std::exchange(next, next + counts_bytes));
  }
  // All rings share one word. A single ring needs it only if launches may give up before all ranks see the failure.
  if (rings.size() > 1 || request.timeout_ms != 0 || !request.shares_control)
    for (Ring* ring : rings) ring->gave_up = reinterpret_cast<std::uint32_t*>(next);
  arenas.barrier_and_launch_words_ = next + alignment;
  for (Ring* ring : rings) ring->launch_counts = arenas.launch_counts();
  return arenas;
}

/// Bounds the blocks of launches that must be on a GPU at the same time: each block may take an SM.
Status DeviceArenas::bound_blocks(const DeviceRank::Request& request) {
  std::ptrdiff_t sharing = 1;
  for (const std::string& id : request.bus_ids)
    sharing = std::max(sharing, std::count(request.bus_ids.begin(), request.bus_ids.end(), id));
  int sms = 0;
  const Status asked = check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, request.device),
                             "cannot ask a GPU how many SMs it has");
  STRAIT_TRY(request.agree(asked, "find room for its launches"));
  STRAIT_ASSIGN(const auto all, request.gather(static_cast<std::uint32_t>(sms)));
  const std::uint32_t share = *std::min_element(all.begin(), all.end()) / static_cast<std::uint32_t>(sharing);
  least_sms_ = share > request.spared_sms ? share - request.spared_sms : 1;
  if (sharing > 1) most_blocks_ = std::max(least_sms_ / 2, 1u);
  if (!islands_.empty()) most_message_blocks_ = std::max(least_sms_ / 4, 1u);
  return {};
}

void DeviceArenas::give_up_islands(const std::string& why) {
  islands_.clear();
  peers_.clear();
  why_staged_ = why;
}

Status DeviceArenas::open_islands(const DeviceRank::Request& request, kernels::Mailbox* mailbox) {
  std::string why = request.options.p2p->groups.empty() ? "" : "STRAIT_P2P=" + request.options.p2p->text;
  const auto open_and_probe = [&](std::span<const Island> islands) -> Result<Missing> {
    peers_.clear();
    const auto [island, place] = place_of(islands, request.rank);
    STRAIT_ASSIGN(Missing missing, open_island(request, islands[island], place));
    island_ring_.mailbox = mailbox;
    return missing.works ? probe(request) : missing;
  };
  STRAIT_ASSIGN(islands_, find_islands(allowed_reach(*request.options.p2p, request.ranks), why, open_and_probe));
  if (islands_.size() > 1) {
    // Over PCIe an island saves nothing on its GPUs' own links, and it changes the order of sums: so only if the user
    // names it.
    const bool pays = !request.options.p2p->groups.empty() || island_ring_.ranks == 1 ||
                      kernels::flagged_protocol(island_ring_) == kernels::Protocol::lines;
    STRAIT_TRY(request.agree(pays ? Status() : fail(Code::unsupported, why + ". NVLink does not join the others"),
                             "use islands that STRAIT_P2P does not name"));
    why_staged_ = why + ". Islands whose GPUs reach one another: " + describe(islands_);
    return {};
  }
  ring_ = std::exchange(island_ring_, {});
  islands_.clear();
  return {};
}

/// Gathers what each rank has found missing.
Result<Missing> DeviceArenas::gather(const DeviceRank::Request& request, std::uint32_t missing, const Status& own,
                                     const std::string& what) {
  Missing all{request.agree(own, what), {}};
  STRAIT_ASSIGN(all.ranks, request.gather(missing));
  return all;
}

Result<Missing> DeviceArenas::open_island(const DeviceRank::Request& request, const Island& island,
                                          std::uint32_t place) {
  std::vector<std::string> bus_ids;
  for (const std::uint32_t peer : island) bus_ids.push_back(request.bus_ids[peer]);
  const bool nvlink = request.options.p2p->use != P2p::pcie && check_nvlink(request.device, bus_ids);
  constexpr std::uint32_t by_nvlink = 1, by_async_copies = 2;
  // Blocks of piped kernels take whole SMs: if ranks share a GPU, the blocks of all of them might not fit at once.
  const bool alone = std::count(bus_ids.begin(), bus_ids.end(), request.bus_ids[request.rank]) == 1;
  // An error must not return here: the others wait in gather().
  const bool async_copies = alone && has_async_copies(request.device).value_or(false);
  STRAIT_ASSIGN(const auto can, request.gather((nvlink ? by_nvlink : 0) | (async_copies ? by_async_copies : 0)));
  const auto all_can = [&](std::uint32_t what) {
    return std::all_of(island.begin(), island.end(), [&](std::uint32_t peer) { return (can[peer] & what) == what; });
  };
  const auto ranks = static_cast<std::uint32_t>(island.size());
  const ArenaKind kind = all_can(by_nvlink) ? ArenaKind::nvlink : ArenaKind::pcie;
  const bool are_all = ranks == request.ranks;
  const ArenaLayout layout = arena_layout(kind, ranks, arena_bytes(kind, ranks) - counters_memory_bytes(1));
  // A rank that is alone in its island takes part in the trade with as little memory as can be allocated.
  const bool is_alone = ranks == 1 && request.ranks > 1;
  copy_windows_begin_ = (layout.size_bytes + alignment - 1) / alignment * alignment;
  copy_window_bytes_ = 0;
  if (ranks > 1 && are_all && DeviceCopies::are_wanted(request, false))
    copy_window_bytes_ = request.options.copy_window_bytes / (ranks - 1) / alignment * alignment;
  counters_memory_begin_ = copy_windows_begin_ + (ranks - 1) * copy_window_bytes_;
  const std::size_t bytes = is_alone ? 1 : counters_memory_begin_ + (are_all ? counters_memory_bytes(1) : 0);
  STRAIT_ASSIGN(auto traded,
                trade(
                    request, island, "memory of GPUs", [&] { return SharedMemory::allocate(request.device, bytes); },
                    [&](int fd) { return SharedMemory::import(fd, bytes, request.device); }));
  if (!is_alone) peers_ = std::move(traded.all);
  island_ring_ = ring_of(request, island, place, layout);
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) island_ring_.arenas[peer] = peers_[peer].data();
  island_ring_.has_async_copies = all_can(by_nvlink | by_async_copies);
  return gather(request, traded.missing, traded.mapped, "map its peers' memory of GPUs");
}

/// A GPU may be so busy with what the program has queued there that its kernel starts too late for the others.
Result<Missing> DeviceArenas::probe(const DeviceRank::Request& request) {
  STRAIT_ASSIGN(const Missing first, probe_once(request, 0));
  return first.works ? first : probe_once(request, 1);
}

Result<Missing> DeviceArenas::probe_once(const DeviceRank::Request& request, std::uint32_t attempt) {
  std::uint32_t unreached = 0;
  const Status ran = run_probe(request.device, attempt, unreached);
  STRAIT_TRY(request.agree(ran, "probe its peers' memory"));
  Status reached;
  std::uint32_t missing = 0;
  for (std::uint32_t peer = 0; peer < island_ring_.ranks; ++peer)
    if ((unreached >> peer & 1) != 0) missing |= 1u << island_ring_.members[peer];
  for (std::uint32_t peer = 0; peer < request.ranks && reached; ++peer)
    if ((missing >> peer & 1) != 0)
      reached =
          fail(Code::unsupported, "the driver grants P2P, but what " + request.watch->name_of(peer) +
                                      " writes into the memory of GPU " + std::to_string(request.device) +
                                      " does not arrive there within " + std::to_string(kernels::probe_timeout_ms) +
                                      " ms, or back, in two attempts. See ACS and IOMMU (`strait doctor`)");
  return gather(request, missing, reached, "reach its peers' memory");
}

/// Runs the probe's kernel. `unreached`: bit r is set for a rank r of the island with which it did not succeed.
Status DeviceArenas::run_probe(int device, std::uint32_t attempt, std::uint32_t& unreached) const {
  if (island_ring_.ranks == 1) return {};
  cuda::DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream"));
  const Status ran =
      check(kernels::launch_probe(island_ring_, attempt, stream), "cannot launch the probe of peers' memory");
  const Status ended = check(cudaStreamSynchronize(stream), "the probe of peers' memory failed");
  cudaStreamDestroy(stream);
  STRAIT_TRY(ran);
  STRAIT_TRY(ended);
  unreached = kernels::take_unreached(*island_ring_.mailbox);
  return {};
}

}  // namespace strait
