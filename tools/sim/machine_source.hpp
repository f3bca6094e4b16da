#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/types.hpp"
#include "select/machine_model.hpp"
#include "select/predict.hpp"

namespace CLI {
class App;
}

/// Which machine, and which operation on it, a user asks for.
namespace strait::sim {

/// A built-in machine's name, a file (Strait's JSON, NCCL's or hwloc's XML), or "": this machine.
Result<Topology> topology_of(const std::string& from);

struct MachineOptions {
  std::string topology;     ///< as above
  std::uint32_t ranks = 0;  ///< 0: all GPUs, or a rank for each CPU
  bool host = false;        ///< ranks on the CPUs even where there are GPUs
};
/// The GPUs of the machine; where there are none, or `host`, its CPUs. On this machine CPUs have the rates that
/// selection works with.
Result<Machine> machine_of(const MachineOptions& options);
/// The same when the topology is at hand (not for this machine).
Result<Machine> machine_on(const Topology& topology, const MachineOptions& options);

/// Which operation.
struct OperationOptions {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  WireFormat wire = WireFormat::off;  ///< of GPU ranks' calls
};
/// `bytes` as `strait perf` counts them, but for what is too short for its blocks of 16 bytes. An error: too few for
/// every rank to have an element.
Result<Operation> operation_of(const OperationOptions& options, std::size_t bytes, std::uint32_t ranks);
/// The message of such an error. `ranks`: those that must have an element each.
std::string too_short(std::size_t bytes, std::string_view type, std::size_t ranks, std::size_t least_bytes);

/// Declares the collective, -d, -o, -r, --wire, --topology and --host.
void declare_options(CLI::App& app, OperationOptions& operation, MachineOptions& machine);

struct Bandwidths {
  double algorithm_gbps = 0;
  double bus_gbps = 0;
};
/// As nccl-tests defines them.
Bandwidths bandwidths(const Operation& operation, std::uint32_t ranks, double time_us);

/// "sum" or, where nothing is added, "none".
std::string op_text(const OperationOptions& options);

}  // namespace strait::sim
