#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "command.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "sim/machine_source.hpp"
#include "topo/measurements.hpp"
#include "topology/builtin_machines.hpp"
#include "topology/detect.hpp"
#include "topology/json.hpp"
#include "topology/print.hpp"
#include "utc.hpp"

namespace strait::tools {
namespace {

struct Options {
  std::string from;
  std::string svg;
  std::string save;
  bool json = false;
  bool list = false;
  bool measure = false;
};

Status print_list() {
  for (const BuiltinMachine& machine : builtin_machines()) {
    STRAIT_ASSIGN(const Topology topology, load_builtin_machine(machine.name));
    std::cout << machine.name
              << std::string(std::max<std::size_t>(24, machine.name.size() + 2) - machine.name.size(), ' ')
              << topology.name() << "\n";
  }
  return {};
}

/// `topology` is this machine.
Status measure(const Options& options, const Topology& topology) {
  if (!options.save.empty()) STRAIT_TRY(check_writable(options.save));
  std::cerr << "strait topo: measuring; nothing else should run meanwhile\n";
  topo::Measurements found;
  if (auto gpus = topo::measure_gpus(topology))
    found.gpus.push_back(std::move(*gpus));
  else if (gpus.error().code == Code::unsupported)
    found.no_gpus = gpus.error().message;
  else
    return tl::unexpected(gpus.error());
  if (!options.save.empty()) {
    if (found.gpus.empty()) return fail(Code::unsupported, "--save keeps the rates of GPUs: " + found.no_gpus);
    STRAIT_ASSIGN(const Topology measured,
                  topo::with_measured_rates(topology, found.gpus.front(), "copy engine, " + utc_today()));
    STRAIT_TRY(write_file(options.save, to_json(measured)));
  }
  found.host = topo::measure_host();
  std::cout << (options.json ? topo::to_json(found) : topo::to_text(found));
  return {};
}

Status answer(const Options& options) {
  STRAIT_TRY(check_svg("--svg", options.svg));
  if (options.list) return print_list();
  if (options.measure) {
    STRAIT_ASSIGN(const Topology topology, detect());
    return measure(options, topology);
  }
  STRAIT_ASSIGN(const Topology topology, sim::topology_of(options.from));
  if (!options.svg.empty()) STRAIT_TRY(write_file(options.svg, to_svg(topology)));
  if (options.json)
    std::cout << to_json(topology);
  else if (options.svg.empty())
    std::cout << to_table(topology);
  return {};
}

}  // namespace

void add_topo(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("topo", "Show a machine: how its GPUs reach one another, and which links they share");
  const auto options = std::make_shared<Options>();
  CLI::Option* from = command->add_option(
      "--from,--topology", options->from,
      "A machine other than this one: a file (Strait's JSON, NCCL's or hwloc's XML), or a name that --list prints");
  CLI::Option* json = command->add_flag("--json", options->json,
                                        "Print JSON, for programs; without --measure, --from can read it again");
  CLI::Option* svg = command->add_option("--svg", options->svg, "Write a drawing to this file");
  CLI::Option* list = command->add_flag("--list", options->list, "List the machines that come with Strait");
  CLI::Option* measure =
      command->add_flag("--measure", options->measure, "Measure this machine's links, each alone and all at once")
          ->excludes(svg)
          ->excludes(from);
  list->excludes(from)->excludes(json)->excludes(svg)->excludes(measure);
  command
      ->add_option("--save", options->save,
                   "With --measure: write this machine's description with the measured rates to this file, for --from "
                   "and --topology")
      ->needs(measure);
  command->callback([options, &exit_code] {
    if (auto status = answer(*options); !status) {
      std::cerr << "strait topo: " << status.error().message << "\n";
      exit_code = status.error().code == Code::invalid_argument ? usage_error : failed;
    }
  });
}

}  // namespace strait::tools
