#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/stages.hpp"
#include "device/device_rank.hpp"
#include "kernels/layout.hpp"

/// How the ranks of a host share and map the memory through which they exchange data.
namespace strait {

/// Returns the ring of `members` of a communicator with this layout; arenas, counters and mailbox are left unset.
/// `self`: this rank's place among the members.
inline kernels::Ring ring_of(const DeviceRank::Request& request, const Island& members, std::uint32_t self,
                             const kernels::ArenaLayout& layout) {
  kernels::Ring ring{};
  ring.rank = self;
  ring.ranks = static_cast<std::uint32_t>(members.size());
  ring.averaged = request.ranks;
  std::copy(members.begin(), members.end(), ring.members);
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  return ring;
}

inline Island everybody(std::uint32_t ranks) {
  Island all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

template <class Memory>
struct Traded {
  std::vector<Memory> all;    ///< by place among the members
  std::uint32_t missing = 0;  ///< bit r: the memory of rank r could not be mapped
  Status mapped;              ///< the first reason, if any
};

/// Calls `allocate`, exchanges file descriptors of the memory with all ranks, and maps that of all `members` by calling
/// `take` with their descriptors (this rank's own is mapped already). `kind` names the memory in errors. Collective
/// over all ranks. The result tells which memory could not be mapped; any other failure is an error.
template <class Allocate, class Take>
auto trade(const DeviceRank::Request& request, const Island& members, const std::string& kind, const Allocate& allocate,
           const Take& take) -> Result<Traded<typename decltype(allocate())::value_type>> {
  using Memory = typename decltype(allocate())::value_type;
  Stages stages;
  Result<Memory> own = allocate();
  stages.done("own");
  auto shared = own ? own->share() : Result<UniqueFd>(tl::unexpected(own.error()));
  STRAIT_TRY(request.agree(shared.map([](const UniqueFd&) {}), "share " + kind));
  STRAIT_ASSIGN(const auto descriptors, request.exchange(shared->get()));
  stages.done("exchange");
  Traded<Memory> traded;
  for (const std::uint32_t peer : members) {
    Result<Memory> memory = peer == request.rank ? std::move(own) : take(descriptors[peer].get());
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

}  // namespace strait
