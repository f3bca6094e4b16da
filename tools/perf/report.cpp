#include "perf/report.hpp"

#include <strait/strait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/size_limit.hpp"
#include "base/write_error.hpp"
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

tl::unexpected<Error> cannot_write(const std::string& path, int reason) {
  return fail_to_write("Cannot write " + path, reason);
}

}  // namespace

std::string to_json(const Report& report) {
  Json json = {{"program", "strait perf"}, {"provenance", provenance()}};
  json["versions"] = {{"header", STRAIT_VERSION}, {"library", report.library_version}};
  json["settings"] = settings(report.options);
  if (report.baseline) json["baseline"] = {{"path", report.baseline->path}, {"version", report.baseline->version}};
  if (!report.predicted_on.empty()) json["prediction"] = {{"machine", report.predicted_on}};
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

Status check_svg(const std::string& option, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_device =
      path.starts_with("/dev/") || (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored));
  if (path.empty() || path.ends_with(".svg") || is_device) return {};
  return fail(Code::invalid_argument, option + " " + path + ": the name must end in .svg");
}

/// A file that is there stays as it is until the new one is whole, for a disk may be full. Devices, pipes, and files in
/// folders in which nothing can be made, are written to where they are.
Status write_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : fs::path(path);
  if (fs::exists(path, ignored) && !fs::exists(target, ignored)) target = path;  // /dev/stdout: a pipe has no name
  const bool is_replaced = !fs::exists(target, ignored) || fs::is_regular_file(target, ignored);
  const fs::path folder = target.parent_path().empty() ? "." : target.parent_path();
  const bool has_room = is_replaced && ::access(folder.c_str(), W_OK | X_OK) == 0;
  const fs::path written = has_room ? fs::path(target.string() + ".part") : target;
  const SizeLimitIsNoSignal no_signal;
  std::ofstream file(written);
  file << text << std::flush;
  int reason = file ? 0 : errno;
  file.close();
  if (has_room && reason == 0 && std::rename(written.c_str(), target.c_str()) != 0) reason = errno;
  if (reason == 0) return {};
  if (has_room) fs::remove(written, ignored);
  return cannot_write(path, reason);
}

Status check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return cannot_write(path, EISDIR);
  const fs::path folder = fs::path(path).parent_path();
  const bool is_there = fs::exists(path, ignored);
  const std::string asked = is_there ? path : folder.empty() ? "." : folder.string();
  if (::access(asked.c_str(), is_there ? W_OK : W_OK | X_OK) != 0) return cannot_write(path, errno);
  return {};
}

}  // namespace strait::perf
