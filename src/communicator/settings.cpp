// The settings that a communicator takes from the environment if its configuration does not specify them.
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "base/cpus.hpp"
#include "base/enum_names.hpp"
#include "base/environment.hpp"
#include "communicator/comm.hpp"
#include "communicator/opening.hpp"

namespace strait {
namespace {

/// Returns 0 if it is unset.
Result<double> exchange_gbps(const Environment& environment) {
  STRAIT_ASSIGN(const std::string text, environment.text("STRAIT_EXCHANGE_GBPS"));
  double gbps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbps);
  if (!text.empty() && !(error == std::errc{} && end == text.data() + text.size() && gbps > 0 && gbps < 1e6))
    return fail(Code::invalid_argument,
                "STRAIT_EXCHANGE_GBPS=\"" + text + "\" is not accepted: give GB/s such as 0.6 or 12");
  return gbps;
}

/// Parses a list such as "0-3,16"; returns none if it is unset.
Result<std::vector<std::uint32_t>> reducer_cores(const Environment& environment) {
  STRAIT_ASSIGN(const std::string text, environment.text("STRAIT_CPU_REDUCER_CORES"));
  if (auto cores = cpus_of_list(text, CPU_SETSIZE)) return *std::move(cores);
  return fail(Code::invalid_argument, "STRAIT_CPU_REDUCER_CORES=\"" + text +
                                          "\" is not accepted: give the numbers of cores below " +
                                          std::to_string(CPU_SETSIZE) + ", such as 0-3,16");
}

Result<std::size_t> bytes_of(const Environment& environment, VariableName name) {
  return environment.integer(name).map([](std::int64_t bytes) { return static_cast<std::size_t>(bytes); });
}

Result<std::optional<std::size_t>> bytes_if_set(const Environment& environment, VariableName name) {
  if (!environment.is_set(name)) return std::nullopt;
  return bytes_of(environment, name).map([](std::size_t bytes) { return std::optional(bytes); });
}

Result<std::size_t> slice_bytes(const Environment& environment) {
  STRAIT_ASSIGN(const std::size_t bytes, bytes_of(environment, "STRAIT_SLICE_BYTES"));
  if (bytes % 16 == 0) return bytes;
  return fail(Code::invalid_argument,
              "STRAIT_SLICE_BYTES=" + std::to_string(bytes) + " is not accepted: give a multiple of 16");
}

/// Returns "" if the choice is free.
Result<std::string> forced_algorithm(const Environment& environment) {
  STRAIT_ASSIGN(const std::string algorithm, environment.text("STRAIT_ALGORITHM"));
  if (algorithm == "auto") return "";
  if (find_algorithm(algorithm) != nullptr) return algorithm;
  return fail(Code::invalid_usage, "STRAIT_ALGORITHM=" + algorithm +
                                       " names no algorithm. There are: " + algorithm_names() +
                                       ". `strait plan all-reduce --algorithm list` says what a collective has");
}

Result<P2pSetting> p2p_setting(const Environment& environment) {
  STRAIT_ASSIGN(const std::string text, environment.text("STRAIT_P2P"));
  return parse_p2p(text);
}

Status read_gpu_settings(DeviceOptions& gpu, const Environment& environment) {
  if (gpu.max_sms == 0) {
    STRAIT_ASSIGN(const std::string max_sms, environment.text("STRAIT_MAX_SMS"));
    gpu.max_sms = max_sms == "none" ? no_sms : std::min(std::uint32_t(std::stoul(max_sms)), most_sms);
  }
  if (!gpu.p2p) {
    STRAIT_ASSIGN(gpu.p2p, p2p_setting(environment));
  }
  STRAIT_ASSIGN(gpu.lines_bytes, bytes_of(environment, "STRAIT_LINES_BYTES"));
  STRAIT_ASSIGN(gpu.piped_unit_bytes, bytes_of(environment, "STRAIT_PIPED_BYTES"));
  STRAIT_ASSIGN(gpu.joins_graphs, environment.flag("STRAIT_GRAPH_MIXING"));
  STRAIT_ASSIGN(gpu.orders_launches, environment.flag("STRAIT_LAUNCH_ORDER"));
  STRAIT_ASSIGN(gpu.aggregates, environment.flag("STRAIT_AGGREGATE"));
  STRAIT_ASSIGN(gpu.packets_bytes, bytes_if_set(environment, "STRAIT_PACKETS_BYTES"));
  STRAIT_ASSIGN(gpu.host_memory_bytes, bytes_of(environment, "STRAIT_HOST_MEMORY_BYTES"));
  STRAIT_ASSIGN(gpu.copy_engine_bytes, bytes_of(environment, "STRAIT_COPY_ENGINE_BYTES"));
  STRAIT_ASSIGN(gpu.copies_messages, environment.flag("STRAIT_COPY_MESSAGES"));
  STRAIT_ASSIGN(gpu.copy_window_bytes, bytes_of(environment, "STRAIT_COPY_WINDOW_BYTES"));
  STRAIT_ASSIGN(gpu.cpu_reduce_bytes, bytes_if_set(environment, "STRAIT_CPU_REDUCE_BYTES"));
  STRAIT_ASSIGN(const std::int64_t cpu_reducers, environment.integer("STRAIT_CPU_REDUCERS"));
  gpu.reducers.threads = static_cast<std::uint32_t>(cpu_reducers);
  STRAIT_ASSIGN(gpu.reducers.cores, reducer_cores(environment));
  STRAIT_ASSIGN(const std::int64_t spin_us, environment.integer("STRAIT_CPU_REDUCER_SPIN_US"));
  gpu.reducers.spin_us = static_cast<std::uint32_t>(spin_us);
  return {};
}

}  // namespace

Status check_shared_values(const Environment& environment) {
  STRAIT_TRY(forced_algorithm(environment));
  STRAIT_TRY(slice_bytes(environment));
  STRAIT_TRY(p2p_setting(environment));
  STRAIT_TRY(exchange_gbps(environment));
  return {};
}

Status Comm::read_settings(Opening& opening) {
  const Environment& environment = opening.environment;
  STRAIT_TRY(environment.validate());
  if (options_.init_timeout_ms == 0) {
    STRAIT_ASSIGN(options_.init_timeout_ms, environment.integer("STRAIT_INIT_TIMEOUT_MS"));
  }
  if (options_.timeout_ms == 0) {
    STRAIT_ASSIGN(options_.timeout_ms, environment.integer("STRAIT_TIMEOUT_MS"));
  }
  STRAIT_ASSIGN(const std::string simd, environment.text("STRAIT_SIMD"));
  opening.simd = best_simd();
  if (const auto forced = from_name<Simd>(simd, simd_count)) {
    if (*forced > best_simd())
      return fail(Code::invalid_usage,
                  "STRAIT_SIMD=" + simd + ", but this processor has no more than " + std::string(name(best_simd())));
    opening.simd = *forced;
  }
  STRAIT_ASSIGN(opening.select.algorithm, forced_algorithm(environment));
  if (options_.is_part_of_hosts()) opening.select.algorithm.clear();
  STRAIT_ASSIGN(opening.select.slice_bytes, slice_bytes(environment));
  STRAIT_TRY(read_gpu_settings(options_.gpu, environment));
  options_.gpu.reducers.simd = opening.simd;
  STRAIT_ASSIGN(opening.shares_gpus, environment.flag("STRAIT_SHARE_GPUS"));
  STRAIT_ASSIGN(opening.exchange_gbps, exchange_gbps(environment));
  STRAIT_ASSIGN(opening.measures_exchange, environment.flag("STRAIT_MEASURE_EXCHANGE"));
  STRAIT_ASSIGN(const std::string network_lanes, environment.text("STRAIT_NETWORK_LANES"));
  opening.network_lanes = network_lanes == "auto" ? 0 : static_cast<std::uint32_t>(std::stoul(network_lanes));
  STRAIT_ASSIGN(wire_bytes_, bytes_if_set(environment, "STRAIT_WIRE_BYTES"));
  STRAIT_ASSIGN(const std::string wire_calls, environment.text("STRAIT_WIRE_CALLS"));
  wire_copies_ = wire_calls == "all";
  if (!options_.wire) {
    STRAIT_ASSIGN(const std::string wire, environment.text("STRAIT_WIRE"));
    options_.wire = from_name<WireFormat>(wire, wire_format_count);
  }
  STRAIT_ASSIGN(opening.tuning, load_tuning(environment));
  return {};
}

}  // namespace strait
