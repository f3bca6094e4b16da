#include "perf/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace strait::perf {
namespace {

constexpr std::size_t most_decimal_ticks = 12;
constexpr double tolerance = 1e-9;  // of powers that std::pow rounds

/// 1, 2 and 5 times the powers of ten from 10^first on, that lie in [low, high].
std::vector<double> round_numbers(double low, double high, const std::vector<int>& digits) {
  std::vector<double> numbers;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10, power) <= high * (1 + tolerance);
       ++power)
    for (const int digit : digits) {
      const double number = digit * std::pow(10, power);
      if (number >= low * (1 - tolerance) && number <= high * (1 + tolerance)) numbers.push_back(number);
    }
  return numbers;
}

}  // namespace

LogAxis LogAxis::around(const std::vector<double>& values, double from, double to) {
  const auto [smallest, largest] = std::minmax_element(values.begin(), values.end());
  // The round number at or below the smallest value, and the one at or above the largest; never the same one.
  double low = round_numbers(*smallest / 10, *smallest, {1, 2, 5}).back();
  const double high = round_numbers(*largest, *largest * 10, {1, 2, 5}).front();
  if (low == high) low = round_numbers(low / 10, low * 0.9, {1, 2, 5}).back();
  return {low, high, from, to};
}

double LogAxis::position(double value) const {
  if (low_ == high_) return (from_ + to_) / 2;
  return from_ + (to_ - from_) * std::log(value / low_) / std::log(high_ / low_);
}

std::vector<double> LogAxis::decimal_ticks() const {
  auto ticks = round_numbers(low_, high_, {1, 2, 5});
  return ticks.size() <= most_decimal_ticks ? ticks : round_numbers(low_, high_, {1});
}

std::vector<double> LogAxis::binary_ticks(std::size_t most) const {
  const int first = static_cast<int>(std::ceil(std::log2(low_) - tolerance));
  const int last = static_cast<int>(std::floor(std::log2(high_) + tolerance));
  int step = 1;
  while (last - first >= static_cast<int>(most) * step) step *= 2;
  std::vector<double> ticks;
  for (int power = first; power <= last; power += step) ticks.push_back(std::ldexp(1, power));
  return ticks;
}

std::string tick_label(double value) { return fmt::format("{:g}", value); }

std::string bytes_label(double bytes) {
  constexpr std::string_view units = "KMGT";
  std::string unit;
  for (std::size_t i = 0; i < units.size() && bytes >= 1024; ++i, bytes /= 1024) unit = units[i];
  return fmt::format("{:.3g}{}", bytes, unit);
}

}  // namespace strait::perf
