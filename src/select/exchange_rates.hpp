#pragma once

namespace strait {

/// The rates of GPUs that PCIe joins while all exchange with all, as far as they are known when ranks join.
struct ExchangeRates {
  double gbps = 0;  ///< of each GPU, each way; 0: unknown
  /// What CPU threads add for all GPUs together, in bytes of all sources; 0: not measured.
  double sums_gbps = 0;
  bool is_fixed_by_user = false;  ///< the user gave the rate or switched measuring off, so ranks do not measure it
  /// The rate measured when the communicator was made (measured_rate.hpp); 0: not measured.
  double measured_gbps = 0;
};
/// The rate that is assumed if it is unknown: PCIe Gen5 with 16 lanes, upwards to the host.
inline constexpr double unknown_exchange_gbps = 40;

}  // namespace strait
