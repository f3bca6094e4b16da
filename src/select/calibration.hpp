#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "plan/clock.hpp"
#include "plan/plan_ratios.hpp"

/// Rates measured on this machine and kept for later programs: one file for each machine in the user's cache folder.
/// `strait doctor --calibrate` writes it; communicators only read it.
namespace strait {

/// Rates that transports measure for themselves, such as those of GPUs, by transport and by a name that ends in the
/// unit ("push_gbps"). Selection ignores names that it does not know.
using TransportRates = std::map<std::string, std::map<std::string, double>>;

/// The measured rate of one direction of a link. The ends are named as within their host ("gpu0").
struct LinkRate {
  std::string from;
  std::string to;
  double gbps = 0;
  double us = 0;       ///< 0: not measured
  std::string origin;  ///< how and when it was measured

  friend bool operator==(const LinkRate&, const LinkRate&) = default;
};
/// By topology_fingerprint() of src/select/link_rates.hpp, because machines with the same processor may have different
/// GPUs.
using LinkRates = std::map<std::string, std::vector<LinkRate>>;

/// The costs of a rank on a GPU apart from links. The defaults are assumptions; docs/simulation.md gives their source.
struct GpuRates {
  double call_us = 3;           ///< launch of a kernel
  double step_us = 2.5;         ///< a fence and a flag that a peer polls
  double copy_gbps = 2000;      ///< copies within the GPU's memory
  double reduce_gbps = 4000;    ///< additions, in bytes of all sources
  double host_sums_gbps = 100;  ///< additions by the CPUs of a NUMA node for its GPUs, in bytes of all sources

  friend bool operator==(const GpuRates&, const GpuRates&) = default;
};
/// By topology_fingerprint(), as LinkRates.
using GpuRatesByMachine = std::map<std::string, GpuRates>;

/// By ratios_key(): "<transport>/<ranks>", such as "shm/4".
using RatiosByTransport = std::map<std::string, PlanRatios>;
std::string ratios_key(std::string_view transport, std::uint32_t ranks);
/// Formats ratios as JSON, for files and for other ranks. Parsing implausible ratios is an error that says what is
/// wrong.
std::string ratios_text(const PlanRatios& ratios);
Result<PlanRatios> parse_ratios(std::string_view text);

/// Everything that was measured on one machine, and when.
struct Calibration {
  HostRates host;
  TransportRates transports;
  LinkRates links;
  GpuRatesByMachine gpus;
  RatiosByTransport plans;
  std::string fingerprint;  ///< machine_fingerprint() of the measured machine
  std::string time;         ///< UTC, "2026-01-31T12:00:00Z"
};

/// Describes one rate: its name and unit in the file, the range of plausible values, and its meaning for a reader.
template <class Rates>
struct RateFieldOf {
  std::string_view name;
  std::string_view unit;
  double least;
  double most;
  std::string_view meaning;
  double (*get)(const Rates&);
  void (*set)(Rates&, double);
};
using RateField = RateFieldOf<HostRates>;
using GpuRateField = RateFieldOf<GpuRates>;
std::span<const RateField> rate_fields();
/// The rates of GPUs that are measured.
std::span<const GpuRateField> gpu_rate_fields();

/// Returns 16 hexadecimal digits, a hash of what rates depend on: the processor, its cores and caches, the NUMA nodes,
/// and the size of the memory. `root` precedes /sys and /proc.
std::string machine_fingerprint(const std::string& root = "");
/// Returns a hash of a text as 16 hexadecimal digits.
std::string fingerprint_of(std::string_view facts);

/// The caches of a core as the kernel describes them. (sysconf is wrong in virtual machines: it asks the processor,
/// which reports the caches of the whole physical one.) Sizes that are unknown are those of the shipped defaults.
struct CacheSizes {
  std::size_t core_bytes = HostRates{}.memory.core_cache_bytes;  ///< second-level cache
  std::size_t shared_bytes = HostRates{}.cache_bytes;            ///< third-level cache
};
CacheSizes cache_sizes(const std::string& root = "");

/// Returns $XDG_CACHE_HOME/strait/<fingerprint>.json, or the same below ~/.cache if XDG_CACHE_HOME is not set; an error
/// if HOME is not set either.
Result<std::string> calibration_path(const Environment& environment, std::string_view fingerprint);

/// Changes the contents of the file atomically, under a lock that excludes other programs. Starts from an empty
/// calibration if the file is absent or bad. Creates the folder.
Status update_calibration(const std::string& path, std::string_view fingerprint,
                          const std::function<void(Calibration&)>& change);
/// Reads a calibration. An error names the file, the problem and the remedy. An absent file is Code::unsupported.
Result<Calibration> load_calibration(const std::string& path, std::string_view fingerprint);

/// The rates that selection uses on this machine, and their source: the file that STRAIT_CALIBRATION names, else that
/// of the cache folder, else the shipped defaults. A bad file causes a warning, never an error.
struct KnownRates {
  HostRates host;
  std::string source;       ///< path of the file, or "shipped defaults" with the reason
  bool calibrated = false;  ///< whether the rates were measured on this machine
  LinkRates links{};
  GpuRatesByMachine gpus{};
  RatiosByTransport plans{};
};
KnownRates known_rates(const Environment& environment);
/// Returns known_rates() of the process's environment, which are read once, at the first call.
const KnownRates& process_rates();

}  // namespace strait
