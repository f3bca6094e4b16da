#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "command.hpp"
#include "perf/report.hpp"
#include "topology/detect.hpp"
#include "topology/file.hpp"
#include "topology/files.hpp"
#include "topology/print.hpp"

namespace strait::tools {
namespace {

struct Question {
  std::string from;
  std::string svg;
  bool json = false;
  bool list = false;
};

Result<Topology> topology_of(const std::string& from) {
  if (from.empty()) return detect();
  const auto known = fixtures();
  const bool is_fixture = std::any_of(known.begin(), known.end(), [&](const Fixture& f) { return f.name == from; });
  const bool is_path = from.find('/') != std::string::npos || from.find('.') != std::string::npos;
  return is_fixture || !is_path ? load_fixture(from) : load_topology_file(from);
}

Status print_list() {
  for (const Fixture& fixture : fixtures()) {
    STRAIT_ASSIGN(const Topology topology, load_fixture(fixture.name));
    std::cout << fixture.name
              << std::string(std::max<std::size_t>(24, fixture.name.size() + 2) - fixture.name.size(), ' ')
              << topology.name() << "\n";
  }
  return {};
}

Status answer(const Question& question) {
  if (question.list) return print_list();
  STRAIT_ASSIGN(const Topology topology, topology_of(question.from));
  if (!question.svg.empty()) STRAIT_TRY(perf::write_file(question.svg, to_svg(topology)));
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
  command->add_option(
      "--from", question->from,
      "Another machine than this one: a file (Strait's JSON, NCCL's or hwloc's XML), or a name of --list");
  command->add_flag("--json", question->json, "For programs; --from reads it again");
  command->add_option("--svg", question->svg, "Write a drawing to this file");
  command->add_flag("--list", question->list, "The machines that come with Strait");
  command->callback([question, &exit_code] {
    if (auto status = answer(*question); !status) {
      std::cerr << "strait topo: " << status.error().message << "\n";
      exit_code = 1;
    }
  });
}

}  // namespace strait::tools
