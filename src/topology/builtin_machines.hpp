#pragma once

#include <span>
#include <string_view>

#include "base/error.hpp"
#include "topology/topology.hpp"

/// Machines that come with Strait: those of src/topology/machines, which `strait topo --list` prints.
namespace strait {

struct BuiltinMachine {
  std::string_view name;  ///< "10x-rtx3090"
  std::string_view json;
};
std::span<const BuiltinMachine> builtin_machines();
Result<Topology> load_builtin_machine(std::string_view name);

}  // namespace strait
