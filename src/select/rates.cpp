// The table of rates, from which the calibration file and the print-out and medians of `strait doctor` are made.
#include <array>
#include <type_traits>

#include "select/calibration.hpp"

namespace strait {
namespace {

struct Range {
  std::string_view unit;
  double least;
  double most;
};
constexpr Range time{"us", 1e-4, 1e4};
constexpr Range rate{"GB/s", 0.01, 1e5};
constexpr Range cache{"bytes", 1 << 12, 1e12};
constexpr Range part{"of 1", 0.01, 1};

/// Describes the rate that a path of members leads to: field<HostRates, &HostRates::memory, &ClockRates::fetch_gbps>.
template <class Rates, auto... path>
constexpr RateFieldOf<Rates> field_of(std::string_view name, Range range, std::string_view meaning) {
  return {name,
          range.unit,
          range.least,
          range.most,
          meaning,
          [](const Rates& rates) { return static_cast<double>((rates.*....*path)); },
          [](Rates& rates, double value) {
            auto& own = (rates.*....*path);
            own = static_cast<std::decay_t<decltype(own)>>(value);
          }};
}

template <auto... path>
constexpr RateField field(std::string_view name, Range range, std::string_view meaning) {
  return field_of<HostRates, path...>(name, range, meaning);
}

template <auto member>
constexpr RateField memory(std::string_view name, Range range, std::string_view meaning) {
  return field<&HostRates::memory, member>(name, range, meaning);
}

using Host = HostRates;
using Memory = ClockRates;
constexpr std::array fields{
    field<&Host::call_us>("call_us", time, "a call apart from its steps"),
    field<&Host::step_us>("step_us", time, "a step apart from its bytes"),
    field<&Host::latency_us>("latency_us", time, "a signal to another core"),
    field<&Host::switch_us>("switch_us", time, "from thread to thread on one core"),
    field<&Host::copy_gbps>("copy_gbps", rate, "copy in a core's own cache"),
    memory<&Memory::two_copies_gbps>("two_copies_gbps", rate, "likewise to two destinations"),
    field<&Host::reduce_gbps>("reduce_gbps", rate, "sum of two there, bytes of both"),
    memory<&Memory::fetch_gbps>("fetch_gbps", rate, "copy of what another core just wrote"),
    memory<&Memory::replace_gbps>("replace_gbps", rate, "copy over what another core just read"),
    memory<&Memory::replace_beside_gbps>("replace_beside_gbps", rate, "likewise, and into the own cache beside"),
    memory<&Memory::shared_read_gbps>("shared_read_gbps", rate, "copy out of the shared cache, each core"),
    memory<&Memory::shared_write_gbps>("shared_write_gbps", rate, "copy into the shared cache, each core"),
    memory<&Memory::dram_read_gbps>("dram_read_gbps", rate, "copy out of DRAM, one core alone"),
    memory<&Memory::dram_write_gbps>("dram_write_gbps", rate, "copy into DRAM, one core alone"),
    memory<&Memory::stream_gbps>("stream_gbps", rate, "copy around the caches, one core alone"),
    field<&Host::dram_copy_gbps>("dram_copy_gbps", rate, "copy from DRAM to DRAM, all cores"),
    memory<&Memory::dram_read_part>("dram_read_part", part, "reading's part of the cost of such a copy"),
    memory<&Memory::dram_stream_part>("dram_stream_part", part, "that of writing around the caches"),
    memory<&Memory::core_cache_bytes>("core_cache_bytes", cache, "what a core's own cache holds"),
    field<&Host::cache_bytes>("cache_bytes", cache, "what the cache of all cores holds"),
};

template <auto member>
constexpr GpuRateField gpu(std::string_view name, Range range, std::string_view meaning) {
  return field_of<GpuRates, member>(name, range, meaning);
}

constexpr std::array gpu_fields{
    gpu<&GpuRates::call_us>("call_us", time, "the launch of a kernel"),
    gpu<&GpuRates::step_us>("step_us", time, "a fence and a flag to another GPU, apart from the way"),
    gpu<&GpuRates::copy_gbps>("copy_gbps", rate, "copy in its own memory"),
    gpu<&GpuRates::reduce_gbps>("reduce_gbps", rate, "sum of two there, bytes of both"),
    gpu<&GpuRates::host_sums_gbps>("host_sums_gbps", rate, "sums by a NUMA node's CPUs, bytes of all"),
};

}  // namespace

std::span<const RateField> rate_fields() { return fields; }
std::span<const GpuRateField> gpu_rate_fields() { return gpu_fields; }

}  // namespace strait
