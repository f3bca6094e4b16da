#pragma once

#include <cstdint>
#include <string>

#include "doctor/finding.hpp"

namespace strait::doctor {

/// What the checks examine. Tests pass a made-up directory tree and made-up limits.
struct Machine {
  std::string root;  ///< prefix of /proc and /sys; "" on a live machine
  std::uint64_t memlock_bytes = 0;
  std::uint64_t open_files = 0;
  std::uint64_t shm_bytes = 0;  ///< size of /dev/shm; 0: it does not exist
  bool has_memfd = true;
  std::uint32_t usable_cores = 1;
  std::string kernel_log;
  std::string kernel_log_problem;  ///< why the kernel log could not be read; "" if it could
  std::string nvml_library = "libnvidia-ml.so.1";
  std::string verbs_library = "libibverbs.so.1";
};
/// Describes this machine as this process sees it.
Machine this_machine();

/// Runs all checks that neither put load on the machine nor change anything.
Findings check_all(const Machine& machine);

Findings check_pcie(const Machine& machine);
Findings check_limits(const Machine& machine);
Findings check_memory(const Machine& machine);
Findings check_processor(const Machine& machine);
Findings check_network(const Machine& machine);
Findings check_rdma(const Machine& machine);
Findings check_kernel_log(const Machine& machine);
Findings check_gpus(const Machine& machine);

}  // namespace strait::doctor
