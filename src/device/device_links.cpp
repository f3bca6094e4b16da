#include "device/device_links.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <optional>

#include "base/log.hpp"
#include "executor/cuda/runtime.hpp"
#include "select/known_exchange.hpp"
#include "topology/detect.hpp"
#include "topology/nvml.hpp"

namespace strait {
namespace {

/// Asks CUDA whether NVLink connects the GPUs: only across NVLink are native atomics supported. Nothing if this process
/// does not see the peer's GPU.
std::optional<bool> ask_cuda(int device, const std::string& peer_bus_id) {
  int peer = 0, atomics = 0;
  const bool sees =
      cudaDeviceGetByPCIBusId(&peer, peer_bus_id.c_str()) == cudaSuccess &&
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer) == cudaSuccess;
  cudaGetLastError();
  return sees ? std::optional(atomics != 0) : std::nullopt;
}

const SurveyedGpu* find(const NvmlSurvey& survey, const std::string& bus_id) {
  const auto found = std::find_if(survey.gpus.begin(), survey.gpus.end(),
                                  [&](const SurveyedGpu& gpu) { return gpu.bus_id == normal_bus_id(bus_id); });
  return found == survey.gpus.end() ? nullptr : &*found;
}

/// Returns whether NVML lists NVLinks from one GPU to the other, or from both to devices that are not GPUs: a switch.
bool is_linked(const NvmlSurvey& survey, const std::string& one, const std::string& other) {
  const SurveyedGpu *a = find(survey, one), *b = find(survey, other);
  if (a == nullptr || b == nullptr) return false;
  const auto is_gpu = [&](const std::string& bus_id) { return find(survey, bus_id) != nullptr; };
  return std::any_of(a->nvlinks.begin(), a->nvlinks.end(), [&](const NvlinkEnd& end) {
    if (normal_bus_id(end.remote_bus_id) == b->bus_id) return true;
    return !is_gpu(end.remote_bus_id) && std::any_of(b->nvlinks.begin(), b->nvlinks.end(),
                                                     [&](const NvlinkEnd& far) { return !is_gpu(far.remote_bus_id); });
  });
}

}  // namespace

Status check_nvlink(int device, std::span<const std::string> bus_ids) {
  STRAIT_ASSIGN(const std::string own, device_bus_id(device));
  std::optional<NvmlSurvey> survey;  // takes milliseconds: only made for GPUs that CUDA does not show to this process
  for (const std::string& peer : bus_ids) {
    if (normal_bus_id(peer) == normal_bus_id(own)) continue;
    std::optional<bool> linked = ask_cuda(device, peer);
    if (!linked) {
      if (!survey) survey = survey_nvml("libnvidia-ml.so.1");
      linked = is_linked(*survey, own, peer);
    }
    if (!*linked) return fail(Code::unsupported, "no NVLink joins GPU " + own + " and GPU " + peer);
  }
  return {};
}

ExchangeRates exchange_rates_of_gpus(const std::vector<std::string>& bus_ids, bool through_host) {
  static const auto topology = detect();  // once: takes as long as everything else that a communicator needs
  if (topology) return known_exchange_rates(*topology, process_rates(), bus_ids, through_host);
  log_warn(0, "what joins the GPUs cannot be seen: " + topology.error().message +
                  ". Calls are cut as on PCIe Gen5, unless ranks measure clearly less; STRAIT_EXCHANGE_GBPS says what "
                  "their links give");
  return {};
}

Status check_devices_supported(int /*device*/) { return {}; }

Result<std::string> device_bus_id(int device) {
  char id[32] = {};
  STRAIT_TRY(
      cuda::check(cudaDeviceGetPCIBusId(id, sizeof id, device), "GPU " + std::to_string(device) + " cannot be used"));
  return std::string(id);
}

}  // namespace strait
