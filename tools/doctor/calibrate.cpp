#include "doctor/calibrate.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <ctime>

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

Result<std::string> measure_and_save(const std::string& wanted_path) {
  Calibration calibration;
  measure_memory(calibration.host);
  STRAIT_TRY(measure_overheads(calibration.host));
  calibration.fingerprint = machine_fingerprint();
  calibration.time = utc_now();
  print_table(calibration.host);
  std::string path = wanted_path;
  if (path.empty()) {
    STRAIT_ASSIGN(path, calibration_path(Environment(), calibration.fingerprint));
  }
  STRAIT_TRY(save_calibration(calibration, path));
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
