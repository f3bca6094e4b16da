#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/exchange_rates.hpp"

/// The rate at which GPUs exchange through host memory, measured by their ranks when they make a communicator. Nothing
/// else reveals ports that several GPUs share without PCIe showing it.
namespace strait {

/// Copies `bytes` each way at once between this rank's GPU and its host memory, and returns how long that took.
using CopyBothWays = std::function<Result<std::chrono::nanoseconds>(std::size_t bytes)>;
/// Returns the words of all ranks, by rank. Collective, so all ranks begin together what comes next.
using GatherWords = std::function<Result<std::vector<std::uint32_t>>(std::uint32_t word)>;

struct MeasuredExchange {
  /// Each way, of the slowest rank, of its best round. 0: unknown, because no rank could measure or everything was held
  /// up.
  double gbps = 0;
  std::uint32_t ranks = 0;  ///< number of ranks that could measure
  std::size_t bytes = 0;    ///< of a round, each way
  Status own;               ///< why this rank could not measure
};

/// Measures the rate. Collective; returns the same on all ranks, except for `own`. All ranks copy at once, in rounds
/// that begin together. The size doubles until a round takes long enough for a sound rate; then a few more rounds
/// follow. All ranks see the times of the slowest rank and go on by these, so there are few rounds if links are slow. A
/// rank whose copy fails stops copying, but still takes part in the gathers. The only error returned is that of
/// `gather`.
Result<MeasuredExchange> measure_exchange(const CopyBothWays& copy, const GatherWords& gather);

/// Returns the rates to use after a measurement. The measured rate counts only if it is clearly below the known one, so
/// that noise does not move borders from one communicator to the next. It never raises a rate, and never changes one
/// that the user has fixed.
ExchangeRates with_measured(ExchangeRates known, double measured_gbps);

/// Describes for the log the measured rate, the rate known from links, and the one for which calls are cut.
std::string describe(const MeasuredExchange& measured, const ExchangeRates& known, std::uint32_t ranks);

}  // namespace strait
