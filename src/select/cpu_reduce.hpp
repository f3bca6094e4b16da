#pragma once

#include <cstddef>
#include <cstdint>

#include "select/exchange_rates.hpp"

namespace strait {

/// Exact all-reduces from this length on are added up by CPU threads; 0: none. Through the GPUs every message comes
/// down almost twice, 2(n-1)/n times, and once where CPUs add. Taken where that promises much, for a promise of 1.5 has
/// not been kept by four H200 (docs/gpus.md), and only where both rates were measured, with all `ranks` at work.
/// `meeting`: how many have parts of the same sums, of which the length counts: all ranks, or one of each island.
/// `crossing`: how many of the ranks do so at a time: all, or only the first ones of islands, which may have all of the
/// links, but no more threads each.
std::size_t cpu_reduce_border_bytes(std::uint32_t meeting, std::uint32_t crossing, std::uint32_t ranks,
                                    const ExchangeRates& rates);

/// Threads of a rank that adds up, of so many `wanted`, and of all ranks together `most`: its share as one of all
/// ranks, for these need their cores while they wait (six ranks, four islands: two were slower); one at least, if there
/// are enough for all that are `crossing`.
std::uint32_t cpu_reducers_of_each(std::uint32_t wanted, std::uint32_t most, std::uint32_t ranks, std::size_t crossing);

}  // namespace strait
