#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/exchange_rates.hpp"

namespace strait {

/// Code::unsupported in a build without CUDA: there a configuration with a device is refused before the ranks meet.
Status check_devices_supported(int device);
/// The PCI bus id of a CUDA device, by which ranks that use the same one are found.
Result<std::string> device_bus_id(int device);
/// Whether NVLink (and no PCIe) joins this process's `device` with every GPU of `bus_ids`, itself among them. The
/// difference matters: over NVLink a line of 128 bytes arrives whole, over PCIe no more than 16 bytes are sure to.
/// An error names the first GPU that it does not reach so.
Status check_nvlink(int device, std::span<const std::string> bus_ids);
/// What these GPUs give by PCIe, as far as the calibration and the machine itself tell (select/exchange_rates.hpp).
ExchangeRates find_exchange_rates(const std::vector<std::string>& bus_ids, bool through_host);

}  // namespace strait
