#include "nccl/settings.hpp"

#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "nccl/conf_file.hpp"
#include "nccl/nccl_abi.h"
#include "strait/strait.h"

namespace strait::nccl {
namespace {

std::string as_it_is(const std::string& value) { return value; }

std::string log_level(const std::string& value) {
  const auto is = [&](const char* name) { return strcasecmp(value.c_str(), name) == 0; };
  if (is("TRACE")) return "trace";
  if (is("INFO")) return "info";
  return "warn";  // VERSION, WARN, ABORT
}

std::string p2p(const std::string& disabled) { return std::atoi(disabled.c_str()) != 0 ? "off" : "auto"; }

std::string flag(const std::string& value) { return std::atoi(value.c_str()) != 0 ? "1" : "0"; }

/// Translates NCCL_CTA_POLICY: policies by name or number, separated by |. Anything else becomes a text that Strait
/// refuses as a value of STRAIT_MAX_SMS.
std::string cta_policy(const std::string& value) {
  constexpr std::array<std::string_view, 3> names = {"DEFAULT", "EFFICIENCY", "ZERO"};
  int policy = 0;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('|', begin), value.size());
    const std::string flag = value.substr(begin, end - begin);
    const auto named = std::find_if(names.begin(), names.end(),
                                    [&](std::string_view name) { return strcasecmp(name.data(), flag.c_str()) == 0; });
    if (named != names.end())
      policy |= static_cast<int>(named - names.begin());
    else if (flag.size() == 1 && flag[0] >= '0' && flag[0] <= '3')
      policy |= flag[0] - '0';
    else
      return "no policy: " + value;
    begin = end + 1;
  }
  return (policy & NCCL_CTA_POLICY_ZERO) != 0 ? "none" : "";
}

/// An NCCL setting that has a meaning in Strait. To support another one, add a line.
struct Mapping {
  const char* nccl_name;
  const char* strait_name;
  std::string (*translate)(const std::string&);
};
constexpr Mapping mappings[] = {
    {"NCCL_DEBUG", "STRAIT_DEBUG", log_level},
    {"NCCL_SOCKET_IFNAME", "STRAIT_SOCKET_IFNAME", as_it_is},
    {"NCCL_HOSTID", "STRAIT_HOSTID", as_it_is},
    {"NCCL_CTA_POLICY", "STRAIT_MAX_SMS", cta_policy},
    {"NCCL_MAX_CTAS", "STRAIT_MAX_SMS", as_it_is},  // comes later, so it overrides the policy's value
    {"NCCL_P2P_DISABLE", "STRAIT_P2P", p2p},
    {"NCCL_GRAPH_MIXING_SUPPORT", "STRAIT_GRAPH_MIXING", flag},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "STRAIT_LAUNCH_ORDER", flag},
};
/// NCCL settings that the drop-in itself reads.
constexpr const char* own_settings[] = {"NCCL_COMM_BLOCKING", "NCCL_CONF_FILE"};

/// NCCL waits for late ranks almost without limit. Programs rely on it: they compile or load checkpoints before they
/// join.
constexpr const char* init_timeout_ms = "1800000";
/// Default of STRAIT_COPY_MESSAGES under the drop-in: copy engines carry no sends and receives, because ranks of
/// programs for NCCL may group these differently. This holds also if NCCL_CTA_POLICY leaves all SMs to the program.
constexpr const char* copies_messages = "0";

std::string setting(const char* name) {
  const char* value = nullptr;
  if (straitGetSetting(name, &value) == straitSuccess) return value;
  log(LogLevel::warn, straitGetLastError(nullptr));
  return "";
}

/// As in Strait's own log, what stderr does not take soon is lost: nobody may read it.
void write_line(std::string_view text) {
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&err, 1, 100) != 1 || err.revents != POLLOUT) return;
  char host[256] = "?";
  if (gethostname(host, sizeof host - 1) != 0) host[0] = '?';
  std::string line = "strait: " + std::string(host) + ":" + std::to_string(getpid()) + ": nccl: ";
  line += text;
  line += '\n';
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool is_known(std::string_view name) {
  return std::any_of(std::begin(mappings), std::end(mappings), [&](const Mapping& m) { return name == m.nccl_name; }) ||
         std::find(std::begin(own_settings), std::end(own_settings), name) != std::end(own_settings);
}

std::set<std::string> ignored_settings() {
  std::set<std::string> ignored;
  const auto note = [&](std::string_view name) {
    if (name.starts_with("NCCL_") && !is_known(name)) ignored.emplace(name);
  };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    note(std::string_view(*entry, std::strcspn(*entry, "=")));
  for (const auto& [name, value] : settings_of_files()) note(name);
  return ignored;
}

std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void report_ignored() {
  const std::set<std::string> ignored = ignored_settings();
  if (ignored.contains("NCCL_COMM_ID"))
    log(LogLevel::warn,
        "NCCL_COMM_ID means nothing here: give all ranks the unique id that one of them gets, or each waits for ranks "
        "that will never come");
  if (!ignored.empty()) log(LogLevel::info, "ignored settings, which mean nothing here: " + listed(ignored));
}

std::string own_path() {
  Dl_info info{};
  static const int anchor = 0;
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return "?";
  const std::unique_ptr<char, decltype(&std::free)> absolute(realpath(info.dli_fname, nullptr), &std::free);
  return absolute ? absolute.get() : info.dli_fname;
}

/// Returns the paths of other libraries in this process that are named like NCCL's.
std::vector<std::string> other_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        const std::string_view path(info->dlpi_name);
        const auto name = path.substr(path.rfind('/') + 1);
        if (name.starts_with("libnccl.so")) static_cast<std::vector<std::string>*>(out)->emplace_back(path);
        return 0;
      },
      &paths);
  const std::string own = own_path();
  std::erase_if(paths, [&](const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> absolute(realpath(path.c_str(), nullptr), &std::free);
    return absolute && own == absolute.get();
  });
  return paths;
}

/// Whether dlopen("libnccl.so.2") finds this library, as it does if this one was loaded first.
bool is_found_by_name() {
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  const std::unique_ptr<void, Close> found(dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD));
  return found && dlsym(found.get(), "ncclGetVersion") == reinterpret_cast<void*>(&ncclGetVersion);
}

/// Reports each other NCCL library once. Called repeatedly, because programs open libraries when they need them. JAX
/// opens the NCCL in its wheel by path, but calls the functions that it finds by name.
void tell_of_other_libraries() {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::scoped_lock lock(mutex);
  for (const std::string& path : other_libraries()) {
    if (!told.insert(path).second) continue;
    if (is_found_by_name())
      log(LogLevel::info, path + " is loaded too, but only what opens it by that path is served by it");
    else
      log(LogLevel::warn,
          path + " is loaded too: this program may be served by both. `strait run -- command` lets one in");
  }
}

std::string version_text(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." + std::to_string(code % 100);
}

}  // namespace

void apply_settings() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const Mapping& mapping : mappings)
      if (const std::string value = nccl_setting(mapping.nccl_name); !value.empty())
        if (straitSetDefault(mapping.strait_name, mapping.translate(value).c_str()) != straitSuccess)
          log(LogLevel::warn, std::string(mapping.nccl_name) + " is ignored: " + straitGetLastError(nullptr));
    straitSetDefault("STRAIT_INIT_TIMEOUT_MS", init_timeout_ms);
    straitSetDefault("STRAIT_COPY_MESSAGES", copies_messages);
  });
}

int served_version() {
  static const int version = [] {
    apply_settings();
    const std::string text = setting("STRAIT_NCCL_VERSION");
    return text.empty() ? default_version : std::atoi(text.c_str());
  }();
  return version;
}

bool makes_host_ranks() {
  apply_settings();
  return setting("STRAIT_NCCL_HOST_RANKS") == "1";
}

std::optional<bool> forced_blocking() {
  const std::string value = nccl_setting("NCCL_COMM_BLOCKING");
  if (value != "0" && value != "1") return std::nullopt;
  return value == "1";
}

bool environment_bounds_sms() {
  const std::string bound = setting("STRAIT_MAX_SMS");
  return !bound.empty() && bound != "0";
}

void report_ignored_fields(const std::vector<const char*>& names) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::scoped_lock lock(mutex);
  std::string fresh;
  for (const char* name : names)
    if (told.insert(name).second) fresh += (fresh.empty() ? "" : ", ") + std::string(name);
  if (!fresh.empty()) log(LogLevel::info, "ignored fields of a configuration, which mean nothing here: " + fresh);
}

void report_ignored_networks(straitComm_t comm) {
  static std::atomic<bool> done{false};
  const char* transport = "";
  if (straitCommGetTransport(comm, &transport, nullptr) != straitSuccess) return;
  const std::string path(transport);
  if (path.find("tcp") == std::string::npos || done.exchange(true)) return;
  std::set<std::string> ignored = ignored_settings();
  std::erase_if(ignored,
                [](const std::string& name) { return !name.starts_with("NCCL_IB_") && !name.starts_with("NCCL_NET"); });
  const auto is = [](const char* name, const char* value) {
    const char* set = std::getenv(name);
    return set != nullptr && strcasecmp(set, value) == 0;
  };
  // Who asks for sockets gets them.
  if (is("NCCL_IB_DISABLE", "1") || is("NCCL_NET", "Socket")) return;
  const char* advice = path.find("ucx") == std::string::npos ? ". For RDMA try STRAIT_UCX=on (docs/nccl.md)" : "";
  if (!ignored.empty())
    log(LogLevel::warn, "data goes by " + path + ": " + listed(ignored) + " has no effect" + advice);
}

void announce(int rank, int ranks) {
  tell_of_other_libraries();
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  report_ignored();
  int strait_version = 0;
  straitGetVersion(&strait_version);
  const std::string text = "NCCL " + version_text(served_version()) + " is served by Strait " +
                           version_text(strait_version) + ", " + own_path() + " (rank " + std::to_string(rank) +
                           " of " + std::to_string(ranks) + ")";
  if (setting("STRAIT_NCCL_PROOF") == "1")
    write_line(text);
  else
    log(LogLevel::info, text);
}

void log(LogLevel level, std::string_view text) {
  const char* value = "warn";
  (void)straitGetSetting("STRAIT_DEBUG", &value);
  const std::string_view admitted = value;
  if (admitted == "off" || (admitted == "warn" && level == LogLevel::info)) return;
  write_line(text);
}

}  // namespace strait::nccl
