#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace strait {

/// A part of a memory range, in bytes from its start, and the NUMA node on which its pages should be allocated.
struct PlacedPart {
  std::size_t offset = 0;
  std::size_t size_bytes = 0;
  std::uint32_t node = 0;
  friend bool operator==(const PlacedPart&, const PlacedPart&) = default;
};

/// Lets the whole pages of this range that nobody has touched yet be allocated on NUMA node `node` while it has free
/// memory, whichever thread touches them first; for shared memory this holds in other processes, too. Returns
/// Code::system_error if the system refuses: no such node, a container without CAP_SYS_NICE (seccomp), or a kernel
/// without NUMA.
Status prefer_numa_node(std::byte* memory, std::size_t size_bytes, std::uint32_t node);

}  // namespace strait
