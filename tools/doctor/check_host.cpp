// Checks of the processor, the memory and the limits of this process.
#include <fmt/format.h>

#include <sstream>

#include "base/cpus.hpp"
#include "doctor/checks.hpp"
#include "topology/sysfs_files.hpp"

namespace strait::doctor {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

/// Returns the selected word of a line such as "always [madvise] never".
std::string bracketed(const std::string& line) {
  const auto open = line.find('[');
  const auto close = line.find(']', open);
  return open == std::string::npos || close == std::string::npos ? line : line.substr(open + 1, close - open - 1);
}

Finding fine(std::string check, std::string what) { return {Severity::ok, std::move(check), std::move(what), "", ""}; }

}  // namespace

Findings check_processor(const Machine& machine) {
  Findings found;
  const SysDirectory cpus(machine.root + "/sys/devices/system/cpu");
  const std::string governor = cpus.sub("cpu0/cpufreq").line("scaling_governor");
  if (governor == "powersave" || governor == "conservative") {
    // Drivers of processors that manage their speed in hardware also call their normal setting powersave.
    const std::string driver = cpus.sub("cpu0/cpufreq").line("scaling_driver");
    const bool managed = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate-epp");
    found.push_back({managed ? Severity::note : Severity::warning, "cpu_governor",
                     "the CPU governor is " + governor + " (driver " + driver + ")",
                     "cores that have slept start slowly: small messages take up to several times as long",
                     "sudo cpupower frequency-set -g performance"});
  } else if (!governor.empty()) {
    found.push_back(fine("cpu_governor", "the CPU governor is " + governor));
  }
  const double quota = cpu_quota(machine.root).cores;
  if (quota > 0 && quota < machine.usable_cores)
    found.push_back(
        {Severity::warning, "cpu_quota",
         fmt::format("the control group allows {:.2g} cores' time on {} cores", quota, machine.usable_cores),
         "once a period's time is used up every thread stops, and with it all ranks that wait for it; Strait counts on "
         "no more cores than the limit, rounded up",
         "raise the limit (docker --cpus, resources.limits.cpu), or bind as many cores as it allows"});
  std::istringstream load_line(SysDirectory(machine.root + "/proc").line("loadavg"));
  double load = 0;
  if (load_line >> load) {
    if (load > 0.5 * machine.usable_cores)
      found.push_back({Severity::warning, "cpu_load",
                       fmt::format("over the last minute {:.1f} threads ran or waited for one of {} cores", load,
                                   machine.usable_cores),
                       "while other programs are busy, ranks lose their core for milliseconds while all others wait",
                       "stop them, or leave them cores of their own"});
    else
      found.push_back(fine(
          "cpu_load", fmt::format("the load over the last minute is {:.1f} on {} cores", load, machine.usable_cores)));
  }
  return found;
}

Findings check_memory(const Machine& machine) {
  Findings found;
  const SysDirectory huge(machine.root + "/sys/kernel/mm/transparent_hugepage");
  if (const std::string setting = bracketed(huge.line("enabled")); setting == "never")
    found.push_back({Severity::note, "huge_pages", "transparent huge pages are off",
                     "large buffers need 512 times the page table entries: up to a tenth of the copy rate",
                     "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"});
  else if (!setting.empty())
    found.push_back(fine("huge_pages", "transparent huge pages: " + setting));
  if (!machine.has_memfd) {
    constexpr std::uint64_t enough = 64 * mib;
    const bool has_shm = machine.shm_bytes > enough;
    found.push_back(
        {has_shm ? Severity::warning : Severity::error, "memfd",
         "memfd_create is refused (a seccomp profile, or a kernel before 3.17)",
         has_shm ? "shared memory comes from /dev/shm instead" : "processes of this host cannot share memory",
         "allow memfd_create in the container's seccomp profile"});
  } else {
    found.push_back(fine("memfd", "memfd_create works"));
  }
  if (machine.shm_bytes == 0 || machine.shm_bytes <= 64 * mib)
    found.push_back(
        {Severity::note, "dev_shm",
         machine.shm_bytes == 0 ? "there is no /dev/shm" : fmt::format("/dev/shm has {} MB", machine.shm_bytes / mib),
         "none for Strait, which uses memfd; NCCL and data loaders need more",
         "docker run --shm-size=8g, or an emptyDir of medium Memory"});
  else
    found.push_back(fine("dev_shm", fmt::format("/dev/shm has {} MB", machine.shm_bytes / mib)));
  return found;
}

Findings check_limits(const Machine& machine) {
  Findings found;
  constexpr std::uint64_t least_locked = 64 * mib;
  if (machine.memlock_bytes < least_locked)
    found.push_back({Severity::warning, "memlock",
                     fmt::format("this process may lock {} KB of memory (RLIMIT_MEMLOCK)", machine.memlock_bytes >> 10),
                     "InfiniBand and RoCE cannot register buffers; NVIDIA's driver 580 does not count what GPUs pin",
                     "ulimit -l unlimited; docker run --ulimit memlock=-1; LimitMEMLOCK=infinity in systemd units"});
  else
    found.push_back(
        fine("memlock", "locked memory is limited to " + (machine.memlock_bytes == UINT64_MAX
                                                              ? std::string("nothing less than all")
                                                              : fmt::format("{} MB", machine.memlock_bytes / mib))));
  constexpr std::uint64_t least_files = 1024;
  if (machine.open_files < least_files)
    found.push_back({Severity::warning, "open_files",
                     fmt::format("this process may open {} files (RLIMIT_NOFILE)", machine.open_files),
                     "joining many ranks fails: each peer of this host takes up to three files",
                     "ulimit -n 65536; LimitNOFILE=65536 in systemd units"});
  else
    found.push_back(fine("open_files", fmt::format("{} open files", machine.open_files)));
  return found;
}

}  // namespace strait::doctor
