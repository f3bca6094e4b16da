#include "bootstrap/launch.hpp"

#include <charconv>

#include "base/log.hpp"

namespace strait {
namespace {

/// What a launcher's variables say, before the way to meet is chosen.
struct Launcher {
  LaunchInfo info;
  bool one_host = false;
  HostPort root{};  ///< no host: the launcher does not say where rank 0 runs
  /// Tells this job from others of one host. For a name on that host only: it differs from host to host.
  std::string on_host;
};

/// Reads a whole number from a launcher's variable.
Result<int> read_number(const Environment& environment, const char* name, int minimum) {
  std::string text = environment.raw(name);
  int value = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty())
    return fail(Code::invalid_argument, std::string(name) + " is not set, though the launcher's other variables are");
  if (error != std::errc{} || rest != text.data() + text.size() || value < minimum)
    return fail(Code::invalid_argument, std::string(name) + "=\"" + text +
                                            "\" is not accepted: give a whole number from " + std::to_string(minimum));
  return value;
}

/// Names of a launcher's variables.
struct Variables {
  const char* rank;
  const char* ranks;
  const char* local_rank;  ///< may be unset
};
Result<Launcher> read_numbers(const Environment& environment, const char* launcher_name, const Variables& names) {
  Launcher launcher;
  launcher.info.launcher = launcher_name;
  STRAIT_ASSIGN(launcher.info.rank, read_number(environment, names.rank, 0));
  STRAIT_ASSIGN(launcher.info.ranks, read_number(environment, names.ranks, 1));
  if (!environment.raw(names.local_rank).empty()) {
    STRAIT_ASSIGN(launcher.info.local_rank, read_number(environment, names.local_rank, 0));
  }
  return launcher;
}

bool is_set(const Environment& environment, const char* name) { return !environment.raw(name).empty(); }

Result<Launcher> read_by_hand(const Environment& environment) {
  Launcher launcher;
  launcher.info.launcher = "STRAIT_RANK";
  STRAIT_ASSIGN(auto rank, environment.integer("STRAIT_RANK"));
  STRAIT_ASSIGN(auto ranks, environment.integer("STRAIT_RANKS"));
  launcher.info.rank = static_cast<int>(rank);
  launcher.info.ranks = static_cast<int>(ranks);
  return launcher;
}

Result<Launcher> read_torchrun(const Environment& environment) {
  STRAIT_ASSIGN(Launcher launcher, read_numbers(environment, "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"}));
  STRAIT_ASSIGN(int port, read_number(environment, "MASTER_PORT", 1));
  if (port > 65535)
    return fail(Code::invalid_argument, "MASTER_PORT=\"" + std::to_string(port) + "\" is no port: at most 65535");
  std::string address = environment.raw("MASTER_ADDR");
  constexpr int port_distance = 1000;
  launcher.root = {address,
                   static_cast<std::uint16_t>(port + (port > 65535 - port_distance ? -port_distance : port_distance))};
  launcher.info.job = "torchrun " + environment.raw("TORCHELASTIC_RUN_ID") + " " +
                      environment.raw("TORCHELASTIC_RESTART_COUNT") + " " + std::to_string(port);
  if (is_set(environment, "LOCAL_WORLD_SIZE"))
    launcher.one_host = environment.raw("LOCAL_WORLD_SIZE") == environment.raw("WORLD_SIZE");
  else
    launcher.one_host = address == "localhost" || address == "::1" || address.starts_with("127.");
  return launcher;
}

/// Returns where the PMIx server of this job and host listens; "" if there is none. Its port tells jobs apart whose
/// namespaces are equal: Open MPI 5 makes these of a host's name and a pid, which containers may have in common.
std::string pmix_server(const Environment& environment) {
  for (const char* name :
       {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"})
    if (is_set(environment, name)) return environment.raw(name);
  return "";
}

Result<Launcher> read_open_mpi(const Environment& environment) {
  STRAIT_ASSIGN(Launcher launcher,
                read_numbers(environment, "Open MPI",
                             {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"}));
  launcher.one_host = environment.raw("OMPI_COMM_WORLD_LOCAL_SIZE") == environment.raw("OMPI_COMM_WORLD_SIZE");
  launcher.info.job = "Open MPI " + environment.raw("PMIX_NAMESPACE") + " " + environment.raw("OMPI_MCA_orte_hnp_uri");
  launcher.on_host = pmix_server(environment);
  return launcher;
}

/// Returns the first host of a list in Slurm's notation: node07 for "node[07-09,12],other".
std::string first_host(const std::string& list) {
  auto bracket = list.find('[');
  auto comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  auto number_end = list.find_first_of("-,]", bracket);
  auto close = list.find(']', bracket);
  if (number_end == std::string::npos || close == std::string::npos) return "";
  auto suffix_end = list.find_first_of(",[", close);
  std::string suffix = list.substr(close + 1, suffix_end == std::string::npos ? suffix_end : suffix_end - close - 1);
  return list.substr(0, bracket) + list.substr(bracket + 1, number_end - bracket - 1) + suffix;
}

Result<Launcher> read_slurm(const Environment& environment) {
  bool of_step = is_set(environment, "SLURM_STEP_NUM_TASKS");
  STRAIT_ASSIGN(Launcher launcher,
                read_numbers(environment, "Slurm",
                             {"SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID"}));
  std::string nodes = environment.raw("SLURM_STEP_NUM_NODES");
  launcher.one_host = (nodes.empty() ? environment.raw("SLURM_NNODES") : nodes) == "1";
  launcher.info.job = "Slurm " + environment.raw("SLURM_JOB_ID") + "." + environment.raw("SLURM_STEP_ID");
  // Rank 0 runs on the step's first node. The address of srun's own host, which may be a login node, is only the
  // fallback.
  launcher.root.host = first_host(environment.raw("SLURM_STEP_NODELIST"));
  if (launcher.root.host.empty()) launcher.root.host = environment.raw("SLURM_LAUNCH_NODE_IPADDR");
  Key hash = derive_key({}, launcher.info.job);
  launcher.root.port =
      static_cast<std::uint16_t>(20000 + (std::to_integer<int>(hash[0]) * 256 + std::to_integer<int>(hash[1])) % 10000);
  return launcher;
}

Result<Launcher> read_pmix(const Environment& environment) {
  Launcher launcher;
  launcher.info.launcher = "PMIx";
  STRAIT_ASSIGN(launcher.info.rank, read_number(environment, "PMIX_RANK", 0));
  launcher.info.ranks = 0;
  launcher.info.job = "PMIx " + environment.raw("PMIX_NAMESPACE");
  return launcher;
}

Result<Launcher> read_launcher(const Environment& environment) {
  if (environment.is_set("STRAIT_RANK")) return read_by_hand(environment);
  if (is_set(environment, "RANK") && is_set(environment, "WORLD_SIZE") && is_set(environment, "MASTER_ADDR") &&
      is_set(environment, "MASTER_PORT"))
    return read_torchrun(environment);
  if (is_set(environment, "OMPI_COMM_WORLD_RANK")) return read_open_mpi(environment);
  if (is_set(environment, "SLURM_STEP_ID") && is_set(environment, "SLURM_PROCID")) return read_slurm(environment);
  if (is_set(environment, "PMIX_RANK")) return read_pmix(environment);
  if (environment.is_set("STRAIT_RANKS")) return read_by_hand(environment);  // fails, and says what is missing
  if (is_set(environment, "RANK") && is_set(environment, "WORLD_SIZE") && environment.raw("WORLD_SIZE") != "1")
    log_warn(-1, "RANK and WORLD_SIZE=" + environment.raw("WORLD_SIZE") +
                     " are set, as torchrun does, but MASTER_ADDR and MASTER_PORT are not both: this process is a rank "
                     "on its own. Set them, too, to join the others");
  Launcher none;
  none.info.launcher = "none";
  return none;
}

Result<Bytes> read_secret(const Environment& environment) {
  STRAIT_ASSIGN(std::string text, environment.text("STRAIT_KEY"));
  Bytes secret;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    std::uint8_t byte = 0;
    auto [rest, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
    if (error != std::errc{} || rest != text.data() + i + 2) break;
    secret.push_back(static_cast<std::byte>(byte));
  }
  if (text.size() != 64 || secret.size() != 32)  // the value is secret, so the message does not show it
    return fail(Code::invalid_argument,
                "STRAIT_KEY has " + std::to_string(text.size()) +
                    " characters and is not accepted: give 64 hexadecimal digits (openssl rand -hex 32)");
  return secret;
}

Status choose_key(const Environment& environment, LaunchInfo& info) {
  if (environment.is_set("STRAIT_KEY")) {
    STRAIT_ASSIGN(Bytes secret, read_secret(environment));
    info.key = derive_key(secret, "Strait job key: " + info.job);
    return {};
  }
  STRAIT_ASSIGN(const bool allowed, environment.flag("STRAIT_ALLOW_DERIVED_KEY"));
  if (!allowed || info.job.empty())
    return fail(Code::invalid_usage,
                "the ranks (by " + info.launcher +
                    ") meet over the network and need a shared secret: set STRAIT_KEY to the "
                    "same 64 hexadecimal digits on all of them (openssl rand -hex 32)" +
                    (info.job.empty() ? "" : ", or STRAIT_ALLOW_DERIVED_KEY=1 if you trust everybody on this network"));
  info.key = derive_key({}, "Strait job key without secret: " + info.job);
  info.key_is_derived = true;
  return {};
}

Status choose_meeting(const Environment& environment, const Launcher& launcher, LaunchInfo& info) {
  if (info.ranks == 1) return {};
  info.root = launcher.root;
  if (environment.is_set("STRAIT_ROOT")) {
    STRAIT_ASSIGN(std::string text, environment.text("STRAIT_ROOT"));
    auto parsed = parse_host_port(text);
    if (!parsed) return fail(Code::invalid_argument, "STRAIT_ROOT: " + parsed.error().message);
    info.root = std::move(*parsed);
  } else if (launcher.one_host) {
    info.meeting = Meeting::local;
    // For the socket's name only: a key is derived without the address, which hosts may spell differently.
    info.job += " " + launcher.root.host + launcher.on_host;
    return {};
  } else if (is_set(environment, "PMIX_RANK") && info.launcher != "torchrun" && info.launcher != "STRAIT_RANK") {
    info.meeting = Meeting::pmix;
    return {};
  }
  if (info.root.host.empty())
    return fail(Code::invalid_usage, "the launcher (" + info.launcher +
                                         ") does not say where rank 0 runs: set STRAIT_ROOT to "
                                         "host:port of rank 0 on all ranks, and STRAIT_KEY");
  info.meeting = Meeting::address;
  return choose_key(environment, info);
}

}  // namespace

Result<LaunchInfo> read_launch_environment(const Environment& environment) {
  STRAIT_TRY(start_crypto());
  STRAIT_ASSIGN(Launcher launcher, read_launcher(environment));
  LaunchInfo info = launcher.info;
  if (info.ranks > 0 && info.rank >= info.ranks)
    return fail(Code::invalid_argument, "the environment (" + info.launcher + ") says rank " +
                                            std::to_string(info.rank) + " of " + std::to_string(info.ranks) +
                                            ": ranks go from 0 to " + std::to_string(info.ranks - 1));
  STRAIT_TRY(choose_meeting(environment, launcher, info));
  return info;
}

}  // namespace strait
