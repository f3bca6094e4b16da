#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/exchange_rates.hpp"

/// What GPUs exchange through host memory, as their ranks measure it when they make a communicator. Of ports that
/// several GPUs share without PCIe showing it nothing else tells.
namespace strait {

/// Copies so many bytes each way at once between this rank's GPU and its host memory; how long that took.
using CopyBothWays = std::function<Result<std::chrono::nanoseconds>(std::size_t bytes)>;
/// All ranks' words, by rank. Collective, so that all begin together what comes next.
using GatherWords = std::function<Result<std::vector<std::uint32_t>>(std::uint32_t word)>;

struct MeasuredExchange {
  /// Each way, of the slowest rank, each in its best round; 0: unknown, for no rank could measure, or all was held up.
  double gbps = 0;
  std::uint32_t ranks = 0;  ///< that could measure
  std::size_t bytes = 0;    ///< each way, of a round
  Status own;               ///< why this rank could not
};

/// Collective: the same on all ranks, but for `own`. All copy in rounds that begin together, of more and more bytes
/// until one takes long enough for a sound rate; then some more. The slowest rank's times, which all see, decide how it
/// goes on, so that rounds stay few where links are slow. A rank whose copy fails copies no more and holds nobody up.
/// The error: `gather`'s.
Result<MeasuredExchange> measure_exchange(const CopyBothWays& copy, const GatherWords& gather);

/// What goes by what was measured: only what is clearly less than what is known otherwise, for noise must not move
/// borders from one communicator to the next. Nothing raises a rate, and nothing changes one that is settled.
ExchangeRates with_measured(ExchangeRates known, double measured_gbps);

/// For the log: what was measured, what links tell, and which of both calls are cut for.
std::string describe(const MeasuredExchange& measured, const ExchangeRates& known, std::uint32_t ranks);

}  // namespace strait
