#pragma once

#include <cstdint>

#include "kernels/network.hpp"

namespace strait::testing {

/// Runs a launch of the kernels that exchange data with other hosts on the CPU. All its blocks run concurrently.
void run_network(const kernels::NetworkExchange& argument, std::uint32_t seed);

}  // namespace strait::testing
