#include "select/measured_rate.hpp"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace strait {
namespace {

constexpr std::size_t first_bytes = std::size_t{512} << 10, most_bytes = std::size_t{16} << 20;
/// Long enough that differences in when the ranks begin hardly matter.
constexpr double long_enough_ns = 2e6;
constexpr std::uint32_t least_rounds = 2, most_rounds = 4;
/// Time for all rounds, once there are least_rounds of them.
constexpr double most_rounds_ns = 20e6;
/// No link is slower than this, so something else must have held up the copies.
constexpr double least_gbps = 0.01;
constexpr double clearly_less = 0.5;

/// Copies this rank's part of a round, and returns the nanoseconds it took; 0 if the rank cannot measure.
std::uint32_t time_of(const CopyBothWays& copy, std::size_t bytes, Status& own) {
  if (!own) return 0;
  const auto took = copy(bytes);
  if (!took) {
    own = tl::unexpected(took.error());
    return 0;
  }
  return static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(took->count(), 1, std::numeric_limits<std::uint32_t>::max()));
}

double assumed_gbps(const ExchangeRates& known) { return known.gbps > 0 ? known.gbps : unknown_exchange_gbps; }

}  // namespace

Result<MeasuredExchange> measure_exchange(const CopyBothWays& copy, const GatherWords& gather) {
  MeasuredExchange measured;
  measured.bytes = first_bytes;
  const auto round = [&] { return gather(time_of(copy, measured.bytes, measured.own)); };
  STRAIT_ASSIGN(std::vector<std::uint32_t> best, round());  // its gather makes all ranks begin together
  std::fill(best.begin(), best.end(), std::numeric_limits<std::uint32_t>::max());
  double spent_ns = 0;
  for (std::uint32_t rounds = 0; rounds < most_rounds;) {
    STRAIT_ASSIGN(const auto times, round());
    const double longest_ns = *std::max_element(times.begin(), times.end());
    if (longest_ns == 0) return measured;
    spent_ns += longest_ns;
    if (rounds == 0 && longest_ns < long_enough_ns && measured.bytes < most_bytes) {
      measured.bytes *= 2;
      continue;
    }
    for (std::size_t rank = 0; rank < best.size(); ++rank) best[rank] = std::min(best[rank], times[rank]);
    if (++rounds >= least_rounds && spent_ns + longest_ns > most_rounds_ns) break;
  }
  measured.ranks =
      static_cast<std::uint32_t>(best.size()) - static_cast<std::uint32_t>(std::count(best.begin(), best.end(), 0u));
  const std::uint32_t slowest_ns = *std::max_element(best.begin(), best.end());
  if (slowest_ns == 0) return measured;
  const double gbps = static_cast<double>(measured.bytes) / slowest_ns;
  if (gbps >= least_gbps) measured.gbps = gbps;
  return measured;
}

ExchangeRates with_measured(ExchangeRates known, double measured_gbps) {
  known.measured_gbps = measured_gbps;
  if (!known.is_fixed_by_user && measured_gbps > 0 && measured_gbps < clearly_less * assumed_gbps(known))
    known.gbps = measured_gbps;
  return known;
}

std::string describe(const MeasuredExchange& measured, const ExchangeRates& known, std::uint32_t ranks) {
  const auto text = [](const char* format, auto... values) {
    char buffer[192];
    std::snprintf(buffer, sizeof buffer, format, values...);
    return std::string(buffer);
  };
  const double used_gbps = assumed_gbps(with_measured(known, measured.gbps));
  std::string all =
      measured.gbps > 0
          ? text("each GPU exchanges %.3g GB/s each way while all do (measured by %u of %u ranks, %.1f MB)",
                 measured.gbps, measured.ranks, ranks, static_cast<double>(measured.bytes) / (1 << 20))
          : text("what GPUs exchange could not be measured (by %u of %u ranks)", measured.ranks, ranks);
  all += known.gbps > 0 ? text("; otherwise known: %.3g", known.gbps) : "; otherwise nothing is known";
  return all + text(". Calls are cut for %.3g GB/s", used_gbps);
}

}  // namespace strait
