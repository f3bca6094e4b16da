// What GPU ranks add to the set-up of a communicator.
#include <fcntl.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "communicator/agree.hpp"
#include "communicator/comm.hpp"
#include "communicator/gather.hpp"
#include "communicator/local_ranks.hpp"
#include "communicator/opening.hpp"
#include "communicator/transports.hpp"
#include "device/device_links.hpp"
#include "network/network_calls.hpp"
#include "select/copy_borders.hpp"

namespace strait {
namespace {

/// What a rank tells the others about itself.
struct Place {
  std::int32_t device;
  std::uint32_t max_sms;
  char bus_id[32];
};

std::string describe_sms(std::uint32_t max_sms) { return max_sms == no_sms ? "none" : std::to_string(max_sms); }

/// Checks that both can be ranks of one communicator.
Status check_pair(const Place& own, const PeerInfo& self, const Place& other, const PeerInfo& peer, bool shares_gpus) {
  if ((other.device >= 0) != (own.device >= 0))
    return fail(Code::invalid_usage, peer.describe() + (other.device >= 0 ? " is a GPU rank, " : " is a host rank, ") +
                                         self.describe() + " is not. Give all ranks a device, or none");
  if (other.max_sms != own.max_sms)
    return fail(Code::mismatch, "max_sms is " + describe_sms(other.max_sms) + " on " + peer.describe() + " and " +
                                    describe_sms(own.max_sms) + " on " + self.describe());
  const bool shared =
      own.device >= 0 && peer.same_host(self) && std::memcmp(other.bus_id, own.bus_id, sizeof own.bus_id) == 0;
  if (shared && !shares_gpus && !peer.same_process(self))
    return fail(Code::invalid_usage, peer.describe() + " and " + self.describe() + " use the same GPU (" + own.bus_id +
                                         "). Give each process its own, or set STRAIT_SHARE_GPUS=1 to try things out");
  return {};
}

bool do_threads_share_a_gpu(const std::vector<std::string>& bus_ids, const std::vector<PeerInfo>& peers) {
  for (std::size_t one = 0; one < bus_ids.size(); ++one)
    for (std::size_t other = 0; other < one; ++other)
      if (bus_ids[one] == bus_ids[other] && peers[one].same_process(peers[other])) return true;
  return false;
}

/// Warns, on rank 0, of settings that have no effect.
void warn_of_settings(const DeviceRank::Request& request, const std::string& algorithm, const std::string& why_tcp) {
  if (request.rank != 0) return;
  if (!algorithm.empty() && request.hops == Hops::chosen)
    log_warn(0, "STRAIT_ALGORITHM=" + algorithm +
                    " means nothing to GPU ranks, whose kernels have one_hop and two_hop: these are chosen by size");
  const bool copies =
      request.options.copy_engine_bytes != 0 || copy_borders_of(request.options.max_sms).others_bytes != 0;
  if (!copies || request.shares_control) return;
  log_warn(0,
           "copy engines carry nothing, and kernels all, because the ranks hear of failures over TCP and share no "
           "memory for it" +
               (why_tcp.empty() ? " (STRAIT_TRANSPORT)" : ": " + why_tcp));
}

struct Devices {
  std::vector<std::string> bus_ids;  ///< PCI bus IDs of the ranks' GPUs; empty strings for host ranks
  bool are_of_one_host = true;
};
/// Checks that all ranks are GPU ranks or all host ranks, and returns their GPUs. Collective.
Result<Devices> agree_on_devices(Channel& channel, const CommOptions& options, bool shares_gpus,
                                 const Deadline& deadline) {
  Place own{options.device, options.gpu.max_sms, {}};
  Status found;
  if (options.device >= 0) {
    auto id = device_bus_id(options.device);
    if (id)
      id->copy(own.bus_id, sizeof own.bus_id - 1);
    else
      found = tl::unexpected(id.error());
  }
  STRAIT_TRY(agree(channel, found, "use its GPU", deadline));
  STRAIT_ASSIGN(const auto places, gather(channel, own, deadline));
  const PeerInfo& self = channel.self();
  Devices devices;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const PeerInfo& peer = channel.peers()[rank];
    STRAIT_TRY(check_pair(own, self, places[rank], peer, shares_gpus));
    devices.are_of_one_host &= peer.same_host(self);
    devices.bus_ids.emplace_back(places[rank].bus_id);
  }
  return devices;
}

/// Passes a file descriptor to all ranks of the host, and returns theirs. Collective.
Result<std::vector<UniqueFd>> exchange_descriptors(Channel& channel, int fd, const Deadline& deadline) {
  struct Offer {
    shm::Secret secret;
    int fd;  ///< valid in its own process only
  };
  Offer own{{}, fd};
  randombytes_buf(&own.secret, sizeof own.secret);
  STRAIT_ASSIGN(const auto offers, gather(channel, own, deadline));
  const auto& peers = channel.peers();
  const auto rank = static_cast<std::uint32_t>(channel.rank());
  const auto ranks = static_cast<std::uint32_t>(channel.ranks());
  std::vector<UniqueFd> descriptors(ranks);
  Status taken;
  if (!std::all_of(peers.begin(), peers.end(),
                   [&](const PeerInfo& peer) { return peer.same_process(peers.front()); })) {
    shm::RendezvousRequest request;
    request.rank = rank;
    request.ranks = local_ranks(peers);
    request.secret = offers.front().secret;
    request.segment_bytes = 4096;
    request.heap_fd = fd;
    request.deadline = deadline;
    request.check = [&channel] { return channel.check(); };
    request.agree = agreement(channel, deadline);
    auto met = shm::meet(request);
    if (met)
      descriptors = std::move(met->heaps);
    else
      taken = tl::unexpected(std::move(met).error());
  }
  for (std::uint32_t peer = 0; peer < ranks && taken; ++peer) {
    if (peer == rank || !peers[peer].same_process(channel.self())) continue;
    descriptors[peer].reset(fcntl(offers[peer].fd, F_DUPFD_CLOEXEC, 0));
    if (!descriptors[peer])
      taken = fail_errno("cannot keep a descriptor from " + peers[peer].describe(), errno, descriptor_remedy(errno));
  }
  // This also keeps ranks from closing their descriptors before all have taken them.
  STRAIT_TRY(agree(channel, taken, "take its peers' descriptors", deadline));
  return descriptors;
}

}  // namespace

DeviceRank::Request Comm::device_request(const Opening& opening, const std::vector<std::string>& bus_ids) {
  DeviceRank::Request request;
  request.options = options_.gpu;
  request.device = options_.device;
  request.rank = rank_;
  request.ranks = ranks_;
  request.bus_ids = bus_ids;
  request.threads_share_a_gpu = do_threads_share_a_gpu(bus_ids, channel_->peers());
  // Messages within a host and messages between hosts run side by side.
  request.spared_sms = options_.names.empty() ? 0 : most_network_blocks;
  request.timeout_ms = options_.timeout_ms;
  request.shares_control = transport_->shares_control();
  request.hops = hops_of(opening.select.algorithm);
  request.communicator = recorder_->communicator();
  request.most_reducers = opening.resources.cores / 2;  // the other cores are for the program
  request.wire = wire();
  request.agree = [this](const Status& status, const std::string& what) {
    return agree(*channel_, status, what, device_deadline_);
  };
  request.gather = [this](std::uint32_t word) { return gather(*channel_, word, device_deadline_); };
  request.exchange_rates = [this, bus_ids, fixed_gbps = opening.exchange_gbps,
                            measures = opening.measures_exchange](bool through_host) {  // as rank 0 sees them
    auto seen = rank_ == 0 ? exchange_rates_of_gpus(bus_ids, through_host) : ExchangeRates{};
    if (fixed_gbps > 0) seen.gbps = fixed_gbps;
    seen.is_fixed_by_user |= fixed_gbps > 0 || !measures;
    return gather(*channel_, seen, device_deadline_).map([](const auto& all) { return all.front(); });
  };
  request.goes_on = [this] {
    return device_deadline_.expired()
               ? fail(Code::timeout, "the time to make the communicator (STRAIT_INIT_TIMEOUT_MS) is over")
               : channel_->check();
  };
  request.exchange = [this](int fd) { return exchange_descriptors(*channel_, fd, device_deadline_); };
  request.watch = watch_.get();
  return request;
}

Status Comm::open_device(const Opening& opening) {
  STRAIT_ASSIGN(const Devices devices, agree_on_devices(*channel_, options_, opening.shares_gpus, opening.deadline));
  if (options_.device < 0) return {};
  STRAIT_TRY(check_ranks(*options_.gpu.p2p, ranks_));
  if (!devices.are_of_one_host) return open_hosts(opening);
  device_deadline_ = opening.deadline;  // later registrations set deadlines of their own
  const DeviceRank::Request request = device_request(opening, devices.bus_ids);
  warn_of_settings(request, opening.select.algorithm, transport_why_);
  STRAIT_ASSIGN(auto device, DeviceRank::open(request));
  use_device(std::move(device));
  if (rank_ == 0 && !transport_why_.empty()) log_info(0, "GPUs trade through host memory: " + transport_why_);
  return {};
}

void Comm::use_device(std::unique_ptr<DeviceRank> device) {
  device_ = std::move(device);
  asked_device_ = device_.get();
  device_operations_.emplace(DeviceOperations::Parts{*device_, *watch_, *recorder_, *collectives_});
  transport_name_ = device_->transport_name();  // transport_ only carries news between the ranks
  transport_why_ = device_->transport_why();
}

}  // namespace strait
