#include "perf/report.hpp"

#include <strait/strait.h>

#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "perf/provenance.hpp"

namespace strait::perf {
namespace {

using Json = nlohmann::ordered_json;

Json settings(const Options& o) {
  return {{"collective", name(o.collective)},
          {"min_bytes", o.min_bytes},
          {"max_bytes", o.max_bytes},
          {"step_bytes", o.step_bytes},
          {"step_factor", o.step_factor},
          {"iterations", o.iterations},
          {"aggregated", o.aggregated},
          {"warmup_iterations", o.warmup_iterations},
          {"checks", o.checks},
          {"blocking", static_cast<int>(o.blocking)},
          {"average", static_cast<int>(o.average)},
          {"gpus", o.gpus},
          {"graph_launches", o.graph_launches},
          {"budget_ms", o.budget_ms > 0 ? Json(o.budget_ms) : Json()},
          {"extra_elements", o.extra_elements},
          {"offset_bytes", o.offset_bytes},
          {"registered_memory", o.registration != 0},
          {"wire", o.wire ? Json(name(*o.wire)) : Json()}};
}

Json rank_json(const RankInfo& r) {
  Json json = {{"rank", r.rank}, {"pid", r.pid}, {"host", r.host}};
  if (r.device >= 0) json["gpu"] = {{"device", r.device}, {"bus_id", r.bus_id}, {"name", r.gpu}};
  return json;
}

Json measurement(const Measurement& m) {
  Json json = {{"time_us", m.time_us},
               {"cpu_time_us", m.cpu_time_us},
               {"calls", m.calls > 0 ? Json(m.calls) : Json()},
               {"algbw_gbps", m.algorithm_gbps},
               {"busbw_gbps", m.bus_gbps}};
  if (m.p50_us > 0) json.update({{"p50_us", m.p50_us}, {"p99_us", m.p99_us}});
  json["wrong"] = m.wrong ? Json(*m.wrong) : Json();
  return json;
}

Json row_json(const Row& row) {
  Json json = {{"bytes", row.bytes}, {"count", row.count}, {"type", name(row.subject.type)}};
  json["op"] = row.subject.op ? Json(name(*row.subject.op)) : Json();
  json["root"] = row.subject.root >= 0 ? Json(row.subject.root) : Json();
  json["out_of_place"] = measurement(row.out_of_place);
  json["in_place"] = row.in_place ? measurement(*row.in_place) : Json();
  const auto compare = [&](const char* place, const Measurement& ours, const Measurement& baseline) {
    json["baseline"][place] = measurement(baseline);
    json["ratio"][place] = ratio(ours, baseline);
  };
  if (row.baseline_out_of_place) compare("out_of_place", row.out_of_place, *row.baseline_out_of_place);
  if (row.in_place && row.baseline_in_place) compare("in_place", *row.in_place, *row.baseline_in_place);
  if (row.floor)
    json["floor"] = {{"time_us", row.floor->time_us},
                     {"duplex_time_us", row.floor->duplex_time_us},
                     {"binding", row.floor->binding}};
  return json;
}

Json links_json(const LinkRates& links) {
  if (const auto* peers = std::get_if<PeerLinkRates>(&links)) return {{"peers_gbps", peers->out_gbps}};
  const auto& host = std::get<HostLinkRates>(links);
  return {{"up_gbps", host.up_gbps}, {"down_gbps", host.down_gbps}, {"duplex_gbps", host.duplex_gbps}};
}

}  // namespace

std::string to_json(const Report& report) {
  Json json = {{"program", "strait perf"}, {"provenance", provenance()}};
  json["versions"] = {{"header", STRAIT_VERSION}, {"library", report.library_version}};
  json["settings"] = settings(report.options);
  if (report.baseline) json["baseline"] = {{"path", report.baseline->path}, {"version", report.baseline->version}};
  if (const auto& on = report.predicted_on; !on.machine.empty())
    json["prediction"] = {{"machine", on.machine}, {"caveat", on.caveat}};
  json["ranks"] = Json::array();
  for (const RankInfo& r : report.ranks) json["ranks"].push_back(rank_json(r));
  json["transport"] = {{"name", report.transport.name}, {"why", report.transport.why}};
  if (report.links) json["links"] = links_json(*report.links);
  json["results"] = Json::array();
  for (const Row& row : report.rows) json["results"].push_back(row_json(row));
  const Summary summary = summarise(report.rows);
  json["summary"] = {{"mean_busbw_gbps", summary.mean_bus_gbps}, {"wrong", summary.wrong}};
  if (summary.mean_ratio) json["summary"]["mean_ratio"] = *summary.mean_ratio;
  return json_text(json);
}

}  // namespace strait::perf
