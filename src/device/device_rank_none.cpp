// Replaces cuda_rank.cpp, device_links.cpp and memory/device_memory.cpp in builds without CUDA.
#include "device/device_links.hpp"
#include "device/device_rank.hpp"
#include "device/memory/device_memory.hpp"

namespace strait {
namespace {

tl::unexpected<Error> refusal(int device) {
  return fail(Code::unsupported, "device " + std::to_string(device) +
                                     " was asked for, and this build has no GPU data path (it was made without CUDA). "
                                     "Use device -1 for host ranks");
}

}  // namespace

Result<std::unique_ptr<DeviceRank>> DeviceRank::open(const Request& request) { return refusal(request.device); }
Status check_devices_supported(int device) { return refusal(device); }
Result<void*> allocate_device_memory(int device, std::size_t /*bytes*/) { return refusal(device); }
bool free_device_memory(void* /*pointer*/) { return false; }
ExchangeRates exchange_rates_of_gpus(const std::vector<std::string>& /*bus_ids*/, bool /*through_host*/) { return {}; }
Result<std::string> device_bus_id(int device) { return refusal(device); }

}  // namespace strait
