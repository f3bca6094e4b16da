#include "topology/nvml.hpp"

#include <array>
#include <set>

#include "base/shared_library.hpp"

namespace strait {
namespace {

// The part of NVML's binary interface that Strait uses: not every CUDA toolkit contains nvml.h.
using NvmlDevice = void*;
using NvmlReturn = int;  // 0: success
constexpr int nvml_not_supported = 3;
constexpr int nvml_invalid_argument = 2;
struct NvmlPci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct NvmlField {
  unsigned field, scope;
  long long timestamp, latency_us;
  int value_type;
  NvmlReturn result;
  union {
    double as_double;
    unsigned as_uint;
    unsigned long long as_ullong;
  } value;
};
constexpr unsigned field_nvlink_speed_mbps = 90;
constexpr unsigned most_nvlinks = 36;
constexpr unsigned capability_p2p = 0;  // NVML's number for the P2P capability of a link
constexpr std::array<int, 2> p2p_read_and_write{0, 1};

struct Symbols {
  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*handle)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*pci)(NvmlDevice, NvmlPci*) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*capability)(NvmlDevice, int*, int*) = nullptr;
  NvmlReturn (*link_state)(NvmlDevice, unsigned, int*) = nullptr;
  NvmlReturn (*link_remote)(NvmlDevice, unsigned, NvmlPci*) = nullptr;
  NvmlReturn (*link_capability)(NvmlDevice, unsigned, unsigned, unsigned*) = nullptr;
  NvmlReturn (*fields)(NvmlDevice, int, NvmlField*) = nullptr;
  NvmlReturn (*p2p)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
};

P2pStatus p2p_status(int value) {
  switch (value) {  // nvmlGpuP2PStatus_t
    case 0:
      return P2pStatus::ok;
    case 1:
      return P2pStatus::chipset_not_supported;
    case 2:
      return P2pStatus::gpu_not_supported;
    case 3:
      return P2pStatus::topology_not_supported;
    case 4:
      return P2pStatus::disabled;
    case 5:
      return P2pStatus::not_supported;
    default:
      return P2pStatus::unknown;
  }
}

class Nvml {
 public:
  explicit Nvml(const std::string& library) : library_(library) {
    if (!library_.is_loaded()) {
      note("NVML cannot be loaded, so that NVLink and P2P are unknown: " + library_.problem() +
           ". Install the NVIDIA driver, or start the container with the NVIDIA runtime");
      return;
    }
    bind_all();
    if (calls_.init == nullptr || calls_.count == nullptr || calls_.handle == nullptr || calls_.pci == nullptr) {
      note(library + " lacks functions that every NVML has (" + library_.missing() + "): it is not used");
      return;
    }
    if (const NvmlReturn status = calls_.init(); status != 0) {
      note("NVML does not start, so that NVLink and P2P are unknown: " + text(status) +
           ". Does the driver's kernel module fit its library (nvidia-smi)?");
      return;
    }
    started_ = true;
    if (!library_.missing().empty()) note("this NVML is old or incomplete: it lacks " + library_.missing());
    list_gpus();
  }
  ~Nvml() {
    if (started_ && calls_.shutdown != nullptr) calls_.shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  NvmlSurvey take() { return std::move(survey_); }

 private:
  void note(std::string text) { survey_.notes.push_back(std::move(text)); }

  void bind_all() {
    library_.need(calls_.init, "nvmlInit_v2");
    library_.need(calls_.shutdown, "nvmlShutdown");
    library_.need(calls_.error_string, "nvmlErrorString");
    library_.need(calls_.count, "nvmlDeviceGetCount_v2");
    library_.need(calls_.handle, "nvmlDeviceGetHandleByIndex_v2");
    library_.need(calls_.pci, "nvmlDeviceGetPciInfo_v3");
    library_.need(calls_.name, "nvmlDeviceGetName");
    library_.need(calls_.capability, "nvmlDeviceGetCudaComputeCapability");
    library_.need(calls_.link_state, "nvmlDeviceGetNvLinkState");
    library_.need(calls_.link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    library_.need(calls_.link_capability, "nvmlDeviceGetNvLinkCapability");
    library_.need(calls_.fields, "nvmlDeviceGetFieldValues");
    library_.need(calls_.p2p, "nvmlDeviceGetP2PStatus");
  }

  std::string text(NvmlReturn status) const {
    const char* words = calls_.error_string != nullptr ? calls_.error_string(status) : nullptr;
    return (words != nullptr ? std::string(words) + " " : "") + "(NVML status " + std::to_string(status) + ")";
  }

  void list_gpus() {
    unsigned count = 0;
    if (const NvmlReturn status = calls_.count(&count); status != 0) {
      note("NVML does not say how many GPUs there are: " + text(status));
      return;
    }
    survey_.answered = true;
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice handle = nullptr;
      NvmlPci pci{};
      NvmlReturn status = calls_.handle(index, &handle);
      if (status == 0) status = calls_.pci(handle, &pci);
      pci.bus_id[sizeof pci.bus_id - 1] = '\0';
      SurveyedGpu gpu{.bus_id = normal_bus_id(pci.bus_id)};
      if (status != 0 || gpu.bus_id.empty()) {
        note("GPU " + std::to_string(index) +
             " is left out: " + (status != 0 ? text(status) : "NVML gives it no PCI address"));
        continue;
      }
      describe(handle, gpu);
      handles_.push_back(handle);
      survey_.gpus.push_back(std::move(gpu));
    }
    ask_p2p();
  }

  void describe(NvmlDevice handle, SurveyedGpu& gpu) {
    std::array<char, 96> name{};
    if (calls_.name != nullptr && calls_.name(handle, name.data(), name.size() - 1) == 0) gpu.model = name.data();
    int major = 0, minor = 0;
    if (calls_.capability != nullptr && calls_.capability(handle, &major, &minor) == 0 && major > 0)
      gpu.capability = static_cast<std::uint32_t>(major * 10 + minor);
    if (calls_.link_state == nullptr || calls_.link_remote == nullptr) return;
    const double gbps = link_gbps(handle);
    std::string down;
    for (unsigned link = 0; link < most_nvlinks; ++link) {
      int active = 0;
      const NvmlReturn status = calls_.link_state(handle, link, &active);
      if (status == nvml_not_supported || status == nvml_invalid_argument) continue;  // no such link
      if (status != 0) {
        note("the NVLinks of GPU " + gpu.bus_id + " are unknown from number " + std::to_string(link) +
             " on: " + text(status));
        break;
      }
      if (active == 0) {
        down += (down.empty() ? "" : ", ") + std::to_string(link);
        continue;
      }
      if (!carries_peers(handle, link)) continue;
      NvmlPci remote{};
      if (calls_.link_remote(handle, link, &remote) != 0) continue;
      remote.bus_id[sizeof remote.bus_id - 1] = '\0';
      // An address that belongs to no GPU is that of a switch.
      gpu.nvlinks.push_back({normal_bus_id(remote.bus_id), gbps});
    }
    // A GPU without any NVLink bridge has all links down, which needs no note.
    if (!down.empty() && !gpu.nvlinks.empty()) note("GPU " + gpu.bus_id + " has NVLinks that are down: " + down);
  }

  /// Whether a link carries peer-to-peer traffic; true if NVML does not tell.
  bool carries_peers(NvmlDevice handle, unsigned link) const {
    unsigned capable = 1;
    if (calls_.link_capability == nullptr) return true;
    return calls_.link_capability(handle, link, capability_p2p, &capable) != 0 || capable != 0;
  }

  double link_gbps(NvmlDevice handle) const {
    NvmlField field{};
    field.field = field_nvlink_speed_mbps;
    if (calls_.fields == nullptr || calls_.fields(handle, 1, &field) != 0 || field.result != 0) return 0;
    constexpr int as_unsigned = 1;
    return field.value_type == as_unsigned ? field.value.as_uint * 1e-3 : 0;
  }

  void ask_p2p() {
    if (calls_.p2p == nullptr) return;
    std::set<NvmlReturn> refused;
    for (std::size_t a = 0; a < handles_.size(); ++a)
      for (std::size_t b = 0; b < handles_.size(); ++b) {
        if (a == b) continue;
        P2pStatus result = P2pStatus::ok;
        for (const int access : p2p_read_and_write) {
          int value = -1;
          const NvmlReturn status = calls_.p2p(handles_[a], handles_[b], access, &value);
          if (status != 0) refused.insert(status);
          if (result == P2pStatus::ok) result = status == 0 ? p2p_status(value) : P2pStatus::unknown;
        }
        survey_.p2p[{a, b}] = result;
      }
    for (const NvmlReturn status : refused) note("NVML does not say which GPUs reach one another: " + text(status));
  }

  SharedLibrary library_;
  Symbols calls_;
  bool started_ = false;
  std::vector<NvmlDevice> handles_;
  NvmlSurvey survey_;
};

}  // namespace

NvmlSurvey survey_nvml(const std::string& library) { return Nvml(library).take(); }

}  // namespace strait
