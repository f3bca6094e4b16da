#pragma once

#include <cstdint>

#include "select/estimate.hpp"

namespace strait::testing {

/// Returns a model of hosts with up to 8 H800 GPUs, each with a NIC of 400 Gbit/s: rounded rates of such machines.
inline LevelModel h800_hosts(std::uint32_t hosts, std::uint32_t ranks_a_host) {
  LevelModel machine;
  machine.rank_costs.call_us = 3;
  machine.rank_costs.step_us = 1;
  machine.rank_costs.link_us = 0.2;
  machine.rank_costs.copy_gbps = 1000;
  machine.rank_costs.reduce_gbps = 1500;
  machine.rank_costs.lanes_at_once = 32;
  machine.levels.push_back({ranks_a_host, 1, 160, 0});
  if (hosts > 1) machine.levels.push_back({hosts * ranks_a_host, 8, 45, ranks_a_host * 45.0});
  return machine;
}

}  // namespace strait::testing
