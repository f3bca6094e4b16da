#include "sim/machine_source.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/cpus.hpp"
#include "doctor/team.hpp"
#include "parsed_option.hpp"
#include "perf/axis.hpp"
#include "perf/geometry.hpp"
#include "perf/table.hpp"
#include "select/calibration.hpp"
#include "select/known_exchange.hpp"
#include "select/link_rates.hpp"
#include "topology/builtin_machines.hpp"
#include "topology/detect.hpp"
#include "topology/load.hpp"
#include "words.hpp"

namespace strait::sim {
namespace {

/// Models this machine's CPUs as communicators do, so that the prediction is what they would choose.
Result<Machine> this_hosts_cpus(std::uint32_t ranks) {
  const std::uint32_t cores = within_quota(doctor::usable_cores().size(), cpu_quota());
  const KnownRates& known = process_rates();
  HostRates rates = known.host;
  rates.cache_bytes = cache_sizes().shared_bytes;
  Machine machine{.name = fmt::format("this machine, {}, rates from {}", perf::counted(cores, "CPU"), known.source),
                  .levels = {"CPU", "DRAM"}};
  if (ranks > most_placed_ranks)
    return fail(Code::unsupported,
                fmt::format("the clock simulates at most {} ranks, not {}", most_placed_ranks, ranks));
  machine.request.ranks = ranks > 0 ? ranks : std::max(2U, cores);
  machine.clock = host_model(machine.request.ranks, cores, rates);
  const char* transport = machine.request.peer_memory ? "loopback" : "shm";
  if (const auto found = known.plans.find(ratios_key(transport, machine.request.ranks)); found != known.plans.end())
    machine.clock.ratios = found->second;
  for (std::uint32_t rank = 0; rank < machine.request.ranks; ++rank)
    machine.places.push_back(fmt::format("CPU {}", rank % cores));
  return machine;
}

}  // namespace

Result<Topology> topology_of(const std::string& from) {
  if (from.empty()) {
    STRAIT_ASSIGN(Topology topology, detect());
    return with_known_rates(std::move(topology), process_rates());
  }
  const auto known = builtin_machines();
  const bool is_builtin =
      std::any_of(known.begin(), known.end(), [&](const BuiltinMachine& machine) { return machine.name == from; });
  const bool is_path = from.find('/') != std::string::npos || from.find('.') != std::string::npos;
  return is_builtin || !is_path ? load_builtin_machine(from) : load_topology_file(from);
}

Result<Machine> machine_on(const Topology& topology, const MachineOptions& options) {
  if (options.host || topology.all(DeviceKind::gpu).empty()) return place_on_cpus(topology, options.ranks);
  const KnownRates& known = process_rates();
  STRAIT_ASSIGN(Machine machine, place_on_gpus(topology, options.ranks, known_gpu_rates(topology, known)));
  // For this machine, communicators use only rates that were measured, none that are merely assumed.
  if (options.topology.empty() && machine.arena && machine.arena != kernels::ArenaKind::nvlink)
    machine.exchange =
        known_exchange_rates(topology, known, machine.bus_ids, machine.arena == kernels::ArenaKind::host);
  return machine;
}

Result<Machine> machine_of(const MachineOptions& options) {
  STRAIT_ASSIGN(const Topology topology, topology_of(options.topology));
  const bool on_cpus = options.host || topology.all(DeviceKind::gpu).empty();
  return options.topology.empty() && on_cpus ? this_hosts_cpus(options.ranks) : machine_on(topology, options);
}

Result<Operation> operation_of(const OperationOptions& options, std::size_t bytes, std::uint32_t ranks) {
  const std::size_t blocks = larger_buffer_count(options.collective, 1, ranks);  // in a rank's larger buffer
  std::size_t count = perf::geometry(options.collective, bytes, options.type, ranks, 0).count;
  if (count == 0)
    // Too small for the blocks of `strait perf`, which are multiples of 16 bytes.
    count = bytes / size_bytes(options.type) / blocks;
  if (count == 0 && options.collective != Collective::barrier)
    return fail(Code::invalid_argument,
                too_short(bytes, name(options.type), blocks, size_bytes(options.type) * blocks));
  return Operation{options.collective, options.type, options.op, count, options.root, options.wire};
}

void declare_options(CLI::App& app, OperationOptions& operation, MachineOptions& machine) {
  tools::add_parsed(app, "collective", operation.collective, tools::parse_collective, "Such as all-reduce")->required();
  tools::add_parsed(app, "-d,--datatype,--type", operation.type, tools::parse_types, "Element type (default: float)");
  tools::add_parsed(app, "-o,--op", operation.op, tools::parse_ops,
                    "Reduction: sum, prod, max, min, avg (default: sum)");
  app.add_option("-r,--root", operation.root, "Root rank")->capture_default_str();
  tools::add_parsed(app, "--wire", operation.wire, tools::parse_wire,
                    "Wire format of floats between GPU ranks: off, int8, fp8, int4 (default: off)");
  app.add_option("--topology", machine.topology,
                 "A machine other than this one: a name that `strait topo --list` prints, or a file (Strait's JSON, "
                 "NCCL's or hwloc's XML)");
  app.add_flag("--host", machine.host, "Place ranks on the CPUs even if there are GPUs");
}

std::string too_short(std::size_t bytes, std::string_view type, std::size_t ranks, std::size_t least_bytes) {
  return fmt::format("{} cannot hold an element of {}{}. Take {} or more",
                     bytes == 1 ? "1 byte" : fmt::format("{} bytes", bytes), type,
                     ranks > 1 ? fmt::format(" for each of {} ranks", ranks) : "", least_bytes);
}

Bandwidths bandwidths(const Operation& operation, std::uint32_t ranks, double time_us) {
  perf::Geometry g;
  g.count = g.send_count = operation.count;
  const auto bytes = static_cast<double>(perf::algorithm_bytes(operation.collective, g, operation.type, ranks));
  const double algorithm_gbps = time_us > 0 ? bytes / time_us * 1e-3 : 0;
  return {algorithm_gbps, algorithm_gbps * perf::bus_factor(operation.collective, ranks)};
}

std::string op_text(const OperationOptions& options) {
  return is_reduction(options.collective) ? std::string(name(options.op)) : "none";
}

}  // namespace strait::sim
