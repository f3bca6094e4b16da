#include "perf/report.hpp"

#include <strait/strait.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/environment.hpp"
#include "perf/provenance.hpp"

namespace strait::perf {
namespace {

using Json = nlohmann::ordered_json;

/// The variables of Strait's that are set, without the key, which is a secret.
Json environment() {
  Json values = Json::object();
  const Environment variables;
  for (const Variable& variable : environment_table) {
    const std::string value = variables.raw(variable.name.data());
    if (!value.empty() && variable.name != "STRAIT_KEY") values[std::string(variable.name)] = value;
  }
  return values;
}

Json settings(const Options& o) {
  return {{"collective", name(o.collective)},
          {"min_bytes", o.min_bytes},
          {"max_bytes", o.max_bytes},
          {"step_bytes", o.step_bytes},
          {"step_factor", o.step_factor},
          {"iterations", o.iterations},
          {"warmup_iterations", o.warmup_iterations},
          {"checks", o.checks},
          {"blocking", static_cast<int>(o.blocking)},
          {"average", static_cast<int>(o.average)},
          {"gpus", o.gpus},
          {"registered_memory", o.register_memory},
          {"wire", o.wire ? Json(name(*o.wire)) : Json()}};
}

Json rank_json(const RankInfo& r) {
  Json json = {{"rank", r.rank}, {"pid", r.pid}, {"host", r.host}};
  if (r.device >= 0) json["gpu"] = {{"device", r.device}, {"bus_id", r.bus_id}, {"name", r.gpu}};
  return json;
}

Json measurement(const Measurement& m) {
  Json json = {{"time_us", m.time_us},     {"cpu_time_us", m.cpu_time_us}, {"algbw_gbps", m.algorithm_gbps},
               {"busbw_gbps", m.bus_gbps}, {"p50_us", m.p50_us},           {"p99_us", m.p99_us}};
  json["wrong"] = m.wrong ? Json(*m.wrong) : Json();
  return json;
}

Json row_json(const Row& row) {
  Json json = {{"bytes", row.bytes}, {"count", row.count}, {"type", name(row.subject.type)}};
  json["op"] = row.subject.op ? Json(name(*row.subject.op)) : Json();
  json["root"] = row.subject.root >= 0 ? Json(row.subject.root) : Json();
  json["out_of_place"] = measurement(row.out_of_place);
  json["in_place"] = row.in_place ? measurement(*row.in_place) : Json();
  return json;
}

}  // namespace

std::string to_json(const Report& report) {
  Json json = {{"program", "strait perf"}, {"provenance", provenance()}};
  json["versions"] = {{"header", STRAIT_VERSION}, {"library", report.library_version}};
  json["settings"] = settings(report.options);
  json["environment"] = environment();
  if (!report.predicted_on.empty()) json["prediction"] = {{"machine", report.predicted_on}};
  json["ranks"] = Json::array();
  for (const RankInfo& r : report.ranks) json["ranks"].push_back(rank_json(r));
  json["transport"] = {{"name", report.transport.name}, {"why", report.transport.why}};
  json["results"] = Json::array();
  for (const Row& row : report.rows) json["results"].push_back(row_json(row));
  const Summary summary = summarise(report.rows);
  json["summary"] = {{"mean_busbw_gbps", summary.mean_bus_gbps}, {"wrong", summary.wrong}};
  return json.dump(2) + "\n";
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) return fail_errno("Cannot write " + path, errno, "Check the folder and its permissions");
  return {};
}

}  // namespace strait::perf
