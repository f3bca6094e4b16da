#pragma once

#include <cstddef>
#include <cstdint>

#include "select/exchange_rates.hpp"

namespace strait {

/// Returns the size from which on CPU threads add up exact all-reduces; 0: never. By kernels, a GPU downloads almost
/// twice the size of the message, 2(n-1)/n times; by CPU threads, once. CPU threads are used only if they promise a
/// large gain (docs/host-staged.md), and only if both rates were measured, with all `ranks` working at once.
/// - `meeting` ranks hold parts of the same sum: all ranks, or one of each island. The size is that of their messages.
/// - `crossing` ranks exchange data at the same time: all, or only the first ranks of islands. These may use the
///   bandwidth of all links, but have no more threads each.
std::size_t cpu_reduce_border_bytes(std::uint32_t meeting, std::uint32_t crossing, std::uint32_t ranks,
                                    const ExchangeRates& rates);

/// Returns how many adding threads each rank that adds gets. `wanted` is the most for one rank, `most` for all ranks
/// together. A rank's share is that of one of all `ranks`, even if fewer are `crossing`, because the other ranks need
/// their cores while they wait (with six ranks in four islands, two threads each were slower). It is at least one if
/// `most` suffices for one on each crossing rank.
std::uint32_t cpu_reducers_of_each(std::uint32_t wanted, std::uint32_t most, std::uint32_t ranks, std::size_t crossing);

}  // namespace strait
