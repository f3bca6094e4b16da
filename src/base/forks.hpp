#pragma once

#include <cstdint>

namespace strait {

/// Returns a number that differs between a process and its forked children. An object made under another number belongs
/// to the parent, so its threads do not exist in this process. Makes no system call.
std::uint32_t fork_generation() noexcept;

}  // namespace strait
