#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/time_text.hpp"
#include "perf/axis.hpp"
#include "perf/provenance.hpp"
#include "sim/sweep.hpp"

namespace strait::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string rows(const std::vector<Curve>& curves, bool of_ranks) {
  std::string text;
  for (const Curve& curve : curves) {
    text += fmt::format("#\n# {}\n# {:>8} {:>8} {:>12} {:>9} {:>9}  {:<17} {:<14} {:>5} {}\n", curve.name,
                        of_ranks ? "ranks" : "bytes", of_ranks ? "bytes" : "ranks", "time", "algbw", "busbw", "plan",
                        "executor", "busy", "binding");
    for (const Point& point : curve.points) {
      const std::string bytes = perf::bytes_label(static_cast<double>(point.bytes));
      const std::string ranks = std::to_string(point.ranks);
      text += fmt::format("{:>10} {:>8} {:>12} {:>9.3f} {:>9.3f}  {:<17} {:<14} {:>4.0f}% {}\n",
                          of_ranks ? ranks : bytes, of_ranks ? bytes : ranks, time_text(point.plan.time.total_us),
                          point.rates.algorithm_gbps, point.rates.bus_gbps, point.plan.algorithm, point.plan.executor,
                          100 * binding_share(point.plan.time), point.plan.time.binding);
    }
  }
  return text;
}

Json curves_json(const std::vector<Curve>& curves) {
  Json json = Json::array();
  for (const Curve& curve : curves) {
    Json points = Json::array();
    for (const Point& point : curve.points) {
      Json levels = Json::array();
      for (const LevelUse& use : point.levels)
        levels.push_back({{"level", use.level}, {"resource", use.resource}, {"busy", use.busy}});
      points.push_back({{"ranks", point.ranks},
                        {"bytes", point.bytes},
                        {"algorithm", point.plan.algorithm},
                        {"executor", point.plan.executor},
                        {"lanes", point.plan.lanes},
                        {"slice_bytes", point.plan.slice_bytes},
                        {"predicted_us", point.plan.time.total_us},
                        {"algbw_gbps", point.rates.algorithm_gbps},
                        {"busbw_gbps", point.rates.bus_gbps},
                        {"binding", point.plan.time.binding},
                        {"binding_busy", binding_share(point.plan.time)},
                        {"levels", levels}});
    }
    json.push_back({{"name", curve.name}, {"points", points}});
  }
  return json;
}

}  // namespace

std::string to_text(const Sweep& sweep) {
  std::string text = "# PREDICTION by Strait's clock: nothing here was measured\n";
  text += fmt::format("# machine: {}\n# {}, {}, {}; bandwidths in GB/s\n", sweep.on.machine,
                      name(sweep.operation.collective), name(sweep.operation.type), op_text(sweep.operation));
  if (!sweep.on.caveat.empty()) text += fmt::format("# {}\n", sweep.on.caveat);
  text += "#\n# against size\n" + rows(sweep.by_size, false);
  return text + "#\n# against ranks\n" + rows(sweep.by_ranks, true);
}

std::string to_json(const Sweep& sweep) {
  Json json = {{"program", "strait sim"}, {"prediction", true}, {"provenance", perf::provenance()}};
  json["machine"] = sweep.on.machine;
  json["caveat"] = sweep.on.caveat;
  json["collective"] = name(sweep.operation.collective);
  json["type"] = name(sweep.operation.type);
  json["op"] = is_reduction(sweep.operation.collective) ? Json(name(sweep.operation.op)) : Json();
  json["wire"] = name(sweep.operation.wire);
  json["by_size"] = curves_json(sweep.by_size);
  json["by_ranks"] = curves_json(sweep.by_ranks);
  return json_text(json);
}

}  // namespace strait::sim
