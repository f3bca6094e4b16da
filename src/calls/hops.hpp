#pragma once

#include <cstdint>
#include <string_view>

namespace strait {

/// How kernels carry what they can in one hop or in two. By name these are the algorithms that GPU ranks have.
enum class Hops : std::uint8_t { chosen, one, two };

/// `chosen`: it is another algorithm, or none.
constexpr Hops hops_of(std::string_view algorithm) {
  return algorithm == "one_hop" ? Hops::one : algorithm == "two_hop" ? Hops::two : Hops::chosen;
}

}  // namespace strait
