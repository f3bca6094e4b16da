#include "select/calibration.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"

namespace strait {
namespace {

constexpr int file_version = 3;
constexpr std::size_t most_file_bytes = 1 << 20;
constexpr std::string_view remedy = "Run `strait doctor --calibrate` to write it anew, or delete it";

/// Held while the file is replaced, so that writers take turns. The lock file stays: removing it would let two in.
Result<UniqueFd> lock(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail_errno("cannot open the lock file " + path, errno, "Check the permissions of its folder");
  const Deadline deadline = Deadline::after_ms(10'000);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR)
      return fail_errno("cannot lock " + path, errno, "Set XDG_CACHE_HOME to a folder on a local disk");
    if (deadline.expired())
      return fail(Code::timeout, path + " has been locked for 10 s: another calibration hangs. End it and try again");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return file;
}

Status write_all(const UniqueFd& file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno("cannot write " + path, errno, "Is the disk full?");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file.get()) != 0) return fail_errno("cannot write " + path, errno, "Is the disk full?");
  return {};
}

tl::unexpected<Error> bad_file(const std::string& path, const std::string& problem) {
  return fail(Code::invalid_usage, "the calibration file " + path + " " + problem + ". " + std::string(remedy));
}

Result<HostRates> parse_rates(const nlohmann::json& json, const std::string& path) {
  HostRates rates;
  for (const RateField& field : rate_fields()) {
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
  const auto text = [&](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto number = [&](const char* key) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    return found != json.end() && found->is_number() ? found->get<double>() : -1;
  };
  LinkRate rate{text("from"), text("to"), number("gbps"), number("us"), text("origin")};
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

nlohmann::ordered_json to_json(const LinkRates& links) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [machine, rates] : links)
    for (const LinkRate& rate : rates)
      json[machine].push_back(
          {{"from", rate.from}, {"to", rate.to}, {"gbps", rate.gbps}, {"us", rate.us}, {"origin", rate.origin}});
  return json;
}

/// The user's choice: nothing for off, else a path and whether it was asked for by name.
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
  std::string folder = environment.raw("XDG_CACHE_HOME");
  if (folder.empty() || folder.front() != '/') {  // the XDG specification: ignore what is relative
    folder = environment.raw("HOME");
    if (folder.empty())
      return fail(Code::unsupported,
                  "no place for the calibration: neither XDG_CACHE_HOME nor HOME is set. Set one, or name the file "
                  "with STRAIT_CALIBRATION");
    folder += "/.cache";
  }
  return folder + "/strait/" + std::string(fingerprint) + ".json";
}

Status make_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) return fail_errno("cannot make the folder " + folder.string(), error.value());
  return {};
}

namespace {

/// While the lock is held.
Status replace(const Calibration& calibration, const std::string& path) {
  nlohmann::ordered_json rates;
  for (const RateField& field : rate_fields()) rates[std::string(field.name)] = field.get(calibration.host);
  const nlohmann::ordered_json json{{"strait_calibration", file_version},
                                    {"fingerprint", calibration.fingerprint},
                                    {"time", calibration.time},
                                    {"host", rates},
                                    {"transports", calibration.transports},
                                    {"links", to_json(calibration.links)}};
  const std::string draft = path + ".new";
  {
    const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file) return fail_errno("cannot write " + draft, errno, "Check the permissions of its folder");
    STRAIT_TRY(write_all(file, json.dump(2) + "\n", draft));
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) return fail_errno("cannot put " + draft + " into place", errno);
  return {};
}

}  // namespace

Status update_calibration(const std::string& path, std::string_view fingerprint,
                          const std::function<void(Calibration&)>& change) {
  STRAIT_TRY(make_folder_of(path));
  STRAIT_ASSIGN(const UniqueFd held, lock(path + ".lock"));
  Calibration calibration;
  if (auto found = load_calibration(path, fingerprint)) calibration = std::move(*found);
  calibration.fingerprint = fingerprint;
  change(calibration);
  return replace(calibration, path);
}

Result<Calibration> load_calibration(const std::string& path, std::string_view fingerprint) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT)
    return fail(Code::unsupported, "there is no calibration at " + path + ". `strait doctor --calibrate` makes one");
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0)
    return fail_errno("cannot read the calibration file " + path, errno, std::string(remedy));
  if (!S_ISREG(status.st_mode)) return bad_file(path, "is no plain file");
  if (status.st_size > static_cast<off_t>(most_file_bytes)) return bad_file(path, "is far too long");
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  const ssize_t length = ::pread(file.get(), text.data(), text.size(), 0);
  if (length < 0) return fail_errno("cannot read the calibration file " + path, errno, std::string(remedy));
  text.resize(static_cast<std::size_t>(length));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_object()) return bad_file(path, "is not JSON: it was cut short or changed");
  const auto version = json.find("strait_calibration");
  if (version == json.end() || !version->is_number_integer()) return bad_file(path, "is not one of Strait's");
  if (version->get<std::int64_t>() != file_version)
    return bad_file(path,
                    "has version " + version->dump() + ", and this library reads " + std::to_string(file_version));
  const auto text_of = [&](const char* name) {
    const auto found = json.find(name);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  Calibration calibration{{}, {}, {}, text_of("fingerprint"), text_of("time")};
  if (calibration.fingerprint != fingerprint)
    return bad_file(
        path, "is of another machine (" + calibration.fingerprint + ", this one is " + std::string(fingerprint) + ")");
  const auto host = json.find("host");
  if (host == json.end() || !host->is_object()) return bad_file(path, "lacks the rates of the host");
  STRAIT_ASSIGN(calibration.host, parse_rates(*host, path));
  STRAIT_ASSIGN(calibration.transports, parse_transports(json, path));
  STRAIT_ASSIGN(calibration.links, parse_links(json, path));
  return calibration;
}

namespace {

/// Not measured, but what can be read is known.
KnownRates defaults(const std::string& reason) {
  const CacheSizes caches = cache_sizes();
  KnownRates known{{}, "shipped defaults (" + reason + ")", false, {}};
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
  if (calibration) return {calibration->host, place.path, true, std::move(calibration->links)};
  if (place.named || calibration.error().code != Code::unsupported)
    log_warn(-1, calibration.error().message + ". Until then selection uses the shipped defaults");
  return defaults(calibration.error().message);
}

const KnownRates& process_rates() {
  static const KnownRates rates = known_rates(Environment());
  return rates;
}

}  // namespace strait
