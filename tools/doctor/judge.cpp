#include "doctor/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace strait::doctor {
namespace {

constexpr double slow_work = 1.25;  // times the median
constexpr double slow_link = 0.8;   // share of the rate of similar links

/// Returns the third quartile of the rates, which a quarter of the links reach. A link may be too slow, but none is too
/// fast; and the median would not do, because one slow GPU among three is part of two thirds of the pairs.
double usual_rate(std::vector<double> rates) {
  if (rates.empty()) return 0;
  const auto place = rates.begin() + static_cast<std::ptrdiff_t>(3 * rates.size() / 4);
  std::nth_element(rates.begin(), place, rates.end());
  return *place;
}

std::string gpu_name(const topo::GpuMeasurements& gpus, std::size_t gpu) {
  return fmt::format("GPU {} ({})", gpu, gpus.bus_ids[gpu]);
}

void judge_host_links(const topo::GpuMeasurements& gpus, Findings& found) {
  struct Direction {
    const char* text;
    double topo::HostLink::*gbps;
  };
  for (const Direction direction :
       {Direction{"to the host", &topo::HostLink::up_gbps}, Direction{"from the host", &topo::HostLink::down_gbps}}) {
    std::vector<double> rates;
    for (const topo::HostLink& link : gpus.host_links) rates.push_back(link.*direction.gbps);
    const double usual = usual_rate(rates);
    for (std::size_t gpu = 0; gpu < rates.size(); ++gpu)
      if (rates[gpu] < slow_link * usual)
        found.push_back({Severity::warning, "slow_host_link",
                         fmt::format("{} copies {:.1f} GB/s {}, others {:.1f} GB/s", gpu_name(gpus, gpu), rates[gpu],
                                     direction.text, usual),
                         "whatever passes host memory waits for it",
                         "compare its PCIe speed and width with its neighbours' (`strait doctor`, `nvidia-smi -q`); "
                         "seat it anew, or look at its riser"});
  }
}

/// One direction of a pair of GPUs, and the usual rate of similar pairs.
struct Pair {
  std::size_t from = 0;
  std::size_t to = 0;
  double gbps = 0;
  double usual_gbps = 0;
  bool slow() const { return gbps < slow_link * usual_gbps; }
};

std::vector<Pair> compared_pairs(const topo::GpuMeasurements& gpus, const topo::Matrix& expected_gbps) {
  const std::size_t count = gpus.pair_gbps.size();
  const auto expected = [&](std::size_t from, std::size_t to) {
    return expected_gbps[from][to] > 0 ? expected_gbps[from][to] : 1;
  };
  // Pairs are compared with those of the same kind: with or without P2P, and with or without an expected rate.
  std::map<std::pair<bool, bool>, std::vector<double>> parts;
  const auto kind = [&](std::size_t from, std::size_t to) {
    return std::pair<bool, bool>(gpus.p2p[from][to], expected_gbps[from][to] > 0);
  };
  for (std::size_t from = 0; from < count; ++from)
    for (std::size_t to = 0; to < count; ++to)
      if (from != to) parts[kind(from, to)].push_back(gpus.pair_gbps[from][to] / expected(from, to));
  std::vector<Pair> pairs;
  for (std::size_t from = 0; from < count; ++from)
    for (std::size_t to = 0; to < count; ++to)
      if (from != to)
        pairs.push_back({from, to, gpus.pair_gbps[from][to], usual_rate(parts[kind(from, to)]) * expected(from, to)});
  return pairs;
}

/// Returns the share of a GPU's pairs that are slow.
double slow_share(const std::vector<Pair>& pairs, std::size_t gpu) {
  double all = 0, slow = 0;
  for (const Pair& pair : pairs) {
    if (pair.from != gpu && pair.to != gpu) continue;
    ++all;
    slow += pair.slow() ? 1 : 0;
  }
  return all > 0 ? slow / all : 0;
}

void judge_pairs(const topo::GpuMeasurements& gpus, const topo::Matrix& expected_gbps, Findings& found) {
  const std::vector<Pair> pairs = compared_pairs(gpus, expected_gbps);
  constexpr std::size_t enough = 3;  // with two GPUs it is impossible to tell which one is slow
  std::vector<bool> named(gpus.pair_gbps.size());
  for (std::size_t gpu = 0; gpu < named.size() && named.size() >= enough; ++gpu) {
    if (slow_share(pairs, gpu) <= 0.5) continue;
    named[gpu] = true;
    double least = 0, usual = 0;
    for (const Pair& pair : pairs)
      if ((pair.from == gpu || pair.to == gpu) && pair.slow() && (least == 0 || pair.gbps < least))
        least = pair.gbps, usual = pair.usual_gbps;
    found.push_back({Severity::warning, "slow_gpu",
                     fmt::format("most links of {} to other GPUs are slow: {:.1f} GB/s where others give {:.1f}",
                                 gpu_name(gpus, gpu), least, usual),
                     "every collective waits for it",
                     "look at its temperature, clocks and NVLink errors (`strait doctor`); if it stays, take it out"});
  }
  for (const Pair& pair : pairs)
    if (pair.slow() && !named[pair.from] && !named[pair.to])
      found.push_back({Severity::warning, "slow_link",
                       fmt::format("{} to {} carries {:.1f} GB/s where others like it carry {:.1f}",
                                   gpu_name(gpus, pair.from), gpu_name(gpus, pair.to), pair.gbps, pair.usual_gbps),
                       "collectives that use it wait for it",
                       "look at NVLinks that are down (`strait topo`), at its bridge or switch, and at ACS"});
}

}  // namespace

Findings judge_work(const std::string& check, const std::vector<std::string>& names, const std::vector<double>& own_us,
                    const std::string& fix) {
  Findings found;
  std::vector<double> sorted = own_us;
  std::sort(sorted.begin(), sorted.end());
  const double middle_us = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];
  for (std::size_t i = 0; i < own_us.size(); ++i)
    if (own_us[i] > slow_work * middle_us)
      found.push_back(
          {Severity::warning, check,
           fmt::format("{} takes {:.0f} us for what others do in {:.0f} us", names[i], own_us[i], middle_us),
           "every collective waits for it", fix});
  return found;
}

Findings judge_links(const topo::GpuMeasurements& gpus, const topo::Matrix& expected_gbps) {
  Findings found;
  judge_host_links(gpus, found);
  judge_pairs(gpus, expected_gbps, found);
  return found;
}

topo::Matrix expected_pairs(const Topology& topology, const topo::GpuMeasurements& gpus) {
  const auto device_of = [&](const std::string& bus_id) {
    for (const DeviceId gpu : topology.all(DeviceKind::gpu))
      if (topology.device(gpu).bus_id == bus_id) return gpu;
    return no_device;
  };
  const std::size_t count = gpus.bus_ids.size();
  topo::Matrix expected(count, std::vector<double>(count));
  for (std::size_t from = 0; from < count; ++from)
    for (std::size_t to = 0; to < count; ++to) {
      const DeviceId a = device_of(gpus.bus_ids[from]), b = device_of(gpus.bus_ids[to]);
      if (from != to && a != no_device && b != no_device) expected[from][to] = topology.path(a, b).bandwidth_gbps;
    }
  return expected;
}

}  // namespace strait::doctor
