#include "doctor/calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "doctor/calibrate_links.hpp"
#include "doctor/measure.hpp"
#include "doctor/measure_host_sums.hpp"
#include "doctor/team.hpp"
#include "doctor/turn.hpp"
#include "safe_print.hpp"
#include "select/calibration.hpp"
#include "topo/measurements.hpp"
#include "topology/detect.hpp"
#include "utc.hpp"

namespace strait::doctor {
namespace {

template <class Rates>
void print_table(const Rates& rates, std::span<const RateFieldOf<Rates>> fields) {
  const Rates defaults;
  tools::print(stdout, "{:<20}{:>12}{:>12}  {:<6}{}\n", "rate", "measured", "default", "", "meaning");
  for (const RateFieldOf<Rates>& field : fields)
    tools::print(stdout, "{:<20}{:>12.4g}{:>12.4g}  {:<6}{}\n", field.name, field.get(rates), field.get(defaults),
                 field.unit, field.meaning);
}

/// Returns whether a rate depends on where the cores of a virtual machine are at the moment: next to one another or
/// not.
bool is_between_cores(const RateField& field) {
  constexpr std::array<std::string_view, 4> names{"latency_us", "fetch_gbps", "replace_gbps", "replace_beside_gbps"};
  return std::find(names.begin(), names.end(), field.name) != names.end();
}

/// Takes the median of each rate over a few rounds, so that a disturbance of one round does not matter. Rates between
/// cores must all be for the same placement of the cores, so the second best of each is taken: it belongs to the
/// nearest placement that the cores have for some of the time.
Result<HostRates> measure_host() {
  constexpr std::size_t rounds = 5;
  std::vector<HostRates> measured;
  while (measured.size() < rounds) {
    HostRates& rates = measured.emplace_back(measure_memory());
    STRAIT_TRY(measure_overheads(rates));
  }
  HostRates median;
  for (const RateField& field : rate_fields()) {
    std::vector<double> values;
    for (const HostRates& rates : measured) values.push_back(field.get(rates));
    std::sort(values.begin(), values.end());
    const std::size_t second_best = field.unit == "us" ? 1 : rounds - 2;
    field.set(median, values[is_between_cores(field) ? second_best : rounds / 2]);
  }
  return median;
}

Status keep(const std::string& path, const std::function<void(Calibration&)>& change) {
  return update_calibration(path, machine_fingerprint(), change);
}

/// Rates of GPUs are saved separately from those of the host, which are worth keeping even if GPUs cannot be measured.
Status calibrate_gpus(const std::string& path) {
  STRAIT_ASSIGN(const Topology topology, detect());
  const auto links = measure_links(topology, "copy engine, " + tools::utc_now());
  if (!links && links.error().code == Code::unsupported) {
    tools::print(stdout, "\nGPUs: not measured, {}\n", links.error().message);
    return {};
  }
  if (!links) return tl::unexpected(links.error());
  tools::print(stdout, "\n{}", links_text(topology, *links));
  STRAIT_TRY(keep(path, [&](Calibration& calibration) { calibration.links[links->machine] = links->rates; }));
  auto rates = topo::measure_kernels(topology);
  if (!rates && rates.error().code == Code::unsupported) {
    tools::print(stdout, "\nwhat GPUs take apart from links: not measured, {}\n", rates.error().message);
    return {};
  }
  if (!rates) return tl::unexpected(rates.error());
  rates->host_sums_gbps = measure_host_sums_gbps(topology);
  tools::print(stdout, "\nof GPUs\n");
  print_table(*rates, gpu_rate_fields());
  return keep(path, [&](Calibration& calibration) { calibration.gpus[links->machine] = *rates; });
}

Status measure_and_keep(const std::string& path) {
  STRAIT_ASSIGN(const HostRates host, measure_host());
  print_table(host, rate_fields());
  STRAIT_TRY(keep(path, [&](Calibration& calibration) {
    calibration.host = host;
    calibration.plans.clear();  // they are relative to the previous rates
    calibration.time = tools::utc_now();
  }));
  return calibrate_gpus(path);
}

/// Warns if a launcher has bound this process to a few cores, because only those would be measured.
void warn_if_bound() {
  const auto usable = static_cast<long>(usable_cores().size());
  const long online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (usable < online)
    tools::print(stderr,
                 "strait: this process may use {} of {} cores, and measures those only. Calibrate without a launcher "
                 "(strait doctor --calibrate), or unbound (mpirun --bind-to none)\n",
                 usable, online);
}

int calibrate_in_turn(const std::string& wanted_path, bool only_if_missing) {
  const auto path = calibration_file(wanted_path);
  const auto turn = path ? take_turn(*path) : Result<Turn>(tl::unexpected(path.error()));
  if (turn && only_if_missing &&
      (load_calibration(*path, machine_fingerprint()) || known_rates(Environment()).calibrated))
    return 0;
  warn_if_bound();
  const double began = now_us();
  const Status status = turn ? measure_and_keep(*path) : tl::unexpected(turn.error());
  if (!status) {
    tools::print(stderr, "strait doctor: {}\n", status.error().message);
    return 2;
  }
  tools::print(stdout, "\nMeasured in {:.1f} s with {} cores and saved as {}\n", (now_us() - began) * 1e-6,
               usable_cores().size(), *path);
  return 0;
}

}  // namespace

Result<std::string> calibration_file(const std::string& wanted_path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(wanted_path, ignored)) return fail_errno("cannot write " + wanted_path, EISDIR);
  if (!wanted_path.empty()) return wanted_path;
  return calibration_path(Environment(), machine_fingerprint());
}

int calibrate(const std::string& wanted_path) { return calibrate_in_turn(wanted_path, false); }

int calibrate_if_missing() { return calibrate_in_turn("", true); }

}  // namespace strait::doctor
