#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.hpp"

namespace strait {

/// A part of some memory, in bytes from its start, and the NUMA node that its pages should come from.
struct PlacedPart {
  std::size_t offset = 0;
  std::size_t size_bytes = 0;
  std::uint32_t node = 0;
  friend bool operator==(const PlacedPart&, const PlacedPart&) = default;
};

/// The whole pages of this range that nobody has touched yet come from that NUMA node, as long as it has any, whoever
/// touches them first; of shared memory also in other processes. Code::system_error where the system does not let us:
/// no such node, a container without CAP_SYS_NICE (seccomp), or a kernel without NUMA.
Status prefer_numa_node(std::byte* memory, std::size_t size_bytes, std::uint32_t node);

}  // namespace strait
