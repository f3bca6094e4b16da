#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "topo/measurements.hpp"

namespace strait::topo {
namespace {

using Json = nlohmann::ordered_json;

/// Formats a matrix whose rows are writers and whose columns are readers.
std::string matrix_text(const std::string& title, const std::vector<std::string>& names, const Matrix& matrix) {
  std::string text = fmt::format("{}\n{:>8}", title, "");
  for (const std::string& name : names) text += fmt::format(" {:>8}", name);
  text += "\n";
  for (std::size_t from = 0; from < names.size(); ++from) {
    text += fmt::format("{:>8}", names[from]);
    for (std::size_t to = 0; to < names.size(); ++to)
      text += from == to ? fmt::format(" {:>8}", "-") : fmt::format(" {:>8.2f}", matrix[from][to]);
    text += "\n";
  }
  return text + "\n";
}

std::string host_text(const HostMeasurements& host) {
  std::vector<std::string> names;
  for (const int cpu : host.cpus) names.push_back(fmt::format("cpu{}", cpu));
  std::string text = "Ranks on CPUs\n\n";
  if (host.cpus.size() < 2)
    text += "one usable CPU only: there are no pairs\n\n";
  else
    text += matrix_text("copies of what the other has just written, both ways at once (GB/s)", names, host.copy_gbps) +
            matrix_text("from a store until the other has seen it (us)", names, host.latency_us);
  text += fmt::format("the same copies on all usable CPUs at once: {:.2f} GB/s on the slowest\n", host.all_gbps);
  return text + fmt::format("copies from DRAM to DRAM, all CPUs together: {:.2f} GB/s\n\n", host.dram_copy_gbps);
}

std::string gpu_text(const GpuMeasurements& gpus) {
  std::vector<std::string> names;
  std::string text = "GPUs, by copy engines\n\nhost links (GB/s; up is to pinned memory of the host)\n";
  text += fmt::format("{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {}\n", "", "up", "down", "up", "down",
                      "up", "down", "up", "down", "");
  text += fmt::format("{:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {}\n", "", "alone", "alone", "all", "all",
                      "both*", "both*", "8 B, us", "8 B, us", "device");
  HostLink sum;
  for (std::size_t i = 0; i < gpus.host_links.size(); ++i) {
    const HostLink& l = gpus.host_links[i];
    names.push_back(fmt::format("gpu{}", i));
    text += fmt::format("{:>6} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}  {} {}\n",
                        names.back(), l.up_gbps, l.down_gbps, l.up_all_gbps, l.down_all_gbps, l.duplex_up_gbps,
                        l.duplex_down_gbps, l.up_us, l.down_us, gpus.bus_ids[i], gpus.names[i]);
    sum.up_all_gbps += l.up_all_gbps;
    sum.down_all_gbps += l.down_all_gbps;
    sum.duplex_up_gbps += l.duplex_up_gbps;
    sum.duplex_down_gbps += l.duplex_down_gbps;
  }
  text += fmt::format("{:>6} {:>8} {:>8} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n", "sum", "", "", sum.up_all_gbps,
                      sum.down_all_gbps, sum.duplex_up_gbps, sum.duplex_down_gbps);
  text += "* all GPUs, both ways at once\n\n";
  if (names.size() < 2) return text + "one GPU only: there are no pairs\n";
  text += matrix_text("pairs, one at a time (GB/s; rows send)", names, gpus.pair_gbps);
  text += matrix_text("a copy of 8 bytes, from the call until it is seen to be done (us)", names, gpus.pair_us);
  text += "all at once, each to the next (GB/s):";
  for (const double gbps : gpus.ring_gbps) text += fmt::format(" {:.2f}", gbps);
  std::string staged;
  for (std::size_t from = 0; from < names.size(); ++from)
    for (std::size_t to = 0; to < names.size(); ++to)
      if (from != to && !gpus.p2p[from][to]) staged += fmt::format(" {}->{}", names[from], names[to]);
  return text + "\nwithout P2P, through host memory:" + (staged.empty() ? " none" : staged) + "\n";
}

Json gpus_json(const GpuMeasurements& gpus) {
  Json json = Json::object();
  json["links"] = Json::array();
  for (std::size_t i = 0; i < gpus.host_links.size(); ++i) {
    const HostLink& l = gpus.host_links[i];
    json["links"].push_back({{"name", gpus.names[i]},
                             {"bus_id", gpus.bus_ids[i]},
                             {"up_gbps", l.up_gbps},
                             {"down_gbps", l.down_gbps},
                             {"up_all_gbps", l.up_all_gbps},
                             {"down_all_gbps", l.down_all_gbps},
                             {"duplex_up_gbps", l.duplex_up_gbps},
                             {"duplex_down_gbps", l.duplex_down_gbps},
                             {"up_us", l.up_us},
                             {"down_us", l.down_us}});
  }
  json["p2p"] = gpus.p2p;
  json["pair_gbps"] = gpus.pair_gbps;
  json["pair_us"] = gpus.pair_us;
  json["ring_gbps"] = gpus.ring_gbps;
  return json;
}

}  // namespace

std::string to_text(const Measurements& m) {
  std::string text = host_text(m.host);
  for (const GpuMeasurements& gpus : m.gpus) text += gpu_text(gpus);
  if (m.gpus.empty()) text += "GPUs: not measured, " + m.no_gpus + "\n";
  return text;
}

std::string to_json(const Measurements& m) {
  Json json = {{"program", "strait topo --measure"}};
  json["host"] = {{"cpus", m.host.cpus},
                  {"copy_gbps", m.host.copy_gbps},
                  {"latency_us", m.host.latency_us},
                  {"all_gbps", m.host.all_gbps},
                  {"dram_copy_gbps", m.host.dram_copy_gbps}};
  json["gpus"] = m.gpus.empty() ? Json() : gpus_json(m.gpus.front());
  if (m.gpus.empty()) json["no_gpus"] = m.no_gpus;
  return json_text(json);
}

}  // namespace strait::topo
