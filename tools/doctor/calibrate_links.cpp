#include "doctor/calibrate_links.hpp"

#include <fmt/format.h>

#include "select/link_rates.hpp"
#include "topo/measurements.hpp"

namespace strait::doctor {
namespace {

double assumed_gbps(const Topology& topology, const LinkRate& rate) {
  const std::string host = topology.device(topology.all(DeviceKind::host).front()).name + "/";
  const auto from = topology.find(host + rate.from), to = topology.find(host + rate.to);
  const auto& links = topology.data().links;
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    if (from == links[i].lower && to == links[i].upper) return links[i].up_gbps;
    if (from == links[i].upper && to == links[i].lower) return links[i].down_gbps;
  }
  return 0;
}

}  // namespace

Result<MeasuredLinks> measure_links(const Topology& topology, const std::string& origin, const std::string& library) {
  STRAIT_ASSIGN(const topo::GpuMeasurements gpus, topo::measure_gpus(topology, library));
  STRAIT_ASSIGN(const Topology measured, topo::with_measured_rates(topology, gpus, origin));
  return MeasuredLinks{topology_fingerprint(topology), link_rates_of(measured)};
}

std::string links_text(const Topology& topology, const MeasuredLinks& links) {
  std::string text = fmt::format("{:<40}{:>12}{:>12}  GB/s\n", "link of a GPU", "measured", "assumed");
  for (const LinkRate& rate : links.rates)
    text += fmt::format("{:<40}{:>12.4g}{:>12.4g}  {}\n", rate.from + " -> " + rate.to, rate.gbps,
                        assumed_gbps(topology, rate), rate.origin);
  return text;
}

}  // namespace strait::doctor
