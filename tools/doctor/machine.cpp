#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "doctor/team.hpp"

namespace strait::doctor {
namespace {

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : 0;
}

/// Reads all messages of the kernel log. A read of /dev/kmsg returns one message.
void read_kernel_log(Machine& machine) {
  const UniqueFd file(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    machine.kernel_log_problem = std::strerror(errno);
    return;
  }
  std::array<char, 8192> message{};
  for (int messages = 0; messages < 200'000; ++messages) {
    const ssize_t length = ::read(file.get(), message.data(), message.size());
    if (length < 0 && errno == EPIPE) continue;  // the message was overwritten before it was read
    if (length <= 0) {
      if (length < 0 && errno != EAGAIN) machine.kernel_log_problem = std::strerror(errno);
      return;
    }
    machine.kernel_log.append(message.data(), static_cast<std::size_t>(length));
  }
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.memlock_bytes = limit_of(RLIMIT_MEMLOCK);
  machine.open_files = limit_of(RLIMIT_NOFILE);
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) machine.shm_bytes = std::uint64_t{shm.f_blocks} * shm.f_frsize;
  machine.has_memfd = static_cast<bool>(UniqueFd(memfd_create("strait-doctor", MFD_CLOEXEC)));
  machine.usable_cores = static_cast<std::uint32_t>(usable_cores().size());
  read_kernel_log(machine);
  return machine;
}

Findings check_all(const Machine& machine) {
  Findings all;
  for (const auto check : {check_processor, check_memory, check_limits, check_pcie, check_network, check_rdma,
                           check_gpus, check_kernel_log}) {
    const Findings some = check(machine);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace strait::doctor
