// Checks whether programs can use the RDMA devices that the kernel drives: libibverbs, and the GIDs of their ports.
#include <fmt/format.h>

#include "doctor/checks.hpp"
#include "topology/sysfs_files.hpp"
#include "topology/verbs.hpp"

namespace strait::doctor {
namespace {

Finding gid_finding(const std::string& name, const SurveyedPort& port) {
  const std::string cost = "RDMA cannot use this port";
  const SurveyedGid* gid = port.best_gid();
  if (!port.has_gids)
    return {Severity::warning, "gid", "the GIDs of " + name + " cannot be read", cost, "update rdma-core"};
  if (gid == nullptr)
    return {Severity::warning, "gid", name + " has no GID in use", cost,
            port.is_ethernet() ? "give its interface an IP address, and set it up"
                               : "start a subnet manager (opensm) on the fabric"};
  if (port.is_ethernet() && gid->type == GidType::roce_v1)
    return {Severity::warning, "gid", name + " has GIDs of RoCE v1 only", "it reaches no other subnet",
            "give its interface an IP address: that makes one of RoCE v2"};
  const std::string kind = gid->type == GidType::roce_v2 ? ", RoCE v2" : "";
  return {Severity::ok, "gid", fmt::format("{} has GID {}: {}{}", name, gid->index, gid->text, kind), "", ""};
}

}  // namespace

Findings check_rdma(const Machine& machine) {
  const auto adapters = SysDirectory(machine.root + "/sys/class/infiniband").names();
  if (adapters.empty()) return {};  // without RDMA devices libibverbs is not needed
  const VerbsSurvey verbs = survey_verbs(machine.verbs_library);
  Findings found;
  for (const std::string& note : verbs.notes)
    found.push_back({Severity::warning, "verbs", note, "traffic between hosts goes over TCP", "see there"});
  for (const std::string& adapter : adapters) {
    const SurveyedHca* hca = verbs.find(adapter);
    if (hca == nullptr && verbs.answered)
      found.push_back({Severity::warning, "verbs", "libibverbs does not list " + adapter, "RDMA cannot use it",
                       "install its driver's library (ibverbs-providers); give the container /dev/infiniband"});
    if (hca == nullptr) continue;
    for (const SurveyedPort& port : hca->ports)
      if (port.active) found.push_back(gid_finding(fmt::format("{} port {}", adapter, port.number), port));
  }
  return found;
}

}  // namespace strait::doctor
