#include "device/device_registrations.hpp"

#include <algorithm>
#include <iterator>

#include "base/log.hpp"

namespace strait {
namespace {

/// Returns the numbers of all ranks, by rank. Collective.
Result<std::vector<std::size_t>> gather(const DeviceRank::Request& request, std::size_t number) {
  STRAIT_ASSIGN(const auto low, request.gather(static_cast<std::uint32_t>(number)));
  STRAIT_ASSIGN(const auto high, request.gather(static_cast<std::uint32_t>(number >> 32)));
  std::vector<std::size_t> all;
  for (std::size_t rank = 0; rank < low.size(); ++rank) all.push_back(std::size_t{high[rank]} << 32 | low[rank]);
  return all;
}

}  // namespace

Status DeviceRegistrations::add(const DeviceRank::Request& request, std::uint64_t number, void* pointer,
                                std::size_t bytes) {
  were_any_ = true;  // whatever the result, which may differ between ranks
  Registration registration{static_cast<std::byte*>(pointer), {}, {}, {}};
  Status own;
  if (auto memory = UserMemory::find(pointer, bytes, request.device))
    registration.own = std::move(*memory);
  else
    own = tl::unexpected(memory.error());
  STRAIT_TRY(request.agree(own, "register its memory"));
  STRAIT_TRY(map_peers(request, registration));
  at_peers_.numbers[number % kernels::most_registered] = number;
  std::copy(registration.addresses.begin(), registration.addresses.end(),
            at_peers_.begins[number % kernels::most_registered]);
  all_.insert_or_assign(number, std::move(registration));
  Status ranged = add_range(request, number, pointer, bytes);  // last: a range must name what is in all_
  if (!ranged) remove(number);
  return ranged;
}

void DeviceRegistrations::remove(std::uint64_t number) {
  ranges_.remove(number);
  std::uint64_t& latest = at_peers_.numbers[number % kernels::most_registered];
  if (latest == number) latest = 0;
  const auto found = all_.find(number);
  if (found == all_.end()) return;
  if (found->second.stays)
    std::move(found->second.peers.begin(), found->second.peers.end(), std::back_inserter(staying_));
  all_.erase(found);
}

void DeviceRegistrations::stay_for_graphs() {
  for (auto& [number, registration] : all_) registration.stays = true;
}

Status DeviceRegistrations::add_range(const DeviceRank::Request& request, std::uint64_t number, const void* pointer,
                                      std::size_t bytes) {
  STRAIT_ASSIGN(const auto lengths, gather(request, bytes));
  const std::size_t least_bytes = *std::min_element(lengths.begin(), lengths.end());
  const auto own = ranges_.overlaps(pointer, least_bytes);
  STRAIT_ASSIGN(const auto counts, gather(request, own.size()));
  std::vector<std::vector<RegisteredRanges::Overlap>> all(request.ranks);
  for (std::size_t i = 0; i < *std::max_element(counts.begin(), counts.end()); ++i) {
    const auto each = i < own.size() ? own[i] : RegisteredRanges::Overlap{};
    STRAIT_ASSIGN(const auto frames, gather(request, each.frame));
    STRAIT_ASSIGN(const auto distances, gather(request, static_cast<std::size_t>(each.distance)));
    for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
      if (i < counts[rank]) all[rank].push_back({frames[rank], static_cast<std::int64_t>(distances[rank])});
  }
  if (!ranges_.add(number, pointer, least_bytes, all) && request.rank == 0)
    log_info(0,
             "memory that is registered overlaps what was registered before, and not alike on all ranks: calls do "
             "not go straight into either");
  return {};
}

/// All ranks exchange as many allocations as the rank with the most has; ranks that have fewer give their first one
/// again.
Status DeviceRegistrations::map_peers(const DeviceRank::Request& request, Registration& registration) {
  const std::vector<std::size_t> own_sizes = registration.own.sizes_bytes();
  STRAIT_ASSIGN(const auto offsets, gather(request, registration.own.offset()));
  STRAIT_ASSIGN(const auto counts, gather(request, own_sizes.size()));
  std::vector<std::vector<UniqueFd>> shared(request.ranks);
  std::vector<std::vector<std::size_t>> sizes(request.ranks);
  for (std::size_t i = 0; i < *std::max_element(counts.begin(), counts.end()); ++i) {
    const std::size_t number = i < own_sizes.size() ? i : 0;
    auto part = registration.own.share(number);
    STRAIT_TRY(request.agree(part.map([](const UniqueFd&) {}), "share its memory"));
    STRAIT_ASSIGN(auto descriptors, request.exchange(part->get()));
    STRAIT_ASSIGN(const auto part_sizes, gather(request, own_sizes[number]));
    for (std::uint32_t rank = 0; rank < request.ranks; ++rank) {
      if (rank == request.rank || i >= counts[rank]) continue;
      shared[rank].push_back(std::move(descriptors[rank]));
      sizes[rank].push_back(part_sizes[rank]);
    }
  }
  Status mapped;
  registration.peers.resize(request.ranks);
  for (std::uint32_t rank = 0; rank < request.ranks && mapped; ++rank) {
    registration.addresses[rank] = registration.begin;
    if (rank == request.rank) continue;
    auto memory = PeerMemory::import(shared[rank], sizes[rank], request.device);
    if (!memory) {
      mapped = tl::unexpected(memory.error());
      continue;
    }
    registration.peers[rank] = std::move(*memory);
    registration.addresses[rank] = registration.peers[rank].data() + offsets[rank];
  }
  return request.agree(mapped, "map its peers' registered memory");
}

Result<std::optional<RegisteredRanges::Place>> DeviceRegistrations::find_range(const void* pointer,
                                                                               std::size_t bytes) const {
  const auto found = ranges_.find(pointer, bytes);
  if (found && !all_.at(found->number).own.is_still_there())
    return fail(Code::invalid_usage,
                "the memory of this buffer was registered, and freed since then, so that its peers would write into "
                "what no longer is there. Deregister memory before it is freed (straitCommDeregister, "
                "ncclCommWindowDeregister)");
  return found;
}

Result<std::optional<DeviceRegistrations::Place>> DeviceRegistrations::find(const void* pointer,
                                                                            std::size_t bytes) const {
  STRAIT_ASSIGN(const auto found, find_range(pointer, bytes));
  if (!found) return std::optional<Place>();
  Place place{found->frame, found->distance, all_.at(found->number).addresses};
  for (std::byte*& address : place.addresses)
    if (address != nullptr) address += found->offset;
  return place;
}

Result<std::uint64_t> DeviceRegistrations::offer(const void* pointer, std::size_t bytes) const {
  STRAIT_ASSIGN(const auto found, find_range(pointer, bytes));
  // Peers no longer know of older registrations, or would take the one now at its place for it if the lower bits of
  // both numbers are equal.
  if (!found || at_peers_.numbers[found->number % kernels::most_registered] != found->number) return 0;
  return kernels::offer_of(found->number, found->offset);
}

}  // namespace strait
