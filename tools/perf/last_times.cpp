#include "perf/last_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "perf/provenance.hpp"
#include "select/calibration.hpp"
#include "select/kept_file.hpp"

namespace strait::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int file_version = 1;
constexpr std::size_t most_file_bytes = 4 << 20;
constexpr std::size_t most_times = 8192;  // the oldest leave first

std::string key_of(const TimedOperation& operation) {
  std::vector<std::string> gpus = operation.bus_ids;
  std::sort(gpus.begin(), gpus.end());
  const Subject& subject = operation.subject;
  return fmt::format("{} {} {} {} root {}, {} ranks on {} {}", name(operation.collective), operation.bytes,
                     name(subject.type), subject.op ? name(*subject.op) : "none", subject.root, operation.ranks,
                     gpus.empty() ? "CPUs" : fmt::format("{}", fmt::join(gpus, " ")), operation.settings);
}

/// The times by key. An error: the file is bad, without its name.
Result<Json> parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return fail(Code::invalid_usage, "is not JSON: it was cut short or changed");
  if (json.value("strait_times", Json()) != file_version || !json.contains("times") || !json["times"].is_object())
    return fail(Code::invalid_usage, "is none of this version of Strait");
  if (json.value("fingerprint", Json()) != machine_fingerprint())
    return fail(Code::invalid_usage, "is of another machine");
  return std::move(json["times"]);
}

Result<Json> read(const std::string& path) {
  STRAIT_ASSIGN(const std::string text, read_kept_file(path, most_file_bytes));
  return parse(text);
}

void drop_oldest(Json& times) {
  while (times.size() > most_times) {
    auto oldest = times.begin();
    for (auto entry = times.begin(); entry != times.end(); ++entry)
      if (text_in(*entry, "time") < text_in(*oldest, "time")) oldest = entry;
    times.erase(oldest);
  }
}

bool tells_of_choices(const Report& report, const Environment& environment) {
  const Options& options = report.options;
  const bool one_host = std::all_of(report.ranks.begin(), report.ranks.end(),
                                    [&](const RankInfo& rank) { return rank.host == report.ranks.front().host; });
  return one_host && !report.ranks.empty() && report.predicted_on.machine.empty() &&
         !environment.is_set("STRAIT_TUNING_FILE") && !options.wire && options.registration == 0 &&
         options.graph_launches == 0 && options.aggregated == 1 && options.offset_bytes == 0 &&
         options.extra_elements == 0 && options.blocking == Blocking::none && options.average == Average::mean;
}

}  // namespace

Result<std::string> settings_text(const Environment& environment) {
  const Environment nothing([](const char*) -> const char* { return nullptr; });
  STRAIT_ASSIGN(const auto defaults, nothing.shared_settings());
  STRAIT_ASSIGN(const auto settings, environment.shared_settings());
  std::string text;
  for (const Setting& setting : settings)
    if (std::find(defaults.begin(), defaults.end(), setting) == defaults.end())
      text += (text.empty() ? "" : " ") + setting.name + "=" + setting.value;
  return text;
}

Result<std::string> last_times_path(const Environment& environment) {
  return cache_path(environment, machine_fingerprint() + ".times.json", "measured times");
}

Status keep_times(const std::string& path, const Report& report, const Environment& environment) {
  if (!tells_of_choices(report, environment)) return {};
  TimedOperation operation{.collective = report.options.collective,
                           .bytes = 0,
                           .subject = {},
                           .ranks = report.ranks.size(),
                           .bus_ids = {},
                           .settings = {}};
  STRAIT_ASSIGN(operation.settings, settings_text(environment));
  for (const RankInfo& rank : report.ranks)
    if (rank.device >= 0) operation.bus_ids.push_back(rank.bus_id);
  STRAIT_TRY(make_folder_of(path));
  STRAIT_ASSIGN(const UniqueFd held, lock_kept_file(path));
  Json times = read(path).value_or(Json::object());
  for (const Row& row : report.rows) {
    operation.bytes = row.bytes;
    operation.subject = row.subject;
    const Measurement& found = row.out_of_place;
    if (found.wrong.value_or(0) != 0 || found.time_us <= 0) continue;
    times[key_of(operation)] = {{"time_us", found.time_us},
                                {"busbw_gbps", found.bus_gbps},
                                {"time", provenance()["time"]},
                                {"transport", report.transport.name}};
  }
  drop_oldest(times);
  const Json json = {{"strait_times", file_version}, {"fingerprint", machine_fingerprint()}, {"times", times}};
  return replace_kept_file(path, json.dump(1) + "\n");
}

Result<std::optional<LastTime>> find_last_time(const std::string& path, const TimedOperation& operation) {
  const auto times = read(path);
  if (!times && times.error().code == Code::unsupported) return std::nullopt;
  if (!times)
    return fail(times.error().code, path + " " + times.error().message + ". Delete it; `strait perf` writes another");
  const auto found = times->find(key_of(operation));
  if (found == times->end()) return std::nullopt;
  const auto number = [&](const char* key) {
    const auto value = found->is_object() ? found->find(key) : found->end();
    return value != found->end() && value->is_number() ? value->get<double>() : 0;
  };
  const LastTime last{number("time_us"), number("busbw_gbps"), text_in(*found, "time"), text_in(*found, "transport")};
  if (last.time_us <= 0)
    return fail(Code::invalid_usage,
                path + " holds " + found->dump() + ", which is no time. Delete the file; `strait perf` writes another");
  return last;
}

}  // namespace strait::perf
