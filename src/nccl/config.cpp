#include "nccl/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "strait/strait.h"

namespace strait::nccl {
namespace {

/// The fields at offsets from `begin` to `end` (exclusive) exist since `version`.
struct Since {
  unsigned version;
  std::size_t begin;
  std::size_t end;
};
constexpr Since history[] = {
    {21400, offsetof(ncclConfig_t, blocking), offsetof(ncclConfig_t, cgaClusterSize)},
    {21700, offsetof(ncclConfig_t, cgaClusterSize), offsetof(ncclConfig_t, splitShare)},
    {22500, offsetof(ncclConfig_t, trafficClass), offsetof(ncclConfig_t, commName)},
    {22700, offsetof(ncclConfig_t, collnetEnable), offsetof(ncclConfig_t, nChannelsPerNetPeer)},
    {22800, offsetof(ncclConfig_t, nChannelsPerNetPeer), offsetof(ncclConfig_t, graphUsageMode)},
    {22900, offsetof(ncclConfig_t, graphUsageMode), offsetof(ncclConfig_t, maxP2pPeers)},
    {23000, offsetof(ncclConfig_t, maxP2pPeers), offsetof(ncclConfig_t, graphStreamOrdering)},
    {23005, offsetof(ncclConfig_t, graphStreamOrdering), sizeof(ncclConfig_t)},
};

struct Rule {
  const char* name;
  int ncclConfig_t::*field;
  int minimum;
  int maximum;
  bool has_meaning = false;  ///< whether it has an effect in Strait
};
constexpr Rule rules[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1, true},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, INT_MAX},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX, true},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"trafficClass", &ncclConfig_t::trafficClass, INT_MIN, INT_MAX},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, 0, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO, true},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
    {"graphUsageMode", &ncclConfig_t::graphUsageMode, 0, 2},
    {"numRmaCtx", &ncclConfig_t::numRmaCtx, 0, INT_MAX},
    {"maxP2pPeers", &ncclConfig_t::maxP2pPeers, 1, INT_MAX},
    {"graphStreamOrdering", &ncclConfig_t::graphStreamOrdering, 0, 1},
};

ncclResult_t check_values(const ncclConfig_t& config, std::string& problem) {
  for (const Rule& rule : rules) {
    const int value = config.*rule.field;
    if (value == NCCL_CONFIG_UNDEF_INT || (value >= rule.minimum && value <= rule.maximum)) continue;
    problem = "the configuration's " + std::string(rule.name) + " is " + std::to_string(value) + ": give " +
              std::to_string(rule.minimum) +
              (rule.maximum == INT_MAX ? " or more" : " to " + std::to_string(rule.maximum)) +
              ", or NCCL_CONFIG_UNDEF_INT";
    return ncclInvalidArgument;
  }
  if (config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config.minCTAs > config.maxCTAs) {
    problem = "the configuration's minCTAs, " + std::to_string(config.minCTAs) + ", is more than its maxCTAs, " +
              std::to_string(config.maxCTAs);
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

}  // namespace

ncclResult_t read_config(const ncclConfig_t* config, ncclConfig_t& out, std::string& problem) {
  const ncclConfig_t defaults = NCCL_CONFIG_INITIALIZER;
  out = defaults;
  if (config == nullptr) return ncclSuccess;
  std::size_t size_bytes = 0;
  std::memcpy(&size_bytes, config, sizeof size_bytes);
  out.magic = 0;
  // Until the magic number shows that `size` is valid, read no more than the fields that every version has.
  const std::size_t head_bytes = offsetof(ncclConfig_t, blocking);
  if (size_bytes >= head_bytes) std::memcpy(&out, config, head_bytes);
  if (out.magic != NCCL_API_MAGIC) {
    problem = "the configuration is not initialised. Start from NCCL_CONFIG_INITIALIZER";
    return ncclInvalidArgument;
  }
  std::memcpy(&out, config, std::min(size_bytes, sizeof out));
  for (const Since& since : history)
    if (out.version < since.version)
      std::memcpy(reinterpret_cast<char*>(&out) + since.begin, reinterpret_cast<const char*>(&defaults) + since.begin,
                  since.end - since.begin);
  return check_values(out, problem);
}

int max_sms_of(const ncclConfig_t& config) {
  if (config.maxCTAs != NCCL_CONFIG_UNDEF_INT) return config.maxCTAs;
  const bool is_zero = config.CTAPolicy != NCCL_CONFIG_UNDEF_INT && (config.CTAPolicy & NCCL_CTA_POLICY_ZERO) != 0;
  return is_zero ? STRAIT_NO_SMS : 0;
}

std::vector<const char*> ignored_fields(const ncclConfig_t& config) {
  std::vector<const char*> names;
  for (const Rule& rule : rules)
    if (!rule.has_meaning && config.*rule.field != NCCL_CONFIG_UNDEF_INT) names.push_back(rule.name);
  if (config.netName != nullptr) names.push_back("netName");
  if (config.commName != nullptr) names.push_back("commName");
  return names;
}

}  // namespace strait::nccl
