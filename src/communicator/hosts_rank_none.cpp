// Replaces hosts_rank.cpp in builds without CUDA.
#include "communicator/hosts_request.hpp"
#include "device/device_links.hpp"

namespace strait {

Result<std::unique_ptr<DeviceRank>> open_hosts_rank(HostsRequest request) {
  return tl::unexpected(check_devices_supported(request.device).error());
}

}  // namespace strait
