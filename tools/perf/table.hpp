#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "perf/options.hpp"
#include "perf/results.hpp"
#include "predicted_on.hpp"

/// The printed report: nccl-tests' header, columns and footer, so that whatever reads those reads ours; the percentiles
/// of single iterations follow on the right. Beside a baseline its time and the ratio stand for the bandwidths.
namespace strait::perf {

std::string header(const Options& options, std::span<const RankInfo> ranks, int threads, const TransportInfo& transport,
                   const std::optional<BaselineInfo>& baseline = std::nullopt,
                   const std::optional<LinkRates>& links = std::nullopt);
/// Likewise when nothing is measured: `machine` is the simulated one, a rank's `host` the device it is placed on, and
/// `wire` the format of the calls that can have one.
std::string prediction_header(const Options& options, std::span<const RankInfo> ranks, const tools::PredictedOn& on,
                              WireFormat wire = WireFormat::off);
/// `has_floors`: as the header has where it was given links.
std::string table_row(const Row& row, bool cpu_time, bool has_floors = false);
std::string footer(const Options& options, const Summary& summary);

/// "1 byte", "8 bytes".
std::string counted(std::size_t count, std::string_view what);
/// A number in at most `width` characters: two decimals, fewer where they do not fit, then an exponent.
std::string fitted(double value, int width);

}  // namespace strait::perf
