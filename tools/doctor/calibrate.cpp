#include "doctor/calibrate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "doctor/measure.hpp"
#include "doctor/team.hpp"
#include "select/calibration.hpp"

namespace strait::doctor {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void print_table(const HostRates& rates) {
  const HostRates defaults;
  fmt::print("{:<18}{:>12}{:>12}  {:<6}{}\n", "rate", "measured", "default", "", "meaning");
  for (const RateField& field : rate_fields())
    fmt::print("{:<18}{:>12.4g}{:>12.4g}  {:<6}{}\n", field.name, field.get(rates), field.get(defaults), field.unit,
               field.meaning);
}

/// Of each rate the median of a few rounds: what disturbs one of them does not count.
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
    std::nth_element(values.begin(), values.begin() + rounds / 2, values.end());
    field.set(median, values[rounds / 2]);
  }
  return median;
}

Result<std::string> measure_and_save(const std::string& wanted_path) {
  const std::string fingerprint = machine_fingerprint();
  std::string path = wanted_path;
  if (path.empty()) {
    STRAIT_ASSIGN(path, calibration_path(Environment(), fingerprint));
  }
  STRAIT_ASSIGN(const HostRates host, measure_host());
  print_table(host);
  STRAIT_TRY(update_calibration(path, fingerprint, [&](Calibration& calibration) {
    calibration.host = host;
    calibration.time = utc_now();
  }));
  return path;
}

}  // namespace

int calibrate(const std::string& wanted_path) {
  const double began = now_us();
  const auto path = measure_and_save(wanted_path);
  if (!path) {
    fmt::print(stderr, "strait doctor: {}\n", path.error().message);
    return 2;
  }
  fmt::print("\nMeasured in {:.1f} s with {} cores and saved as {}\n", (now_us() - began) * 1e-6, usable_cores().size(),
             *path);
  return 0;
}

}  // namespace strait::doctor
