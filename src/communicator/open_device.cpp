// What GPU ranks add to the set-up of a communicator.
#include <fcntl.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.hpp"
#include "communicator/comm.hpp"
#include "communicator/gather.hpp"
#include "communicator/local_ranks.hpp"
#include "communicator/transports.hpp"
#include "select/copy_borders.hpp"

namespace strait {
namespace {

void warn_of_copies(const DeviceRank::Request& request, const std::string& why_tcp) {
  const bool asks = request.copy_engine_bytes != 0 || copy_borders_of(request.max_sms).others_bytes != 0;
  if (request.rank != 0 || !asks || request.shares_control) return;
  log_warn(0,
           "copy engines carry nothing, and kernels all, because the ranks hear of failures over TCP and share no "
           "memory for it" +
               (why_tcp.empty() ? " (STRAIT_TRANSPORT)" : ": " + why_tcp));
}

void warn_of_algorithm(std::uint32_t rank, const std::string& algorithm) {
  if (rank != 0 || algorithm.empty() || hops_of(algorithm) != Hops::chosen) return;
  log_warn(0, "STRAIT_ALGORITHM=" + algorithm +
                  " means nothing to GPU ranks, whose kernels have one_hop and two_hop: these are chosen by size");
}

std::string describe_sms(std::uint32_t max_sms) { return max_sms == no_sms ? "none" : std::to_string(max_sms); }

/// What a rank tells the others of its GPU.
struct Place {
  std::int32_t device;
  std::uint32_t max_sms;
  char bus_id[32];
};

Result<Place> own_place(int device, std::uint32_t max_sms) {
  Place own{device, max_sms, {}};
  if (device < 0) return own;
  STRAIT_ASSIGN(const std::string id, device_bus_id(device));
  id.copy(own.bus_id, sizeof own.bus_id - 1);
  return own;
}

/// What has to be so of all of them, seen from this rank.
Status check_gpus(const std::vector<Place>& places, const Channel& channel, bool shares_gpus) {
  const auto& peers = channel.peers();
  const PeerInfo& self = channel.self();
  const Place& own = places[static_cast<std::size_t>(channel.rank())];
  for (std::size_t peer = 0; peer < places.size(); ++peer) {
    const Place& other = places[peer];
    if ((other.device >= 0) != (own.device >= 0))
      return fail(Code::invalid_usage, peers[peer].describe() +
                                           (other.device >= 0 ? " is a GPU rank, " : " is a host rank, ") +
                                           self.describe() + " is not. Give all ranks a device, or none");
    if (other.max_sms != own.max_sms)
      return fail(Code::mismatch, "max_sms is " + describe_sms(other.max_sms) + " on " + peers[peer].describe() +
                                      " and " + describe_sms(own.max_sms) + " on " + self.describe());
    const bool shared =
        own.device >= 0 && peers[peer].same_host(self) && std::memcmp(other.bus_id, own.bus_id, sizeof own.bus_id) == 0;
    if (shared && !shares_gpus && !peers[peer].same_process(self))
      return fail(Code::invalid_usage,
                  peers[peer].describe() + " and " + self.describe() + " use the same GPU (" + own.bus_id +
                      "). Give each process its own, or set STRAIT_SHARE_GPUS=1 to try things out");
  }
  return {};
}

}  // namespace

Status Comm::open_device(const Deadline& deadline, const IsCancelled& is_cancelled) {
  const auto own = own_place(options_.device, options_.max_sms);
  STRAIT_TRY(agree(own.map([](const Place&) {}), "use its GPU", deadline));
  STRAIT_ASSIGN(const auto places, gather(*channel_, *own, deadline));
  const auto& peers = channel_->peers();
  STRAIT_TRY(check_gpus(places, *channel_, options_.shares_gpus));
  if (options_.device < 0) return {};
  STRAIT_TRY(check_ranks(*options_.p2p, ranks_));
  const auto is_near = [this](const PeerInfo& peer) { return peer.same_host(channel_->self()); };
  if (!std::all_of(peers.begin(), peers.end(), is_near)) return open_hosts(deadline, is_cancelled);
  DeviceRank::Request request;
  request.device = options_.device;
  request.rank = rank_;
  request.ranks = ranks_;
  for (std::size_t one = 0; one < places.size(); ++one) {
    request.bus_ids.emplace_back(places[one].bus_id);
    for (std::size_t other = 0; other < one; ++other)
      request.threads_share_a_gpu |=
          request.bus_ids[one] == request.bus_ids[other] && peers[one].same_process(peers[other]);
  }
  request.max_sms = options_.max_sms;
  request.timeout_ms = options_.timeout_ms;
  request.shares_control = transport_->shares_control();
  request.hops = hops_of(select_options_.algorithm);
  warn_of_algorithm(rank_, select_options_.algorithm);
  request.p2p = *options_.p2p;
  request.lines_bytes = options_.lines_bytes;
  request.packets_bytes = options_.packets_bytes;
  request.piped_bytes = options_.piped_bytes;
  request.communicator = recorder_->communicator();
  request.host_memory_bytes = options_.host_memory_bytes;
  request.copy_engine_bytes = options_.copy_engine_bytes;
  request.copies_messages = options_.copies_messages;
  request.copy_window_bytes = options_.copy_window_bytes;
  request.reducers.threads = options_.cpu_reducers;
  request.reducers.cores = options_.cpu_reducer_cores;
  request.reducers.spin_us = options_.cpu_reducer_spin_us;
  request.reducers.simd = simd_;
  request.most_reducers = cores_ / 2;  // the rest is the program's
  request.cpu_reduce_bytes = options_.cpu_reduce_bytes;
  request.wire = wire();
  request.joins_graphs = options_.joins_graphs;
  request.aggregates = options_.aggregates;
  // Registrations ask the others later, by deadlines of their own.
  device_deadline_ = deadline;
  let_ask_others(request);
  request.watch = watch_.get();
  warn_of_copies(request, transport_why_);
  STRAIT_ASSIGN(device_, DeviceRank::open(request));
  asked_device_ = device_.get();
  transport_name_ = device_->transport_name();  // the other one only passes on news of the ranks
  transport_why_ = device_->transport_why();
  if (rank_ == 0 && !transport_why_.empty()) log_info(0, "GPUs trade through host memory: " + transport_why_);
  return {};
}

void Comm::let_ask_others(DeviceRank::Request& request) {
  request.agree = [this](const Status& status, const std::string& what) {
    return agree(status, what, device_deadline_);
  };
  request.gather = [this](std::uint32_t word) { return gather(*channel_, word, device_deadline_); };
  request.exchange_rates = [this, bus_ids = request.bus_ids](bool through_host) {  // as rank 0 sees them
    auto seen = rank_ == 0 ? find_exchange_rates(bus_ids, through_host) : ExchangeRates{};
    if (options_.exchange_gbps > 0) seen.gbps = options_.exchange_gbps;
    seen.is_settled |= options_.exchange_gbps > 0 || !options_.measures_exchange;
    return gather(*channel_, seen, device_deadline_).map([](const auto& all) { return all.front(); });
  };
  request.goes_on = [this] {
    return device_deadline_.expired()
               ? fail(Code::timeout, "the time to make the communicator (STRAIT_INIT_TIMEOUT_MS) is over")
               : channel_->check();
  };
  request.exchange = [this](int fd) { return exchange_descriptors(fd, device_deadline_); };
}

Result<std::vector<UniqueFd>> Comm::exchange_descriptors(int fd, const Deadline& deadline) {
  struct Offer {
    shm::Secret secret;
    int fd;  ///< means something in its own process only
  };
  Offer own{{}, fd};
  randombytes_buf(&own.secret, sizeof own.secret);
  STRAIT_ASSIGN(const auto offers, gather(*channel_, own, deadline));
  const auto& peers = channel_->peers();
  std::vector<UniqueFd> descriptors(ranks_);
  Status taken;
  if (!std::all_of(peers.begin(), peers.end(),
                   [&](const PeerInfo& peer) { return peer.same_process(peers.front()); })) {
    shm::RendezvousRequest request;
    request.rank = rank_;
    request.ranks = local_ranks(peers);
    request.secret = offers.front().secret;
    request.segment_bytes = 4096;
    request.heap_fd = fd;
    request.deadline = deadline;
    request.check = [this] { return channel_->check(); };
    request.agree = agreement(*channel_, deadline);
    auto met = shm::meet(request);
    if (met)
      descriptors = std::move(met->heaps);
    else
      taken = tl::unexpected(std::move(met).error());
  }
  for (std::uint32_t peer = 0; peer < ranks_ && taken; ++peer) {
    if (peer == rank_ || !peers[peer].same_process(channel_->self())) continue;
    descriptors[peer].reset(fcntl(offers[peer].fd, F_DUPFD_CLOEXEC, 0));
    if (!descriptors[peer])
      taken = fail_errno("cannot keep a descriptor from " + peers[peer].describe(), errno, descriptor_remedy(errno));
  }
  // Also since nobody may close its own before all have taken it.
  STRAIT_TRY(agree(taken, "take its peers' descriptors", deadline));
  return descriptors;
}

}  // namespace strait
