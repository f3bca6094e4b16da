// Checks of the GPUs' health, as the driver reports it through NVML, if that is installed.
#include <fmt/format.h>

#include <array>

#include "base/shared_library.hpp"
#include "doctor/checks.hpp"

namespace strait::doctor {
namespace {

// From NVIDIA's NVML documentation, limited to what is used here. All of this is part of the ABI, stable since R450.
using NvmlReturn = int;
using NvmlDevice = struct NvmlDeviceHandle*;
constexpr NvmlReturn nvml_success = 0;
constexpr int temperature_of_gpu = 0;
constexpr int threshold_of_slowdown = 1;
constexpr int uncorrected_errors = 1;
constexpr int since_driver_load = 0;
constexpr unsigned most_nvlinks = 18;
constexpr std::array nvlink_errors{"replays", "recoveries", "CRC errors of flits", "CRC errors of data"};
constexpr std::size_t first_corrected_error = 2;
constexpr unsigned long long thermal_reasons = 0x20 | 0x40;  // software and hardware thermal slowdown
constexpr unsigned long long power_brake = 0x80;

class Nvml {
 public:
  explicit Nvml(const std::string& library) : library_(library) {
    if (!library_.is_loaded()) return;
    const auto init = function<NvmlReturn()>("nvmlInit_v2");
    status_ = init != nullptr ? init() : -1;
  }
  ~Nvml() {
    if (status_ != nvml_success) return;
    if (const auto shutdown = function<NvmlReturn()>("nvmlShutdown")) shutdown();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_installed() const { return library_.is_loaded(); }
  NvmlReturn status() const { return status_; }

  /// Calls an NVML function. Returns whether NVML has it and it succeeded.
  template <class... Arguments>
  bool ask(const char* symbol, Arguments... arguments) const {
    const auto found = function<NvmlReturn(Arguments...)>(symbol);
    return found != nullptr && found(arguments...) == nvml_success;
  }

 private:
  template <class Signature>
  Signature* function(const char* symbol) const {
    Signature* found = nullptr;
    library_.find(found, symbol);
    return found;
  }

  SharedLibrary library_;
  NvmlReturn status_ = -1;
};

void check_heat(const Nvml& nvml, NvmlDevice device, const std::string& gpu, Findings& found) {
  unsigned celsius = 0, slowdown = 0;
  if (nvml.ask("nvmlDeviceGetTemperature", device, temperature_of_gpu, &celsius)) {
    nvml.ask("nvmlDeviceGetTemperatureThreshold", device, threshold_of_slowdown, &slowdown);
    constexpr unsigned margin = 5;
    const bool hot = slowdown > 0 && celsius + margin >= slowdown;
    found.push_back({hot ? Severity::warning : Severity::ok, "gpu_temperature",
                     fmt::format("{} has {} C", gpu, celsius),
                     hot ? fmt::format("it slows down at {} C, and all ranks wait for it", slowdown) : "",
                     hot ? "better airflow, a lower power limit (nvidia-smi -pl)" : ""});
  }
  unsigned long long reasons = 0;
  if (nvml.ask("nvmlDeviceGetCurrentClocksThrottleReasons", device, &reasons) &&
      (reasons & (thermal_reasons | power_brake)) != 0)
    found.push_back({Severity::warning, "gpu_throttle",
                     gpu + ((reasons & power_brake) != 0 ? " is slowed down by the power supply's brake signal"
                                                         : " is slowed down because it is hot"),
                     "all ranks wait for the slowest GPU", "better airflow or power supply, a lower power limit"});
}

/// NVLinks correct CRC errors by themselves, and healthy links count hundreds of them. A replay or a recovery stops the
/// traffic of the link.
void check_nvlinks(const Nvml& nvml, NvmlDevice device, const std::string& gpu, Findings& found) {
  for (std::size_t kind = 0; kind < nvlink_errors.size(); ++kind) {
    unsigned long long total = 0;
    unsigned links = 0;
    for (unsigned link = 0; link < most_nvlinks; ++link) {
      int active = 0;
      unsigned long long count = 0;
      if (!nvml.ask("nvmlDeviceGetNvLinkState", device, link, &active) || active == 0) continue;
      if (!nvml.ask("nvmlDeviceGetNvLinkErrorCounter", device, link, static_cast<int>(kind), &count)) continue;
      total += count;
      links += count > 0 ? 1 : 0;
    }
    if (total == 0) continue;
    const bool corrected = kind >= first_corrected_error;
    found.push_back({corrected ? Severity::note : Severity::warning, "nvlink_errors",
                     fmt::format("{} of the NVLinks of {} have counted {} {}", links, gpu, total, nvlink_errors[kind]),
                     corrected ? "next to nothing while the count grows slowly" : "pauses of all traffic on the link",
                     corrected ? "look again later: a count that grows fast means a bad link"
                               : "reseat the GPU or its bridge, clean its connector"});
  }
}

void check_errors(const Nvml& nvml, NvmlDevice device, const std::string& gpu, Findings& found) {
  unsigned long long errors = 0;
  if (nvml.ask("nvmlDeviceGetTotalEccErrors", device, uncorrected_errors, since_driver_load, &errors)) {
    if (errors > 0)
      found.push_back({Severity::error, "gpu_ecc", fmt::format("{} has had {} uncorrected memory errors", gpu, errors),
                       "wrong results, or jobs that end with Xid 48 or 63",
                       "reset it (nvidia-smi -r); have it replaced if they come again"});
    else
      found.push_back({Severity::ok, "gpu_ecc", gpu + " has had no uncorrected memory errors", "", ""});
  }
  check_nvlinks(nvml, device, gpu, found);
}

}  // namespace

Findings check_gpus(const Machine& machine) {
  const Nvml nvml(machine.nvml_library);
  if (!nvml.is_installed())
    return {{Severity::note, "gpu_driver", "there is no NVIDIA driver (" + machine.nvml_library + ")",
             "none on a machine without NVIDIA GPUs", "install the driver; start containers with --gpus all"}};
  unsigned count = 0;
  if (nvml.status() != nvml_success || !nvml.ask("nvmlDeviceGetCount_v2", &count))
    return {{Severity::error, "gpu_driver", fmt::format("NVML does not start (status {})", nvml.status()),
             "no GPU can be used", "nvidia-smi says more; kernel module and library must have one version: reboot"}};
  std::array<char, 96> driver{};
  int cuda = 0;
  nvml.ask("nvmlSystemGetDriverVersion", driver.data(), static_cast<unsigned>(driver.size() - 1));
  nvml.ask("nvmlSystemGetCudaDriverVersion_v2", &cuda);
  constexpr int oldest_cuda = 12040;
  const bool old = cuda > 0 && cuda < oldest_cuda;
  Findings found{
      {old ? Severity::error : Severity::ok, "gpu_driver",
       fmt::format("{} GPUs, driver {}, up to CUDA {}.{}", count, driver.data(), cuda / 1000, cuda % 1000 / 10),
       old ? "Strait's GPU parts need CUDA 12.4" : "", old ? "install driver 550 or later" : ""}};
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    const std::string gpu = fmt::format("GPU {}", index);
    if (!nvml.ask("nvmlDeviceGetHandleByIndex_v2", index, &device)) {
      found.push_back({Severity::error, "gpu_lost", gpu + " does not answer", "no job can use it",
                       "see the kernel log for its Xid; reboot"});
      continue;
    }
    check_heat(nvml, device, gpu, found);
    check_errors(nvml, device, gpu, found);
  }
  return found;
}

}  // namespace strait::doctor
