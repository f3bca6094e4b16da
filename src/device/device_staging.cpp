// The host memory through which GPU ranks exchange data if their GPUs cannot access one another's memory.
#include <algorithm>
#include <utility>

#include "device/arena_trade.hpp"
#include "device/device_arenas.hpp"
#include "device/device_copies.hpp"
#include "device/device_links.hpp"
#include "device/device_reducers.hpp"
#include "device/exchange_copies.hpp"
#include "executor/copy_engine/windows.hpp"
#include "launches/device_islands.hpp"
#include "select/measured_rate.hpp"

namespace strait {

using kernels::arena_layout;
using kernels::ArenaKind;
using kernels::ArenaLayout;

namespace {

Result<std::vector<RankNodes>> gather_nodes(const DeviceRank::Request& request) {
  const RankNodes own = RankNodes::find(request.bus_ids[request.rank], request.options.reducers.cores);
  STRAIT_ASSIGN(const auto words, request.gather(own.word()));
  std::vector<RankNodes> nodes;
  for (const std::uint32_t word : words) nodes.push_back(RankNodes::of_word(word));
  return nodes;
}

}  // namespace

Status DeviceArenas::open_staging(const DeviceRank::Request& request) {
  ring_.ranks = request.ranks;
  STRAIT_TRY(share_budget(request));
  // The slots of the ring across islands follow those of the ring of all ranks.
  const std::size_t budget_bytes = budget_.arenas_bytes / request.ranks / (islands_.empty() ? 1 : 2);
  const ArenaLayout layout = arena_layout(ArenaKind::host, request.ranks, budget_bytes);
  ArenaLayout across{};
  if (!islands_.empty())
    across = arena_layout(ArenaKind::host, static_cast<std::uint32_t>(islands_.size()), budget_bytes);
  const Island all = everybody(request.ranks);
  STRAIT_ASSIGN(nodes_, gather_nodes(request));
  const std::size_t size_bytes = layout.size_bytes + across.size_bytes;
  const auto places = places_of_arena(size_bytes, nodes_[request.rank]);
  STRAIT_ASSIGN(auto traded,
                trade(
                    request, all, "host memory",
                    [&] { return HostMemory::allocate(request.device, size_bytes, staging_share_.lease, places); },
                    [&](int fd) { return HostMemory::import(fd, size_bytes, request.device, staging_share_.lease); }));
  STRAIT_TRY(request.agree(traded.mapped, "map its peers' host memory"));
  staging_ = std::move(traded.all);
  STRAIT_TRY(measure_rates(request, layout));
  ring_ = ring_of(request, all, request.rank, layout);
  ring_.staged = true;
  for (const std::uint32_t peer : all) ring_.arenas[peer] = staging_[peer].device_data();
  if (!islands_.empty()) STRAIT_TRY(join_across(request, across, layout));
  STRAIT_TRY(open_large(request));
  settle_staging(request, staging_share_, request.ranks * size_bytes + windows_.size_bytes() + all_reducers_bytes());
  return {};
}

/// Measures what GPUs exchange with host memory, unless the user has set that rate. All ranks copy at once, to and from
/// the bulk slots of their own arenas, which are not in use yet, and in which there are never packets.
Status DeviceArenas::measure_rates(const DeviceRank::Request& request, const ArenaLayout& layout) {
  if (request.ranks == 1 || exchange_rates_.is_fixed_by_user) return {};
  const std::size_t begin_bytes = layout.slots[static_cast<std::size_t>(kernels::Protocol::bulk)].offset_bytes;
  std::byte* const slots = staging_[request.rank].data() + begin_bytes;
  auto copies =
      ExchangeCopies::open({request.device, std::span(slots, layout.size_bytes - begin_bytes), request.goes_on});
  const auto copy = [&](std::size_t bytes) {
    return copies ? copies->copy(bytes) : Result<std::chrono::nanoseconds>(tl::unexpected(copies.error()));
  };
  const auto measured = measure_exchange(copy, request.gather);
  if (copies && !copies->have_ended()) {
    (void)new auto(std::move(staging_));  // leaked: copies may still go there
    return tl::unexpected(measured ? measured->own.error() : measured.error());
  }
  STRAIT_TRY(measured);
  if (!measured->own)
    log_warn(static_cast<int>(request.rank),
             "what its GPU exchanges with host memory stays unknown: " + measured->own.error().message);
  if (request.rank == 0) log_info(0, describe(*measured, exchange_rates_, request.ranks));
  exchange_rates_ = with_measured(exchange_rates_, measured->gbps);
  return {};
}

/// Divides the memory between kernels, copy engines and CPU threads.
Status DeviceArenas::share_budget(const DeviceRank::Request& request) {
  reducer_threads_per_rank_ =
      cpu_reducers_of_each(request.options.reducers.threads, request.most_reducers, request.ranks, crossing_ranks());
  const bool has_reducers =
      reducer_threads_per_rank_ > 0 &&
      DeviceReducers::least_bytes(request, meeting_ranks(), crossing_ranks(), exchange_rates_) > 0;
  const bool has_windows = request.ranks > 1 && DeviceCopies::are_wanted(request, true);
  STRAIT_ASSIGN(staging_share_, agree_on_staging(request, has_reducers, has_windows));
  budget_ = StagingBudget::of(staging_share_.bytes, has_reducers, has_windows);
  return {};
}

/// Allocates the memory for copy engines and CPU threads.
Status DeviceArenas::open_large(const DeviceRank::Request& request) {
  if (budget_.windows_bytes > 0) {
    const copy_engine::StagedOptions options;
    STRAIT_ASSIGN(const auto windows, copy_engine::StagedWindows::within(budget_.windows_bytes, request.ranks,
                                                                         options.depth, options.chunk_bytes));
    STRAIT_ASSIGN(windows_,
                  share_one(request, windows.size_bytes(), "large messages", places_of_windows(windows, nodes_)));
  }
  return budget_.reducers_bytes > 0 ? open_reducers(request) : Status();
}

Status DeviceArenas::join_across(const DeviceRank::Request& request, const ArenaLayout& layout,
                                 const ArenaLayout& before) {
  STRAIT_ASSIGN(island_scratch_, cuda::DeviceMemory::allocate_uncleared(request.device, DeviceIslands::scratch_bytes));
  const auto [own, place] = place_of(islands_, request.rank);
  if (islands_[own].size() == 1) {
    // The rank has no peer in its island, but what it does with its own data needs a ring all the same.
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

Result<HostMemory> DeviceArenas::share_one(const DeviceRank::Request& request, std::size_t bytes,
                                           const std::string& what, std::span<const PlacedPart> places) const {
  HostMemory one;
  Status opened;
  const auto take = [&](Result<HostMemory> memory) {
    if (memory)
      one = std::move(*memory);
    else
      opened = tl::unexpected(memory.error());
  };
  if (request.rank == 0) take(HostMemory::allocate(request.device, bytes, staging_share_.lease, places));
  STRAIT_TRY(request.agree(opened, "share host memory for " + what));
  // All ranks must give a descriptor; those of the others are not used.
  STRAIT_ASSIGN(const UniqueFd given, request.rank == 0 ? one.share() : staging_[request.rank].share());
  STRAIT_ASSIGN(const auto descriptors, request.exchange(given.get()));
  if (request.rank != 0) take(HostMemory::import(descriptors[0].get(), bytes, request.device, staging_share_.lease));
  STRAIT_TRY(request.agree(opened, "map the host memory for " + what));
  return one;
}

cpu_reducers::ReducerMemory DeviceArenas::reducers_layout() const {
  return cpu_reducers::ReducerMemory::of(static_cast<std::uint32_t>(meeting_ranks()),
                                         budget_.reducers_bytes / meeting_count());
}

std::size_t DeviceArenas::all_reducers_bytes() const {
  return budget_.reducers_bytes > 0 ? meeting_count() * reducers_layout().size_bytes() : 0;
}

std::size_t DeviceArenas::reducers_offset() const {
  return meeting_count() > 1 ? place_of(islands_, ring_.rank).place * reducers_layout().size_bytes() : 0;
}

std::vector<PlacedPart> DeviceArenas::reducers_places() const {
  const cpu_reducers::ReducerMemory layout = reducers_layout();
  std::vector<PlacedPart> all;
  for (std::size_t meeting = 0; meeting < meeting_count(); ++meeting) {
    std::vector<RankNodes> nodes = nodes_;
    if (!islands_.empty()) {
      nodes.clear();
      for (const Island& island : islands_) nodes.push_back(nodes_[island[meeting]]);
    }
    const auto places = places_of_reducers(layout, meeting * layout.size_bytes(), reducer_threads_per_rank_, nodes);
    all.insert(all.end(), places.begin(), places.end());
  }
  return all;
}

Status DeviceArenas::open_reducers(const DeviceRank::Request& request) {
  const cpu_reducers::ReducerMemory layout = reducers_layout();
  STRAIT_ASSIGN(reducers_memory_, share_one(request, all_reducers_bytes(), "CPU reducers", reducers_places()));
  if (meeting_ring().ranks == 0) {  // its contribution is added up within its island
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
  reducers_ring_.slots[static_cast<std::size_t>(kernels::Protocol::bulk)] = layout.protocol_slots(place);
  reducers_ring_.members[cpu_reducers::ReducerMemory::gpu] = static_cast<std::uint8_t>(request.rank);
  reducers_ring_.members[cpu_reducers::ReducerMemory::threads] = awaits_reducers;
  return {};
}

/// All ranks map the memory of rank 0; the others do not keep theirs.
Status DeviceArenas::open_peer_words(const DeviceRank::Request& request) {
  const copy_engine::MessageWords words{request.ranks};
  const std::size_t bytes = words.size_bytes();
  STRAIT_ASSIGN(auto traded, trade(
                                 request, everybody(1), "words of host memory",
                                 [&] { return HostMemory::allocate(request.device, bytes); },
                                 [&](int fd) { return HostMemory::import(fd, bytes, request.device); }));
  STRAIT_TRY(request.agree(traded.mapped, "map words of host memory"));
  peer_words_ = std::move(traded.all.front());
  return {};
}

}  // namespace strait
