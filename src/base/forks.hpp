#pragma once

#include <cstdint>

namespace strait {

/// In a forked child another number than in its parent: what was made under another one is the parent's. Costs no
/// system call.
std::uint32_t fork_generation() noexcept;

}  // namespace strait
