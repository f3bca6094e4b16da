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
#include "topology/detect.hpp"
#include "topology/files.hpp"
#include "topology/print.hpp"
#include "utc.hpp"

namespace strait::tools {
namespace {

struct Question {
  std::string from;
  std::string svg;
  std::string save;
  bool json = false;
  bool list = false;
  bool measure = false;
};

Status print_list() {
  for (const Fixture& fixture : fixtures()) {
    STRAIT_ASSIGN(const Topology topology, load_fixture(fixture.name));
    std::cout << fixture.name
              << std::string(std::max<std::size_t>(24, fixture.name.size() + 2) - fixture.name.size(), ' ')
              << topology.name() << "\n";
  }
  return {};
}

/// `topology` is this machine.
Status measure(const Question& question, const Topology& topology) {
  if (!question.save.empty()) STRAIT_TRY(check_writable(question.save));
  std::cerr << "strait topo: measuring; nothing else should run meanwhile\n";
  topo::Measurements found;
  if (auto gpus = topo::measure_gpus(topology))
    found.gpus.push_back(std::move(*gpus));
  else if (gpus.error().code == Code::unsupported)
    found.no_gpus = gpus.error().message;
  else
    return tl::unexpected(gpus.error());
  if (!question.save.empty()) {
    if (found.gpus.empty()) return fail(Code::unsupported, "--save keeps the rates of GPUs: " + found.no_gpus);
    STRAIT_ASSIGN(const Topology measured,
                  topo::with_measured_rates(topology, found.gpus.front(), "copy engine, " + utc_today()));
    STRAIT_TRY(write_file(question.save, to_json(measured)));
  }
  found.host = topo::measure_host();
  std::cout << (question.json ? topo::to_json(found) : topo::to_text(found));
  return {};
}

Status answer(const Question& question) {
  STRAIT_TRY(check_svg("--svg", question.svg));
  if (question.list) return print_list();
  if (question.measure) {
    STRAIT_ASSIGN(const Topology topology, detect());
    return measure(question, topology);
  }
  STRAIT_ASSIGN(const Topology topology, sim::topology_of(question.from));
  if (!question.svg.empty()) STRAIT_TRY(write_file(question.svg, to_svg(topology)));
  if (question.json)
    std::cout << to_json(topology);
  else if (question.svg.empty())
    std::cout << to_table(topology);
  return {};
}

}  // namespace

void add_topo(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("topo", "Show a machine: how its GPUs reach one another, and what they share");
  const auto question = std::make_shared<Question>();
  CLI::Option* from = command->add_option(
      "--from,--topology", question->from,
      "Another machine than this one: a file (Strait's JSON, NCCL's or hwloc's XML), or a name of --list");
  CLI::Option* json =
      command->add_flag("--json", question->json, "For programs; --from reads it again (not that of --measure)");
  CLI::Option* svg = command->add_option("--svg", question->svg, "Write a drawing to this file");
  CLI::Option* list = command->add_flag("--list", question->list, "The machines that come with Strait");
  CLI::Option* measure =
      command->add_flag("--measure", question->measure, "Measure this machine's links, alone and all at once")
          ->excludes(svg)
          ->excludes(from);
  list->excludes(from)->excludes(json)->excludes(svg)->excludes(measure);
  command
      ->add_option(
          "--save", question->save,
          "With --measure: write this machine's description with the measured rates, for --from and --topology")
      ->needs(measure);
  command->callback([question, &exit_code] {
    if (auto status = answer(*question); !status) {
      std::cerr << "strait topo: " << status.error().message << "\n";
      exit_code = status.error().code == Code::invalid_argument ? usage_error : failed;
    }
  });
}

}  // namespace strait::tools
