#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace strait::perf {

/// A logarithmic axis: maps values in [low, high] to positions in [from, to].
class LogAxis {
 public:
  LogAxis(double low, double high, double from, double to) : low_(low), high_(high), from_(from), to_(to) {}

  /// An axis whose ends are round numbers (1, 2 or 5 times a power of ten) around all values, which are above 0.
  static LogAxis around(const std::vector<double>& values, double from, double to);

  double position(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }
  /// Round numbers from end to end: 1, 2, 5 of each decade, or whole decades where those would be too many.
  std::vector<double> decimal_ticks() const;
  /// Powers of two, every one or every second, fourth, ... so that there are at most `most`.
  std::vector<double> binary_ticks(std::size_t most) const;

 private:
  double low_, high_, from_, to_;
};

/// "0.05", "2", "50000", "1e+06".
std::string tick_label(double value);
/// "8", "64K", "1M": the spelling of the size options.
std::string bytes_label(double bytes);

}  // namespace strait::perf
