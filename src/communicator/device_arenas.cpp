#include "communicator/device_arenas.hpp"

#include <algorithm>
#include <numeric>

#include "base/log.hpp"
#include "base/stages.hpp"
#include "communicator/device_copies.hpp"
#include "communicator/device_islands.hpp"
#include "communicator/device_links.hpp"
#include "communicator/device_reducers.hpp"
#include "kernels/cut.hpp"
#include "kernels/kernels.hpp"

namespace strait {

using cuda::check;
using kernels::arena_bytes;
using kernels::arena_layout;
using kernels::ArenaKind;
using kernels::ArenaLayout;
using kernels::Ring;

namespace {

constexpr std::size_t alignment = 4096;  ///< of copy windows

/// What `members` of a communicator trade over, but for its arenas. `self`: this rank's place among them.
Ring ring_of(const DeviceRank::Request& request, const Island& members, std::uint32_t self, const ArenaLayout& layout) {
  Ring ring{};
  ring.rank = self;
  ring.ranks = static_cast<std::uint32_t>(members.size());
  ring.averaged = request.ranks;
  std::copy(members.begin(), members.end(), ring.members);
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  return ring;
}

template <class Memory>
struct Traded {
  std::vector<Memory> all;    ///< by place among the members
  std::uint32_t missing = 0;  ///< bit r: that of rank r could not be mapped
  Status mapped;              ///< why
};

/// All ranks allocate (as `places` say) and trade descriptors; each maps the memory of `members`, itself among them.
/// `kind` is what of it an error names.
template <class Memory, class... Places>
Result<Traded<Memory>> trade(const DeviceRank::Request& request, const Island& members, std::size_t bytes,
                             const std::string& kind, const Places&... places) {
  Stages stages;
  auto own = Memory::allocate(request.device, bytes, places...);
  stages.done("own");
  auto shared = own ? own->share() : Result<UniqueFd>(tl::unexpected(own.error()));
  STRAIT_TRY(request.agree(shared.map([](const UniqueFd&) {}), "share " + kind));
  STRAIT_ASSIGN(const auto descriptors, request.exchange(shared->get()));
  stages.done("exchange");
  Traded<Memory> traded;
  for (const std::uint32_t peer : members) {
    auto memory =
        peer == request.rank ? std::move(own) : Memory::import(descriptors[peer].get(), bytes, request.device);
    if (memory) {
      traded.all.push_back(std::move(*memory));
      continue;
    }
    traded.all.emplace_back();
    traded.missing |= 1u << peer;
    if (traded.mapped) traded.mapped = tl::unexpected(memory.error());
  }
  stages.done("map");
  log_trace(static_cast<int>(request.rank), "set-up of " + kind + ": " + stages.text());
  return traded;
}

Result<bool> has_async_copies(int device) {
  int capability = 0, block_memory_bytes = 0;
  const auto ask = [&](cudaDeviceAttr what, int& answer) {
    return check(cudaDeviceGetAttribute(&answer, what, device), "cannot ask a GPU what it has");
  };
  STRAIT_TRY(ask(cudaDevAttrComputeCapabilityMajor, capability));
  STRAIT_TRY(ask(cudaDevAttrMaxSharedMemoryPerBlockOptin, block_memory_bytes));
  return capability >= 9 && static_cast<std::uint32_t>(block_memory_bytes) >= kernels::piped_memory_bytes();
}

Result<std::vector<RankNodes>> gather_nodes(const DeviceRank::Request& request) {
  const RankNodes own = RankNodes::find(request.bus_ids[request.rank], request.reducers.cores);
  STRAIT_ASSIGN(const auto words, request.gather(own.word()));
  std::vector<RankNodes> nodes;
  for (const std::uint32_t word : words) nodes.push_back(RankNodes::of_word(word));
  return nodes;
}

Island everybody(std::uint32_t ranks) {
  Island all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace

Result<DeviceArenas> DeviceArenas::open(const DeviceRank::Request& request, kernels::Mailbox* mailbox) {
  DeviceArenas arenas;
  arenas.ring_.staged = true;
  if (request.p2p.use == P2p::off)
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
  constexpr std::size_t counts_bytes = kernels::lane_count * sizeof(kernels::LaneCounts);
  if (!arenas.islands_.empty()) rings.insert(rings.end(), {&arenas.island_ring_, &arenas.across_ring_});
  if (arenas.reducers_memory() != nullptr) rings.push_back(&arenas.reducers_ring_);
  const std::size_t all_counts_bytes = rings.size() * counts_bytes;
  STRAIT_ASSIGN(arenas.counts_,
                cuda::DeviceMemory::allocate(request.device, all_counts_bytes + alignment + words_bytes));
  std::byte* next = arenas.counts_.data();
  for (Ring* ring : rings) {
    ring->mailbox = mailbox;
    ring->counts = reinterpret_cast<kernels::LaneCounts*>(std::exchange(next, next + counts_bytes));
  }
  if (rings.size() > 1)  // one word for all of them
    for (Ring* ring : rings) ring->gave_up = reinterpret_cast<std::uint32_t*>(next);
  arenas.words_ = next + alignment;
  for (Ring* ring : rings) ring->launch_counts = arenas.launch_counts();
  return arenas;
}

/// Blocks may take an SM each.
Status DeviceArenas::bound_blocks(const DeviceRank::Request& request) {
  std::ptrdiff_t sharing = 1;
  for (const std::string& id : request.bus_ids)
    sharing = std::max(sharing, std::count(request.bus_ids.begin(), request.bus_ids.end(), id));
  if (sharing == 1 && islands_.empty()) return {};
  int sms = 0;
  const Status asked = check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, request.device),
                             "cannot ask a GPU how many SMs it has");
  STRAIT_TRY(request.agree(asked, "find room for its launches"));
  STRAIT_ASSIGN(const auto all, request.gather(static_cast<std::uint32_t>(sms)));
  const std::uint32_t of_each = *std::min_element(all.begin(), all.end()) / static_cast<std::uint32_t>(sharing);
  if (sharing > 1) most_blocks_ = std::max(of_each / 2, 1u);
  if (!islands_.empty()) most_message_blocks_ = std::max(of_each / 4, 1u);
  return {};
}

void DeviceArenas::give_up_islands(const std::string& why) {
  islands_.clear();
  peers_.clear();
  why_staged_ = why;
}

Status DeviceArenas::open_islands(const DeviceRank::Request& request, kernels::Mailbox* mailbox) {
  std::string why = request.p2p.groups.empty() ? "" : "STRAIT_P2P=" + request.p2p.text;
  const auto open_and_probe = [&](std::span<const Island> islands) -> Result<Missing> {
    peers_.clear();
    const auto [island, place] = place_of(islands, request.rank);
    STRAIT_ASSIGN(Missing missing, open_island(request, islands[island], place));
    island_ring_.mailbox = mailbox;
    return missing.works ? probe(request) : missing;
  };
  STRAIT_ASSIGN(islands_, find_islands(allowed_reach(request.p2p, request.ranks), why, open_and_probe));
  if (islands_.size() > 1) {
    // By PCIe an island spares nothing on its GPUs' own links, and it changes the order of sums: only for who asks.
    const bool pays = !request.p2p.groups.empty() || island_ring_.ranks == 1 ||
                      kernels::flagged_wire(island_ring_) == kernels::Wire::lines;
    STRAIT_TRY(request.agree(pays ? Status() : fail(Code::unsupported, why + ". NVLink does not join the others"),
                             "use islands that STRAIT_P2P does not name"));
    why_staged_ = why + ". Islands whose GPUs reach one another: " + describe(islands_);
    return {};
  }
  ring_ = std::exchange(island_ring_, {});
  islands_.clear();
  return {};
}

/// What each rank found missing, brought together.
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
  const bool nvlink = request.p2p.use != P2p::pcie && check_nvlink(request.device, bus_ids);
  constexpr std::uint32_t by_nvlink = 1, by_async_copies = 2;
  // Piped kernels take whole SMs: those of ranks that share a GPU might not all find one.
  const bool alone = std::count(bus_ids.begin(), bus_ids.end(), request.bus_ids[request.rank]) == 1;
  STRAIT_ASSIGN(const bool async_copies, has_async_copies(request.device));
  STRAIT_ASSIGN(const auto can,
                request.gather((nvlink ? by_nvlink : 0) | (alone && async_copies ? by_async_copies : 0)));
  const auto all_can = [&](std::uint32_t what) {
    return std::all_of(island.begin(), island.end(), [&](std::uint32_t peer) { return (can[peer] & what) == what; });
  };
  const auto ranks = static_cast<std::uint32_t>(island.size());
  const ArenaKind kind = all_can(by_nvlink) ? ArenaKind::nvlink : ArenaKind::pcie;
  const std::size_t kept_bytes = ranks == request.ranks ? 0 : DeviceIslands::scratch_bytes;
  const ArenaLayout layout = arena_layout(kind, ranks, arena_bytes(kind, ranks) - kept_bytes);
  // A rank that is alone takes part all the same, with as little as can be allocated.
  const bool is_alone = ranks == 1 && request.ranks > 1;
  copy_windows_begin_ = (layout.size_bytes + alignment - 1) / alignment * alignment;
  copy_window_bytes_ = 0;
  if (ranks > 1 && ranks == request.ranks && DeviceCopies::are_wanted(request, false))
    copy_window_bytes_ = request.copy_window_bytes / (ranks - 1) / alignment * alignment;
  const std::size_t bytes = is_alone ? 1 : copy_windows_begin_ + (ranks - 1) * copy_window_bytes_;
  STRAIT_ASSIGN(auto traded, trade<cuda_p2p::SharedMemory>(request, island, bytes, "memory of GPUs"));
  if (!is_alone) peers_ = std::move(traded.all);
  island_ring_ = ring_of(request, island, place, layout);
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) island_ring_.arenas[peer] = peers_[peer].data();
  // Two ranks gain nothing by pipes, whose kernels take 2 MB of each GPU.
  const bool wants_pipes = ranks > 2 || request.piped_bytes == 0;
  island_ring_.has_async_copies = wants_pipes && all_can(by_nvlink | by_async_copies);
  return gather(request, traded.missing, traded.mapped, "map its peers' memory of GPUs");
}

Status DeviceArenas::open_staging(const DeviceRank::Request& request) {
  // What ranks trade across islands lies behind what all trade.
  const std::size_t arenas_bytes = StagingBudget::of(request.host_memory_bytes, false, false).arenas_bytes;
  const std::size_t budget_bytes = arenas_bytes / request.ranks / (islands_.empty() ? 1 : 2);
  const ArenaLayout layout = arena_layout(ArenaKind::host, request.ranks, budget_bytes);
  ArenaLayout across{};
  if (!islands_.empty())
    across = arena_layout(ArenaKind::host, static_cast<std::uint32_t>(islands_.size()), budget_bytes);
  const Island all = everybody(request.ranks);
  STRAIT_ASSIGN(nodes_, gather_nodes(request));
  const std::size_t size_bytes = layout.size_bytes + across.size_bytes;
  STRAIT_ASSIGN(auto traded, trade<host_staged::HostMemory>(request, all, size_bytes, "host memory",
                                                            places_of_arena(size_bytes, nodes_[request.rank])));
  STRAIT_TRY(request.agree(traded.mapped, "map its peers' host memory"));
  staging_ = std::move(traded.all);
  ring_ = ring_of(request, all, request.rank, layout);
  ring_.staged = true;
  for (const std::uint32_t peer : all) ring_.arenas[peer] = staging_[peer].device_data();
  if (!islands_.empty()) STRAIT_TRY(join_across(request, across, layout));
  return open_large(request);
}

/// For copy engines and CPU threads.
Status DeviceArenas::open_large(const DeviceRank::Request& request) {
  reducers_of_each_ =
      cpu_reducers_of_each(request.reducers.threads, request.most_reducers, request.ranks, crossing_ranks());
  const bool has_reducers = reducers_of_each_ > 0 && DeviceReducers::least_bytes(request, meeting_ranks(),
                                                                                 crossing_ranks(), exchange_rates_) > 0;
  const bool has_windows = request.ranks > 1 && DeviceCopies::are_wanted(request, true);
  budget_ = StagingBudget::of(request.host_memory_bytes, has_reducers, has_windows);
  if (has_windows) {
    const staged::StagedOptions options;
    STRAIT_ASSIGN(const auto windows, staged::StagedWindows::within(budget_.windows_bytes, request.ranks, options.depth,
                                                                    options.chunk_bytes));
    STRAIT_ASSIGN(windows_,
                  share_one(request, windows.size_bytes(), "large messages", places_of_windows(windows, nodes_)));
  }
  return has_reducers ? open_reducers(request) : Status();
}

Status DeviceArenas::join_across(const DeviceRank::Request& request, const ArenaLayout& layout,
                                 const ArenaLayout& before) {
  STRAIT_ASSIGN(island_scratch_, cuda::DeviceMemory::allocate_uncleared(request.device, DeviceIslands::scratch_bytes));
  const auto [own, place] = place_of(islands_, request.rank);
  if (islands_[own].size() == 1) {
    // Nobody to trade with; what such a rank does with its own data needs a ring all the same.
    island_ring_ = ring_of(request, islands_[own], 0, before);
    island_ring_.staged = true;
    island_ring_.arenas[0] = ring_.arenas[request.rank];
  }
  if (place != 0 && !are_alike(islands_)) return {};
  Island members;
  for (const Island& island : islands_) members.push_back(island[place]);
  across_ring_ = ring_of(request, members, own, layout);
  across_ring_.staged = true;
  for (std::uint32_t i = 0; i < members.size(); ++i)
    across_ring_.arenas[i] = ring_.arenas[members[i]] + before.size_bytes;
  return {};
}

Result<host_staged::HostMemory> DeviceArenas::share_one(const DeviceRank::Request& request, std::size_t bytes,
                                                        const std::string& what,
                                                        std::span<const PlacedPart> places) const {
  host_staged::HostMemory one;
  Status opened;
  const auto take = [&](Result<host_staged::HostMemory> memory) {
    if (memory)
      one = std::move(*memory);
    else
      opened = tl::unexpected(memory.error());
  };
  if (request.rank == 0) take(host_staged::HostMemory::allocate(request.device, bytes, places));
  STRAIT_TRY(request.agree(opened, "share host memory for " + what));
  // The others have nothing to give, and give what they have.
  STRAIT_ASSIGN(const UniqueFd given, request.rank == 0 ? one.share() : staging_[request.rank].share());
  STRAIT_ASSIGN(const auto descriptors, request.exchange(given.get()));
  if (request.rank != 0) take(host_staged::HostMemory::import(descriptors[0].get(), bytes, request.device));
  STRAIT_TRY(request.agree(opened, "map the host memory for " + what));
  return one;
}

cpu_reducers::ReducerMemory DeviceArenas::reducers_layout() const {
  return cpu_reducers::ReducerMemory::of(static_cast<std::uint32_t>(meeting_ranks()),
                                         budget_.reducers_bytes / meetings());
}

std::size_t DeviceArenas::reducers_offset() const {
  return meetings() > 1 ? place_of(islands_, ring_.rank).place * reducers_layout().size_bytes() : 0;
}

std::vector<PlacedPart> DeviceArenas::reducers_places() const {
  const cpu_reducers::ReducerMemory layout = reducers_layout();
  std::vector<PlacedPart> all;
  for (std::size_t meeting = 0; meeting < meetings(); ++meeting) {
    std::vector<RankNodes> nodes = nodes_;
    if (!islands_.empty()) {
      nodes.clear();
      for (const Island& island : islands_) nodes.push_back(nodes_[island[meeting]]);
    }
    const auto places = places_of_reducers(layout, meeting * layout.size_bytes(), reducers_of_each_, nodes);
    all.insert(all.end(), places.begin(), places.end());
  }
  return all;
}

Status DeviceArenas::open_reducers(const DeviceRank::Request& request) {
  const cpu_reducers::ReducerMemory layout = reducers_layout();
  STRAIT_ASSIGN(reducers_memory_,
                share_one(request, meetings() * layout.size_bytes(), "CPU reducers", reducers_places()));
  if (meeting_ring().ranks == 0) {  // what this rank has is added up on its GPU's island
    reducers_memory_ = {};
    return {};
  }
  const std::uint32_t place = meeting_ring().rank;
  std::byte* const memory = reducers_memory_.device_data() + reducers_offset();
  reducers_ring_.rank = cpu_reducers::ReducerMemory::gpu;
  reducers_ring_.ranks = 2;
  reducers_ring_.staged = true;
  reducers_ring_.arenas[cpu_reducers::ReducerMemory::gpu] = memory + layout.up(place);
  reducers_ring_.arenas[cpu_reducers::ReducerMemory::threads] = memory + layout.down(place);
  reducers_ring_.slots[static_cast<std::size_t>(kernels::Wire::bulk)] = layout.wire_slots(place);
  reducers_ring_.members[cpu_reducers::ReducerMemory::gpu] = static_cast<std::uint8_t>(request.rank);
  reducers_ring_.members[cpu_reducers::ReducerMemory::threads] = awaits_reducers;
  return {};
}

/// Rank 0's; the others have no use for theirs.
Status DeviceArenas::open_peer_words(const DeviceRank::Request& request) {
  const staged::MessageWords words{request.ranks};
  STRAIT_ASSIGN(auto traded,
                trade<host_staged::HostMemory>(request, everybody(1), words.size_bytes(), "words of host memory"));
  STRAIT_TRY(request.agree(traded.mapped, "map words of host memory"));
  peer_words_ = std::move(traded.all.front());
  return {};
}

Result<Missing> DeviceArenas::probe(const DeviceRank::Request& request) {
  std::uint32_t unreached = 0;
  const Status ran = run_probe(request.device, unreached);
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
                                      " ms, or back. See ACS and IOMMU (`strait doctor`)");
  return gather(request, missing, reached, "reach its peers' memory");
}

/// `unreached`: bit r: rank r of the island.
Status DeviceArenas::run_probe(int device, std::uint32_t& unreached) const {
  if (island_ring_.ranks == 1) return {};
  cuda::DeviceGuard guard(device);
  cudaStream_t stream = nullptr;
  STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream"));
  const Status ran = check(kernels::launch_probe(island_ring_, stream), "cannot launch the probe of peers' memory");
  const Status ended = check(cudaStreamSynchronize(stream), "the probe of peers' memory failed");
  cudaStreamDestroy(stream);
  STRAIT_TRY(ran);
  STRAIT_TRY(ended);
  unreached = std::exchange(island_ring_.mailbox->unreached, 0);
  island_ring_.mailbox->event = kernels::Mailbox::Event::none;
  return {};
}

}  // namespace strait
