#pragma once

#include <cstdint>

#include "kernels/network.hpp"

namespace strait::testing {

/// A launch of the kernels that trade with other hosts, on the CPU: all its blocks run at the same time.
void run_network(const kernels::NetworkExchange& argument, std::uint32_t seed);

}  // namespace strait::testing
