#include "select/calibration.hpp"

#include <nlohmann/json.hpp>

#include "base/enum_names.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "plan/request.hpp"
#include "select/kept_file.hpp"

namespace strait {
namespace {

constexpr int file_version = 4;
constexpr std::size_t most_file_bytes = 1 << 20;
constexpr std::string_view remedy = "Run `strait doctor --calibrate` to write it anew, or delete it";

tl::unexpected<Error> bad_file(const std::string& path, const std::string& problem) {
  return fail(Code::invalid_usage, "the calibration file " + path + " " + problem + ". " + std::string(remedy));
}

/// Returns a discarded value if the text is not JSON, or is nested deeper than any file of Strait: messages print bad
/// values recursively, one stack frame per level.
nlohmann::json parse(std::string_view text) {
  constexpr int most_depth = 16;
  bool is_deep = false;
  const auto look = [&](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    is_deep |= depth > most_depth;
    return !is_deep;
  };
  auto json = nlohmann::json::parse(text, look, false);
  return is_deep ? nlohmann::json(nlohmann::json::value_t::discarded) : json;
}

template <class Rates>
Result<Rates> parse_rates(const nlohmann::json& json, std::span<const RateFieldOf<Rates>> fields,
                          const std::string& path) {
  Rates rates;
  for (const RateFieldOf<Rates>& field : fields) {
    const std::string name(field.name);
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number()) return bad_file(path, "lacks the number " + name);
    const double value = found->get<double>();
    if (!(value >= field.least && value <= field.most))
      return bad_file(path, "says " + name + " = " + found->dump() + ", which no machine has");
    field.set(rates, value);
  }
  return rates;
}

Result<TransportRates> parse_transports(const nlohmann::json& json, const std::string& path) {
  TransportRates transports;
  const auto found = json.find("transports");
  if (found == json.end()) return transports;
  if (!found->is_object()) return bad_file(path, "says something other than rates of transports");
  for (const auto& [transport, rates] : found->items())
    for (const auto& [name, value] : rates.items()) {
      if (!value.is_number() || !(value.get<double>() > 0 && value.get<double>() < 1e12))
        return bad_file(
            path, "says " + name + " = " + value.dump() + " of transport " + transport + ", which no machine has");
      transports[transport][name] = value.get<double>();
    }
  return transports;
}

Result<LinkRate> parse_link(const nlohmann::json& json, const std::string& path) {
  constexpr double most_gbps = 1e5, most_us = 1e4;
  const auto number = [&](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_number() ? found->get<double>() : -1;
  };
  LinkRate rate{text_in(json, "from"), text_in(json, "to"), number("gbps"), number("us"), text_in(json, "origin")};
  if (rate.from.empty() || rate.to.empty() || !(rate.gbps > 0 && rate.gbps <= most_gbps) ||
      !(rate.us >= 0 && rate.us <= most_us))
    return bad_file(path, "holds " + json.dump() + ", which is no rate of a link");
  return rate;
}

Result<LinkRates> parse_links(const nlohmann::json& json, const std::string& path) {
  LinkRates links;
  const auto found = json.find("links");
  if (found == json.end()) return links;
  if (!found->is_object()) return bad_file(path, "says something other than rates of links");
  for (const auto& [machine, rates] : found->items()) {
    if (!rates.is_array()) return bad_file(path, "says something other than rates of links");
    for (const auto& rate : rates) {
      STRAIT_ASSIGN(LinkRate parsed, parse_link(rate, path));
      links[machine].push_back(std::move(parsed));
    }
  }
  return links;
}

Result<GpuRatesByMachine> parse_gpus(const nlohmann::json& json, const std::string& path) {
  GpuRatesByMachine gpus;
  const auto found = json.find("gpus");
  if (found == json.end()) return gpus;
  if (!found->is_object()) return bad_file(path, "says something other than rates of GPUs");
  for (const auto& [machine, rates] : found->items()) {
    STRAIT_ASSIGN(gpus[machine], parse_rates(rates, gpu_rate_fields(), path));
  }
  return gpus;
}

template <class Rates>
nlohmann::ordered_json to_json(const Rates& rates, std::span<const RateFieldOf<Rates>> fields) {
  nlohmann::ordered_json json;
  for (const RateFieldOf<Rates>& field : fields) json[std::string(field.name)] = field.get(rates);
  return json;
}

nlohmann::ordered_json to_json(const GpuRatesByMachine& gpus) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [machine, rates] : gpus) json[machine] = to_json(rates, gpu_rate_fields());
  return json;
}

nlohmann::ordered_json to_json(const LinkRates& links) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [machine, rates] : links)
    for (const LinkRate& rate : rates)
      json[machine].push_back(
          {{"from", rate.from}, {"to", rate.to}, {"gbps", rate.gbps}, {"us", rate.us}, {"origin", rate.origin}});
  return json;
}

Result<PlanRatios> parse_ratios(const nlohmann::json& json) {
  constexpr double least = 0.02, most = 50;
  constexpr std::size_t most_bytes = std::size_t{1} << 50;
  const auto bad = [](const nlohmann::json& what) {
    return fail(Code::invalid_usage, "holds " + what.dump().substr(0, 200) + ", which is no measured plan");
  };
  PlanRatios ratios;
  if (!json.is_array()) return bad(json);
  for (const auto& plan : json) {
    if (!plan.is_object() || !plan.contains("points") || !plan["points"].is_array()) return bad(plan);
    const Algorithm* algorithm = find_algorithm(text_in(plan, "algorithm"));
    const auto collective = from_name<Collective>(text_in(plan, "collective"), collective_count);
    if (!collective || algorithm == nullptr) return bad(plan);
    for (const auto& point : plan["points"]) {
      if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned() || !point[1].is_number())
        return bad(plan);
      const auto bytes = point[0].get<std::size_t>();
      const double ratio = point[1].get<double>();
      if (bytes > most_bytes || !(ratio >= least && ratio <= most)) return bad(plan);
      ratios.add(*collective, algorithm->name, bytes, ratio);
    }
  }
  return ratios;
}

nlohmann::ordered_json to_json(const PlanRatios& ratios) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const auto& [plan, points] : ratios.points()) {
    nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
    for (const auto& [bytes, ratio] : points) pairs.push_back({bytes, ratio});
    json.push_back({{"collective", name(plan.first)}, {"algorithm", plan.second}, {"points", pairs}});
  }
  return json;
}

Result<RatiosByTransport> parse_plans(const nlohmann::json& json, const std::string& path) {
  RatiosByTransport plans;
  const auto found = json.find("plans");
  if (found == json.end()) return plans;
  if (!found->is_object()) return bad_file(path, "says something other than times of plans");
  for (const auto& [key, value] : found->items()) {
    auto ratios = parse_ratios(value);
    if (!ratios) return bad_file(path, ratios.error().message);
    plans[key] = std::move(*ratios);
  }
  return plans;
}

/// The file that the user has chosen, and whether it was named explicitly. If `path` is empty, `problem` says why.
struct Place {
  std::string path;
  bool named = false;
  std::string problem;
};

Place place_of(const Environment& environment, std::string_view fingerprint) {
  const auto wanted = environment.text("STRAIT_CALIBRATION");
  if (!wanted) return {"", false, wanted.error().message};
  if (*wanted == "off") return {"", false, "STRAIT_CALIBRATION=off"};
  if (*wanted != "auto") return {*wanted, true, ""};
  auto path = calibration_path(environment, fingerprint);
  if (!path) return {"", false, path.error().message};
  return {std::move(*path), false, ""};
}

}  // namespace

Result<std::string> calibration_path(const Environment& environment, std::string_view fingerprint) {
  return cache_path(environment, std::string(fingerprint) + ".json",
                    "the calibration (STRAIT_CALIBRATION names another)");
}

std::string ratios_key(std::string_view transport, std::uint32_t ranks) {
  return std::string(transport) + "/" + std::to_string(ranks);
}

std::string ratios_text(const PlanRatios& ratios) { return to_json(ratios).dump(); }

Result<PlanRatios> parse_ratios(std::string_view text) { return parse_ratios(parse(text)); }

namespace {

/// Writes the file. The caller holds the lock.
Status replace(const Calibration& calibration, const std::string& path) {
  nlohmann::ordered_json plans = nlohmann::ordered_json::object();
  for (const auto& [key, ratios] : calibration.plans) plans[key] = to_json(ratios);
  const nlohmann::ordered_json json{{"strait_calibration", file_version},
                                    {"fingerprint", calibration.fingerprint},
                                    {"time", calibration.time},
                                    {"host", to_json(calibration.host, rate_fields())},
                                    {"transports", calibration.transports},
                                    {"links", to_json(calibration.links)},
                                    {"gpus", to_json(calibration.gpus)},
                                    {"plans", plans}};
  return replace_kept_file(path, json.dump(2) + "\n");
}

}  // namespace

Status update_calibration(const std::string& path, std::string_view fingerprint,
                          const std::function<void(Calibration&)>& change) {
  STRAIT_TRY(make_folder_of(path));
  STRAIT_ASSIGN(const UniqueFd held, lock_kept_file(path));
  Calibration calibration;
  if (auto found = load_calibration(path, fingerprint)) calibration = std::move(*found);
  calibration.fingerprint = fingerprint;
  change(calibration);
  return replace(calibration, path);
}

Result<Calibration> load_calibration(const std::string& path, std::string_view fingerprint) {
  const auto text = read_kept_file(path, most_file_bytes);
  if (!text && text.error().code == Code::unsupported)
    return fail(Code::unsupported, "there is no calibration at " + path + ". `strait doctor --calibrate` makes one");
  if (!text) return bad_file(path, text.error().message);
  const nlohmann::json json = parse(*text);
  if (json.is_discarded() || !json.is_object()) return bad_file(path, "is not JSON: it was cut short or changed");
  const auto version = json.find("strait_calibration");
  if (version == json.end() || !version->is_number_integer()) return bad_file(path, "is not one of Strait's");
  if (version->get<std::int64_t>() != file_version)
    return bad_file(path,
                    "has version " + version->dump() + ", and this library reads " + std::to_string(file_version));
  Calibration calibration;
  calibration.fingerprint = text_in(json, "fingerprint");
  calibration.time = text_in(json, "time");
  if (calibration.fingerprint != fingerprint)
    return bad_file(
        path, "is of another machine (" + calibration.fingerprint + ", this one is " + std::string(fingerprint) + ")");
  const auto host = json.find("host");
  if (host == json.end() || !host->is_object()) return bad_file(path, "lacks the rates of the host");
  STRAIT_ASSIGN(calibration.host, parse_rates(*host, rate_fields(), path));
  STRAIT_ASSIGN(calibration.transports, parse_transports(json, path));
  STRAIT_ASSIGN(calibration.links, parse_links(json, path));
  STRAIT_ASSIGN(calibration.gpus, parse_gpus(json, path));
  STRAIT_ASSIGN(calibration.plans, parse_plans(json, path));
  return calibration;
}

namespace {

/// Returns the shipped defaults, with the cache sizes that the kernel reports.
KnownRates defaults(const std::string& reason) {
  const CacheSizes caches = cache_sizes();
  KnownRates known{.host = {}, .source = "shipped defaults (" + reason + ")"};
  known.host.cache_bytes = caches.shared_bytes;
  known.host.memory.core_cache_bytes = caches.core_bytes;
  return known;
}

}  // namespace

KnownRates known_rates(const Environment& environment) {
  const std::string fingerprint = machine_fingerprint();
  const Place place = place_of(environment, fingerprint);
  if (place.path.empty()) return defaults(place.problem);
  auto calibration = load_calibration(place.path, fingerprint);
  if (calibration)
    return {.host = calibration->host,
            .source = place.path,
            .calibrated = true,
            .links = std::move(calibration->links),
            .gpus = std::move(calibration->gpus),
            .plans = std::move(calibration->plans)};
  if (place.named || calibration.error().code != Code::unsupported)
    log_warn(-1, calibration.error().message + ". Until then selection uses the shipped defaults");
  return defaults(calibration.error().message);
}

const KnownRates& process_rates() {
  static const KnownRates rates = known_rates(Environment());
  return rates;
}

}  // namespace strait
