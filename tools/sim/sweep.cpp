#include "sim/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "perf/axis.hpp"
#include "sim/gpu_ranks.hpp"

namespace strait::sim {
namespace {

constexpr std::uint32_t most_by_ones = 16;
constexpr std::uint32_t most_by_default = 64;

Result<std::uint32_t> parse_count(std::string_view text) {
  std::uint32_t count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc{} || end != text.data() + text.size() || count < 2 || count > most_placed_ranks)
    return fail(Code::invalid_argument,
                fmt::format("'{}' is not a number of ranks from 2 to {}. Write 8, or 2,4,8, or 2..10", text,
                            most_placed_ranks));
  return count;
}

Result<Point> point(const Machine& machine, const OperationOptions& options, std::size_t bytes,
                    const std::string& algorithm, const Progress& progress) {
  if (progress && machine.request.ranks > most_ranks_in_silence)
    progress(fmt::format("simulates {} of {} on {} ranks", algorithm.empty() ? name(options.collective) : algorithm,
                         perf::bytes_label(static_cast<double>(bytes)), machine.request.ranks));
  STRAIT_ASSIGN(const Operation operation, operation_of(options, bytes, machine.request.ranks));
  STRAIT_ASSIGN(Prediction prediction, predict_ranks(machine, operation, {.algorithm = algorithm}));
  Point point{machine.request.ranks, bytes, std::move(prediction.plans.front()), {}, {}};
  point.plan.time.timeline = {};
  point.rates = bandwidths(operation, machine.request.ranks, point.plan.time.total_us);
  point.levels = level_uses(machine, point.plan.time);
  return point;
}

}  // namespace

std::string label_of(const std::string& algorithm, const Machine& machine) {
  if (algorithm == "ring" && machine.host_sums) return "ring, every hop through host memory (as NCCL does it)";
  return algorithm;
}

Result<std::vector<std::uint32_t>> parse_ranks(std::string_view text) {
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    STRAIT_ASSIGN(const std::uint32_t first, parse_count(text.substr(0, dots)));
    STRAIT_ASSIGN(const std::uint32_t last, parse_count(text.substr(dots + 2)));
    if (first > last) return fail(Code::invalid_argument, "'" + std::string(text) + "' goes down. Exchange its ends");
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t count = first; count <= last; ++count) ranks.push_back(count);
    return ranks;
  }
  std::vector<std::uint32_t> ranks;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    STRAIT_ASSIGN(const std::uint32_t count, parse_count(text.substr(begin, end - begin)));
    ranks.push_back(count);
    begin = end + 1;
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::vector<std::uint32_t> default_ranks(std::uint32_t most) {
  std::vector<std::uint32_t> ranks;
  const std::uint32_t last = std::min(most, most_by_default);
  for (std::uint32_t count = 2; count <= last; count = last <= most_by_ones ? count + 1 : 2 * count)
    ranks.push_back(count);
  if (ranks.empty() || ranks.back() != last) ranks.push_back(std::max(last, 2U));
  return ranks;
}

Result<Sweep> sweep(const SweepOptions& options) {
  MachineOptions largest = options.machine;
  std::vector<std::uint32_t> ranks = options.ranks;
  largest.ranks = ranks.empty() ? 0 : ranks.back();
  if (ranks.empty()) {
    STRAIT_ASSIGN(const Topology topology, topology_of(options.machine.topology));
    const auto gpus = static_cast<std::uint32_t>(topology.all(DeviceKind::gpu).size());
    if (gpus > 0 && !options.machine.host) {
      ranks = default_ranks(gpus);
    } else {
      STRAIT_ASSIGN(const Machine cpus, machine_of(largest));
      ranks = default_ranks(cpus.request.ranks);
    }
    largest.ranks = ranks.back();
  }
  STRAIT_ASSIGN(const Machine machine, machine_of(largest));
  Sweep result{{machine.name, std::string(caveat_of(machine))}, options.operation, {}, {}};
  OperationOptions exact = options.operation;
  exact.wire = WireFormat::off;
  std::vector<std::pair<std::string, OperationOptions>> curves{{options.algorithm, options.operation}};
  if (exact.wire != options.operation.wire) curves.emplace_back(options.algorithm, exact);
  for (const std::string& other : options.against) curves.emplace_back(other, exact);
  for (const auto& [algorithm, operation] : curves) {
    std::string name = algorithm.empty() ? "Strait's choice" : label_of(algorithm, machine);
    if (operation.wire != WireFormat::off) name += fmt::format(", {} on the wire", strait::name(operation.wire));
    Curve by_size{name, {}}, by_ranks{name, {}};
    for (const std::size_t bytes : options.sizes_bytes) {
      STRAIT_ASSIGN(Point one, point(machine, operation, bytes, algorithm, options.progress));
      by_size.points.push_back(std::move(one));
    }
    for (const std::uint32_t count : ranks) {
      MachineOptions smaller = largest;
      smaller.ranks = count;
      STRAIT_ASSIGN(const Machine some, machine_of(smaller));
      STRAIT_ASSIGN(Point one, point(some, operation, options.sizes_bytes.back(), algorithm, options.progress));
      by_ranks.points.push_back(std::move(one));
    }
    result.by_size.push_back(std::move(by_size));
    result.by_ranks.push_back(std::move(by_ranks));
  }
  return result;
}

}  // namespace strait::sim
