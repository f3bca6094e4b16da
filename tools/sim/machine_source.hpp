#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/types.hpp"
#include "sim/machine_model.hpp"
#include "sim/predict.hpp"

namespace CLI {
class App;
}

/// The machine and the operation that a user names on the command line.
namespace strait::sim {

/// Returns the topology of a built-in machine (by name) or of a file (Strait's JSON, or the XML of NCCL or hwloc). "":
/// that of this machine, with its measured rates.
Result<Topology> topology_of(const std::string& from);

struct MachineOptions {
  std::string topology;     ///< as in topology_of()
  std::uint32_t ranks = 0;  ///< 0: all GPUs, or one rank per CPU
  bool host = false;        ///< place ranks on the CPUs even if there are GPUs
};
/// Places ranks on the GPUs of the machine, or on its CPUs if there are no GPUs or `host` is set. For the CPUs of this
/// machine the rates are those that selection uses.
Result<Machine> machine_of(const MachineOptions& options);
/// The same for a topology that is already known. Not for the CPUs of this machine, whose rates selection knows better.
Result<Machine> machine_on(const Topology& topology, const MachineOptions& options);

/// The operation that a user names on the command line.
struct OperationOptions {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  WireFormat wire = WireFormat::off;  ///< only for calls of GPU ranks
};
/// Returns the operation whose size is `bytes` as `strait perf` counts it. `strait perf` makes blocks a multiple of 16
/// bytes; sizes that are too small for that are divided into blocks of whole elements. Returns an error if there is not
/// an element for every rank.
Result<Operation> operation_of(const OperationOptions& options, std::size_t bytes, std::uint32_t ranks);
/// Returns the message of that error. `ranks`: how many ranks must have an element each. `least_bytes`: the smallest
/// valid size.
std::string too_short(std::size_t bytes, std::string_view type, std::size_t ranks, std::size_t least_bytes);

/// Adds the collective and the options -d, -o, -r, --wire, --topology and --host to a command.
void declare_options(CLI::App& app, OperationOptions& operation, MachineOptions& machine);

struct Bandwidths {
  double algorithm_gbps = 0;
  double bus_gbps = 0;
};
/// Returns the algorithm and bus bandwidth as nccl-tests defines them.
Bandwidths bandwidths(const Operation& operation, std::uint32_t ranks, double time_us);

/// Returns "sum" etc., or "none" if the collective does not reduce.
std::string op_text(const OperationOptions& options);

}  // namespace strait::sim
