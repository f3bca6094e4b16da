#include "communicator/facts.hpp"

#include <sodium.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "base/cpus.hpp"
#include "bootstrap/interface.hpp"
#include "communicator/gather.hpp"
#include "select/calibration.hpp"
#include "select/selector.hpp"

namespace strait {
namespace {

cpu_set_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : allowed_cpus()) CPU_SET(cpu, &set);
  return set;
}

/// Returns what rank 0 has measured of plans for this number of ranks over this transport, which decides for all.
/// Collective.
Result<PlanRatios> agree_on_ratios(Channel& channel, const std::string& transport, const Deadline& deadline) {
  const auto ranks = static_cast<std::uint32_t>(channel.ranks());
  std::string own;
  if (const auto& plans = process_rates().plans; channel.rank() == 0)
    if (const auto found = plans.find(ratios_key(transport, ranks)); found != plans.end())
      own = ratios_text(found->second);
  STRAIT_ASSIGN(const auto bytes, channel.broadcast(std::as_bytes(std::span(own)), 0, {deadline, nullptr}));
  if (bytes.empty()) return PlanRatios{};
  auto ratios = parse_ratios({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!ratios) return fail(Code::internal_error, "rank 0's calibration " + ratios.error().message);
  return ratios;
}

bool has_measured_plans(std::uint32_t ranks) {
  const auto& plans = process_rates().plans;
  return std::any_of(plans.begin(), plans.end(), [&](const auto& entry) {
    const std::string& key = entry.first;
    return key == ratios_key(std::string_view(key).substr(0, key.find('/')), ranks);
  });
}

/// Checks that a setting is the same on all ranks. `text_of` returns it as text, from a rank's facts.
template <class TextOf>
Status check_same(const std::vector<Facts>& facts, const std::vector<PeerInfo>& peers, const std::string& setting,
                  TextOf text_of) {
  const std::string first(text_of(facts[0]));
  for (std::size_t i = 1; i < facts.size(); ++i)
    if (const std::string other(text_of(facts[i])); other != first)
      return fail(Code::mismatch, "the ranks run with different settings: " + setting + " " + first + " on " +
                                      peers[0].describe() + " but " + other + " on " + peers[i].describe() +
                                      ". Make it the same on all ranks");
  return {};
}
Status check_same_settings(const std::vector<Facts>& facts, const std::vector<PeerInfo>& peers) {
  STRAIT_TRY(check_same(facts, peers, "the tuning file (STRAIT_TUNING_FILE) has",
                        [](const Facts& rank) { return rank.tuning.data(); }));
  return check_same(facts, peers, "the wire format (`wire` in the configuration, or STRAIT_WIRE) is",
                    [](const Facts& rank) { return name(rank.wire); });
}

/// What the ranks of a host have together.
struct HostShare {
  /// What ranks have together that share a quota, such as those in one container, or that have none.
  struct QuotaShare {
    CpuQuota quota;
    cpu_set_t cpus{};
  };
  std::uint32_t ranks = 0;
  double network_gbps = 0;                     ///< the least that any of its ranks knows; 0: none knows
  cpu_set_t cpus{};                            ///< cores of all its ranks
  std::map<std::uint64_t, QuotaShare> quotas;  ///< by their groups

  void add(const Facts& rank) {
    CPU_OR(&cpus, &cpus, &rank.cores);
    QuotaShare& share = quotas[rank.quota.group];
    share.quota = rank.quota;
    CPU_OR(&share.cpus, &share.cpus, &rank.cores);
  }
  /// Returns for how many cores the ranks have time.
  std::uint32_t cores() const {
    std::uint32_t time = 0;
    for (const auto& [group, share] : quotas)
      time += within_quota(static_cast<std::size_t>(CPU_COUNT(&share.cpus)), share.quota);
    return std::max(1u, std::min(time, static_cast<std::uint32_t>(CPU_COUNT(&cpus))));
  }
};

/// Returns the smaller of two rates, of which 0 means unknown.
double least_known(double a, double b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/// Returns the hosts, by host ID.
std::map<std::string_view, HostShare> hosts_of(const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts) {
  std::map<std::string_view, HostShare> hosts;
  for (const PeerInfo& peer : peers) {
    HostShare& host = hosts[peer.host_id];
    ++host.ranks;
    const Facts& own = facts[static_cast<std::size_t>(peer.rank)];
    host.add(own);
    host.network_gbps = least_known(host.network_gbps, own.network_gbps);
  }
  return hosts;
}

/// Returns what the network carries to other hosts, for GPU ranks; 0: unknown, or there are none.
double network_gbps(const Environment& environment, const Channel& channel, bool is_on_device) {
  const auto& peers = channel.peers();
  const auto is_here = [&](const PeerInfo& peer) { return peer.same_host(peers.front()); };
  if (!is_on_device || std::all_of(peers.begin(), peers.end(), is_here)) return 0;
  const auto interface = choose_interface(environment);
  return interface ? rate_gbps(*interface) : 0;
}

}  // namespace

Facts own_facts(const Environment& environment, const Channel& channel, bool is_on_device, WireFormat wire,
                const Tuning& tuning) {
  Facts own{.secret = {},
            .cores = usable_cores(),
            .quota = cpu_quota(),
            .wire = wire,
            .has_measured_plans = has_measured_plans(static_cast<std::uint32_t>(channel.ranks())),
            .rates = process_rates().host,
            .network_gbps = network_gbps(environment, channel, is_on_device)};
  randombytes_buf(&own.communicator, sizeof own.communicator);
  tuning.summary().copy(own.tuning.data(), own.tuning.size() - 1);
  randombytes_buf(&own.secret, sizeof own.secret);
  return own;
}

Result<std::vector<Facts>> exchange_facts(Channel& channel, const Facts& own, const Deadline& deadline) {
  STRAIT_ASSIGN(auto facts, gather(channel, own, deadline));
  STRAIT_TRY(check_same_settings(facts, channel.peers()));
  return facts;
}

/// Takes the smallest cache, and the cores that the ranks of a host share, added up over all hosts.
CommonResources common_resources(const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts) {
  CommonResources all;
  all.rates = facts.front().rates;
  for (const Facts& other : facts) all.rates.cache_bytes = std::min(all.rates.cache_bytes, other.rates.cache_bytes);
  const auto hosts = hosts_of(peers, facts);
  all.least_cores = hosts.begin()->second.cores();
  for (const auto& [id, host] : hosts) {
    all.cores += host.cores();
    all.least_cores = std::min(all.least_cores, host.cores() / host.ranks);
    all.least_network_gbps = least_known(all.least_network_gbps, host.network_gbps / host.ranks);
  }
  return all;
}

bool is_oversubscribed(const std::string& host_id, const std::vector<PeerInfo>& peers,
                       const std::vector<Facts>& facts) {
  const HostShare host = hosts_of(peers, facts).at(host_id);
  return host.ranks > host.cores();
}

Result<ClockModel> model_of(Channel& channel, const std::string& transport, AdaptModel adapt,
                            const CommonResources& resources, bool has_measured_plans, const Deadline& deadline) {
  const auto ranks = static_cast<std::uint32_t>(channel.ranks());
  ClockModel model = host_model(ranks, resources.cores, resources.rates, Selector::writers_in_model(ranks));
  if (adapt != nullptr) adapt(model, channel.peers());
  if (has_measured_plans) {
    STRAIT_ASSIGN(model.ratios, agree_on_ratios(channel, transport, deadline));
  }
  return model;
}

}  // namespace strait
