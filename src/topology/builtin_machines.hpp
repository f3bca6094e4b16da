#pragma once

#include <span>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// The machines that come with Strait, from src/topology/machines. `strait topo --list` prints them.
namespace strait {

struct BuiltinMachine {
  std::string_view name;  ///< "10x-rtx3090"
  std::string_view json;
};
std::span<const BuiltinMachine> builtin_machines();
Result<Topology> load_builtin_machine(std::string_view name);

}  // namespace strait
