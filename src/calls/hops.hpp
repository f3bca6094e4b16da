#pragma once

#include <cstdint>
#include <string_view>

namespace strait {

/// In how many hops kernels carry calls that can take one or two. For GPU ranks these are algorithms, by the names
/// one_hop and two_hop.
enum class Hops : std::uint8_t { chosen, one, two };

/// Returns the hops that an algorithm's name asks for; `chosen` for other algorithms, or none.
constexpr Hops hops_of(std::string_view algorithm) {
  return algorithm == "one_hop" ? Hops::one : algorithm == "two_hop" ? Hops::two : Hops::chosen;
}

}  // namespace strait
