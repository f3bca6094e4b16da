#include "base/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string>
#include <vector>

namespace strait {

Status prefer_numa_node(std::byte* memory, std::size_t size_bytes, std::uint32_t node) {
  const auto page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t first = (begin + page_bytes - 1) / page_bytes * page_bytes;
  const std::uintptr_t end = (begin + size_bytes) / page_bytes * page_bytes;
  if (end <= first) return {};
  constexpr std::size_t word_bits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> nodes(node / word_bits + 1);
  nodes[node / word_bits] = 1ul << node % word_bits;
  // mbind reads one bit less than its maxnode argument says, hence the + 1.
  if (syscall(SYS_mbind, first, end - first, MPOL_PREFERRED, nodes.data(), nodes.size() * word_bits + 1, 0) != 0)
    return fail_errno("cannot place memory on NUMA node " + std::to_string(node) + " (mbind)", errno,
                      "In containers this takes CAP_SYS_NICE; the node must be among those allowed (cpuset.mems)");
  return {};
}

}  // namespace strait
