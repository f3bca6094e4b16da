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

/// What was measured on this machine, kept for the next programs: one file a machine in the user's cache folder.
/// `strait doctor --calibrate` writes it; communicators read it and never measure.
namespace strait {

/// What transports measured of their own, such as those of GPUs: by transport and name, names with their unit
/// ("push_gbps"). Selection leaves what it does not know alone.
using TransportRates = std::map<std::string, std::map<std::string, double>>;

/// A measured rate of one direction of a link, by the names of its ends within the host ("gpu0").
struct LinkRate {
  std::string from;
  std::string to;
  double gbps = 0;
  double us = 0;       ///< 0: not measured
  std::string origin;  ///< how and when

  friend bool operator==(const LinkRate&, const LinkRate&) = default;
};
/// By topology_fingerprint() of src/select/link_rates.hpp: machines of one processor differ in their GPUs.
using LinkRates = std::map<std::string, std::vector<LinkRate>>;

/// What a rank on a GPU costs apart from links; the defaults are assumed, docs/simulation.md says where from.
struct GpuRates {
  double call_us = 3;           ///< the launch of a kernel
  double step_us = 2.5;         ///< a fence and a flag that a peer polls
  double copy_gbps = 2000;      ///< within the memory of the GPU
  double reduce_gbps = 4000;    ///< bytes of all sources
  double host_sums_gbps = 100;  ///< of the CPUs of a NUMA node that add for its GPUs, bytes of all sources

  friend bool operator==(const GpuRates&, const GpuRates&) = default;
};
/// As with LinkRates.
using GpuRatesByMachine = std::map<std::string, GpuRates>;

/// By "<transport>/<ranks>": "shm/4".
using RatiosByTransport = std::map<std::string, PlanRatios>;
std::string ratios_key(std::string_view transport, std::uint32_t ranks);
/// As JSON, for files and for other ranks. What is implausible is an error that says what.
std::string ratios_text(const PlanRatios& ratios);
Result<PlanRatios> parse_ratios(std::string_view text);

/// What one machine gave, and when.
struct Calibration {
  HostRates host;
  TransportRates transports;
  LinkRates links;
  GpuRatesByMachine gpus;
  RatiosByTransport plans;
  std::string fingerprint;  ///< of the machine it was measured on
  std::string time;         ///< UTC, "2026-01-31T12:00:00Z"
};

/// One rate: its name in the file, what is plausible, and what it means to a reader.
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
/// Those that are measured.
std::span<const GpuRateField> gpu_rate_fields();

/// 16 hexadecimal digits that stand for what rates depend on: the processor, its cores and caches, and the memory.
std::string machine_fingerprint(const std::string& root = "");
/// 16 hexadecimal digits that stand for a text.
std::string fingerprint_of(std::string_view facts);

/// The caches of a core as the kernel describes them. (sysconf is wrong in virtual machines: it asks the processor,
/// which tells of all of the physical one.) What is unknown is as in the shipped defaults.
struct CacheSizes {
  std::size_t core_bytes = HostRates{}.memory.core_cache_bytes;  ///< the second level
  std::size_t shared_bytes = HostRates{}.cache_bytes;            ///< the third level
};
CacheSizes cache_sizes(const std::string& root = "");

/// $XDG_CACHE_HOME/strait/<fingerprint>.json, else below ~/.cache; an error where there is neither.
Result<std::string> calibration_path(const Environment& environment, std::string_view fingerprint);

/// Changes what the file says, whole or not at all, by one program at a time; starts anew where it is absent or bad.
/// Makes the folder.
Status update_calibration(const std::string& path, std::string_view fingerprint,
                          const std::function<void(Calibration&)>& change);
/// An error names the file, what is wrong with it and what to do. An absent file is one with Code::unsupported.
Result<Calibration> load_calibration(const std::string& path, std::string_view fingerprint);

/// What selection works with on this machine, and where it comes from: the file that STRAIT_CALIBRATION names, or that
/// of the cache folder, or the shipped defaults. A bad file is worth a warning and never more.
struct KnownRates {
  HostRates host;
  std::string source;       ///< the path, or "shipped defaults" with the reason
  bool calibrated = false;  ///< measured, not shipped
  LinkRates links{};
  GpuRatesByMachine gpus{};
  RatiosByTransport plans{};
};
KnownRates known_rates(const Environment& environment);
/// The same, read once in the life of the process.
const KnownRates& process_rates();

}  // namespace strait
