#pragma once

namespace strait {

/// What GPUs that PCIe joins give while all exchange with all, as far as it is known when ranks join.
struct ExchangeRates {
  double gbps = 0;          ///< of each GPU, each way; 0: unknown
  double sums_gbps = 0;     ///< what CPU threads add up for all of them together, bytes of all sources; 0: not measured
  bool is_settled = false;  ///< the user says so: ranks need not measure it
  double measured_gbps = 0;  ///< when the communicator was made (measured_rate.hpp); 0: it was not
};
/// For what unknown rates are taken: of PCIe Gen5, 16 lanes, up to the host.
inline constexpr double unknown_exchange_gbps = 40;

}  // namespace strait
