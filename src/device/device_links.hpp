#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "select/exchange_rates.hpp"

namespace strait {

/// Returns Code::unsupported in a build without CUDA, so that a configuration with a device is refused before the ranks
/// meet.
Status check_devices_supported(int device);
/// Returns the PCI bus ID of a CUDA device, by which ranks on the same GPU are recognised.
Result<std::string> device_bus_id(int device);
/// Checks that NVLink, and not PCIe, connects this process's `device` with every GPU of `bus_ids`, which include its
/// own. The difference matters: over NVLink a line of 128 bytes arrives whole, over PCIe only 16 bytes are sure to. The
/// error names the first GPU that NVLink does not connect.
Status check_nvlink(int device, std::span<const std::string> bus_ids);
/// Returns the rates of these GPUs over PCIe, as far as the calibration and the machine itself tell
/// (select/exchange_rates.hpp).
ExchangeRates exchange_rates_of_gpus(const std::vector<std::string>& bus_ids, bool through_host);

}  // namespace strait
