#include "sim/perf_rows.hpp"

#include <strait/strait.h>

#include <algorithm>
#include <cstdio>

#include "base/environment.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "perf/geometry.hpp"
#include "perf/plot.hpp"
#include "perf/report.hpp"
#include "perf/table.hpp"
#include "safe_print.hpp"
#include "sim/gpu_ranks.hpp"
#include "sim/machine_source.hpp"
#include "words.hpp"

namespace strait::sim {
namespace {

/// Returns the wire format for calls that can have one, determined as for measured calls: --wire, otherwise
/// STRAIT_WIRE and STRAIT_WIRE_CALLS.
Result<WireFormat> wire_of(const perf::Options& options) {
  if (options.wire) return *options.wire;
  const auto of_environment = Environment().text("STRAIT_WIRE");
  // The code is invalid_usage, because no command-line option is wrong.
  if (!of_environment) return fail(Code::invalid_usage, of_environment.error().message);
  const auto calls = Environment().text("STRAIT_WIRE_CALLS");
  if (!calls) return fail(Code::invalid_usage, calls.error().message);
  if (*calls != "all" && !is_reduction(options.collective)) return WireFormat::off;
  STRAIT_ASSIGN(const auto wire, tools::parse_wire(*of_environment));
  return *wire;
}

Result<perf::Row> predicted_row(const Machine& machine, const OperationOptions& options, std::size_t bytes,
                                std::size_t extra_elements) {
  const std::uint32_t ranks = machine.request.ranks;
  const perf::Geometry geometry = perf::geometry(options.collective, bytes, options.type, ranks, 0, extra_elements);
  const std::size_t blocks = larger_buffer_count(options.collective, 1, ranks);
  if (geometry.count == 0 && options.collective != Collective::barrier)
    return fail(Code::invalid_argument,
                too_short(bytes, name(options.type), blocks, blocks > 1 ? 16 * blocks : size_bytes(options.type)));
  const Operation operation{options.collective, options.type, options.op, geometry.count, options.root, options.wire};
  STRAIT_ASSIGN(const Prediction prediction, predict_ranks(machine, operation));
  const double time_us = prediction.choice().time.total_us;
  const Bandwidths rates = bandwidths(operation, ranks, time_us);
  perf::Row row;
  row.bytes = geometry.buffer_count() * size_bytes(options.type);
  row.count = operation.count;
  row.subject = {options.type, is_reduction(options.collective) ? std::optional(options.op) : std::nullopt,
                 has_root(options.collective) ? static_cast<int>(options.root) : -1};
  row.out_of_place = {time_us, 0, rates.algorithm_gbps, rates.bus_gbps, time_us, time_us, std::nullopt};
  if (geometry.has_in_place) row.in_place = row.out_of_place;
  return row;
}

std::vector<std::uint32_t> roots_of(const perf::Options& options, std::uint32_t ranks) {
  if (!has_root(options.collective)) return {0};
  if (options.root >= 0) return {static_cast<std::uint32_t>(options.root)};
  std::vector<std::uint32_t> roots;
  for (std::uint32_t root = 0; root < ranks; ++root) roots.push_back(root);
  return roots;
}

Status print(const perf::Options& options) {
  STRAIT_ASSIGN(const perf::Report report, predicted_report(options));
  tools::print(stdout, "{}",
               perf::prediction_header(options, report.ranks, report.predicted_on, report.transport.wire));
  for (const perf::Row& row : report.rows) tools::print(stdout, "{}", perf::table_row(row, false));
  tools::print(stdout, "# {:<20} : {:g} (predicted)\n", "Avg bus bandwidth",
               perf::summarise(report.rows).mean_bus_gbps);
  if (!options.json_path.empty()) STRAIT_TRY(tools::write_file(options.json_path, perf::to_json(report)));
  if (!options.plot_path.empty())
    STRAIT_TRY(tools::write_file(
        options.plot_path, options.plot_path.ends_with(".html") ? perf::plot_html(report) : perf::plot_svg(report)));
  return {};
}

}  // namespace

Result<perf::Report> predicted_report(const perf::Options& options) {
  const bool all = options.threads == 0 && options.gpus == 0;
  const int ranks = all ? 0 : std::max(1, options.threads) * std::max(1, options.gpus);
  STRAIT_ASSIGN(const Machine machine, machine_of({options.simulate, static_cast<std::uint32_t>(ranks), false}));
  perf::Report report;
  report.options = options;
  report.library_version = STRAIT_VERSION;
  report.predicted_on = {machine.name, std::string(caveat_of(machine))};
  for (std::size_t rank = 0; rank < machine.places.size(); ++rank)
    report.ranks.push_back({static_cast<int>(rank), 0, machine.places[rank]});
  STRAIT_ASSIGN(report.transport.wire, wire_of(options));
  const bool adds = is_reduction(options.collective);
  for (const DataType type : options.types)
    for (const ReduceOp op : adds ? options.ops : std::vector{ReduceOp::sum}) {
      const bool is_encoded = report.ranks.size() > 1 && wire::problem(options.collective, type, op).empty();
      const WireFormat wire = is_encoded ? report.transport.wire : WireFormat::off;
      for (const std::uint32_t root : roots_of(options, machine.request.ranks))
        for (const std::size_t bytes : perf::sizes_bytes(options)) {
          auto row = predicted_row(machine, {options.collective, type, op, root, wire}, bytes, options.extra_elements);
          if (!row && row.error().code == Code::unsupported && wire != WireFormat::off && !options.wire)
            return fail(Code::invalid_usage, "STRAIT_WIRE=" + std::string(name(wire)) + ": " + row.error().message +
                                                 ". Exact calls are predicted with --wire off");
          if (!row) return tl::unexpected(std::move(row).error());
          report.rows.push_back(*row);
        }
    }
  return report;
}

int predict_rows(const perf::Options& options) { return tools::report_and_exit_code("perf", print(options)); }

}  // namespace strait::sim
