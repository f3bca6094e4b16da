// The life of a communicator around its operations: set-up, registered memory.
#include <sched.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string_view>
#include <thread>

#include "base/cpus.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/shortage.hpp"
#include "base/stages.hpp"
#include "bootstrap/interface.hpp"
#include "communicator/comm.hpp"
#include "communicator/gather.hpp"
#include "communicator/tcp_model.hpp"
#include "communicator/transports.hpp"
#include "select/calibration.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait {
namespace {

/// What ranks tell one another before they open a transport.
struct Facts {
  shm::Secret secret;             ///< the lowest rank's is used
  cpu_set_t cores;                ///< that this rank may run on; launchers often give each rank its own
  std::array<char, 64> tuning{};  ///< what must be equal of the tuning file, in words
  WireFormat wire{};
  std::uint64_t communicator = 0;   ///< rank 0's names it, for its reader
  bool has_measured_plans = false;  ///< rank 0's calibration tells of plans of as many ranks
  HostRates rates;  ///< what rank 0 knows of its machine decides for all; but for the cache, the smallest of all
  double network_gbps = 0;  ///< of GPU ranks of several hosts: rate_gbps() of the interface that they trade by
};

cpu_set_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : allowed_cpus()) CPU_SET(cpu, &set);
  return set;
}

/// What rank 0 has measured of plans of so many ranks over this transport decides for all.
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

/// `text_of`: a rank's facts -> its setting, in words.
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

struct HostShare {
  std::uint32_t ranks = 0;
  double network_gbps = 0;  ///< the least that one of them knows of; 0: none does
  cpu_set_t cpus{};         ///< that its ranks have together
  std::uint32_t cores() const { return static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&cpus))); }
};

/// Of two rates, of which 0 is unknown.
double least_known(double a, double b) { return a == 0 || (b != 0 && b < a) ? b : a; }

/// By host id.
std::map<std::string_view, HostShare> hosts_of(const std::vector<PeerInfo>& peers, const std::vector<Facts>& facts) {
  std::map<std::string_view, HostShare> hosts;
  for (const PeerInfo& peer : peers) {
    HostShare& host = hosts[peer.host_id];
    ++host.ranks;
    const Facts& own = facts[static_cast<std::size_t>(peer.rank)];
    CPU_OR(&host.cpus, &host.cpus, &own.cores);
    host.network_gbps = least_known(host.network_gbps, own.network_gbps);
  }
  return hosts;
}

std::string text_of(SetUpCall call) {
  return call == SetUpCall::split ? "called a split of the communicator" : "registered memory";
}

}  // namespace

Comm::Comm(std::unique_ptr<Channel> channel)
    : channel_(std::move(channel)),
      rank_(static_cast<std::uint32_t>(channel_->rank())),
      ranks_(static_cast<std::uint32_t>(channel_->ranks())),
      quantized_(rank_, ranks_, ranks_) {}

Result<std::unique_ptr<Comm>> Comm::create(std::unique_ptr<Channel> channel, const CommOptions& options,
                                           const IsCancelled& is_cancelled) {
  const Environment environment;
  std::unique_ptr<Comm> comm(new Comm(std::move(channel)));
  comm->options_ = options;
  if (options.averaged != 0) comm->quantized_ = QuantizedCall(comm->rank_, comm->ranks_, options.averaged);
  comm->heed(is_cancelled);
  Deadline deadline = Deadline::never();
  Stages stages;
  Status opened = or_shortage([&]() -> Status {
    STRAIT_TRY(comm->read_settings(environment));
    deadline = Deadline::after_ms(comm->options_.init_timeout_ms);
    stages.done("settings");
    STRAIT_TRY(comm->open_transport(environment, deadline));
    stages.done("transport");
    return comm->open_device(deadline, is_cancelled);
  });
  stages.done("device");
  // That a peer went away is seen in several places; the channel knows which one it was, and soon.
  const Deadline news = Deadline::after_ms(100);
  while (!opened && opened.error().code == Code::remote_error && comm->channel_->check() && !news.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // What this rank lacks itself is why others may have failed before it says so.
  const bool is_own = !opened && opened.error().code == Code::system_error;
  if (auto known = comm->channel_->error(); !opened && !known && !is_own) opened = known;
  // A rank that fails on its way tells the others, who look for such news while they wait for it.
  if (!opened) {
    const std::string who = comm->channel_->self().describe();
    comm->channel_->announce({Code::remote_error, who + " could not join: " + opened.error().message});
    return tl::unexpected(opened.error());
  }
  STRAIT_TRY(comm->channel_->barrier({deadline, nullptr}));
  stages.done("the others");
  log_trace(static_cast<int>(comm->rank_), "set-up of the communicator: " + stages.text());
  if (!options.is_part_of_hosts()) watch_for_signal(*comm->recorder_);  // else the whole's recorder tells
  if (comm->device_ != nullptr) comm->prepare_exit();
  comm->heed({});  // an abort is a failure from now on
  return comm;
}

double Comm::network_gbps(const Environment& environment) const {
  const auto& peers = channel_->peers();
  const auto is_here = [&](const PeerInfo& peer) { return peer.same_host(peers.front()); };
  if (options_.device < 0 || std::all_of(peers.begin(), peers.end(), is_here)) return 0;
  const auto interface = choose_interface(environment);
  return interface ? rate_gbps(*interface) : 0;
}

Status Comm::open_transport(const Environment& environment, const Deadline& deadline) {
  const auto& peers = channel_->peers();
  Facts own{.secret = {},
            .cores = usable_cores(),
            .wire = *options_.wire,
            .has_measured_plans = has_measured_plans(ranks_),
            .rates = process_rates().host,
            .network_gbps = network_gbps(environment)};
  randombytes_buf(&own.communicator, sizeof own.communicator);
  tuning_.summary().copy(own.tuning.data(), own.tuning.size() - 1);
  randombytes_buf(&own.secret, sizeof own.secret);
  STRAIT_ASSIGN(const auto facts, gather(*channel_, own, deadline));
  STRAIT_TRY(check_same_settings(facts, peers));
  STRAIT_ASSIGN(const std::string wanted, environment.text("STRAIT_TRANSPORT"));
  STRAIT_ASSIGN(const std::string ucx, environment.text("STRAIT_UCX"));
  STRAIT_ASSIGN(OpenTransport open, strait::open_transport({*channel_, wanted, ucx, facts[0].secret, deadline}));

  // Every rank must choose alike: by the smallest cache, and by the cores that all share or, on several hosts, have.
  last_level_cache_bytes_ = own.rates.cache_bytes;
  for (const Facts& other : facts) last_level_cache_bytes_ = std::min(last_level_cache_bytes_, other.rates.cache_bytes);
  const auto hosts = hosts_of(peers, facts);
  const HostShare& own_host = hosts.at(channel_->self().host_id);
  std::uint32_t all_cores = 0;
  least_cores_ = own_host.cores();
  for (const auto& [id, host] : hosts) {
    all_cores += host.cores();
    least_cores_ = std::min(least_cores_, host.cores() / host.ranks);
    least_network_gbps_ = least_known(least_network_gbps_, host.network_gbps / host.ranks);
  }
  HostRates rates = facts.front().rates;
  rates.cache_bytes = last_level_cache_bytes_;
  cores_ = all_cores;
  ClockModel model = host_model(ranks_, all_cores, rates, Selector::writers_in_model(ranks_));
  if (open.transport->name().starts_with("tcp")) put_tcp_between(model, peers);
  all_in_one_process_ = open.transport->name() == "loopback";
  if (facts.front().has_measured_plans) {
    STRAIT_ASSIGN(model.ratios, agree_on_ratios(*channel_, std::string(open.transport->name()), deadline));
  }

  Watch::Peers names;
  names.rank = rank_;
  names.oversubscribed = own_host.ranks > own_host.cores();
  names.timeout_ms = options_.timeout_ms;
  names.has_died = std::move(open.has_died);
  names.cause_of_death = std::move(open.cause_of_death);
  names.names = options_.names;
  if (names.names.empty())
    for (const PeerInfo& peer : peers) names.names.push_back(peer.describe());
  FlightRecorder::About about;
  about.communicator = facts.front().communicator;
  about.rank = rank_;
  about.names = names.names;
  about.host = channel_->self().host_name;
  about.pid = channel_->self().pid;
  about.device = options_.device;
  about.transport = open.transport->name();
  const auto asks = [this](auto question) {
    return [question, device = &asked_device_] {
      return *device != nullptr ? (device->load()->*question)() : std::nullopt;
    };
  };
  about.is_idle = asks(&DeviceRank::is_idle);
  about.progress = asks(&DeviceRank::progress);
  recorder_ = std::make_unique<FlightRecorder>(open.controls, std::move(about));
  if (!options_.is_part_of_hosts())
    names.on_failure = [recorder = recorder_.get()](const Error& error) { dump_on_failure(*recorder, error); };
  transport_ = std::move(open.transport);
  transport_name_ = transport_->name();
  transport_why_ = std::move(open.why);
  watch_ = std::make_unique<Watch>(*open.control, std::move(open.controls), *transport_, std::move(names));
  log_info(static_cast<int>(rank_), "joined " + std::to_string(ranks_) + " ranks through " + transport_name_ + ", " +
                                        std::to_string(all_cores) + " cores");
  select_options_.max_slice_bytes = transport_->slot_bytes();
  selector_ = Selector({.model = std::move(model),
                        .options = select_options_,
                        .tuning = std::move(tuning_),
                        .shape = {},
                        .multicast = transport_->has_multicast(),
                        .warns = rank_ == 0});
  return {};
}

std::function<Status()> Comm::news_of(const IsCancelled& is_cancelled) const {
  return [this, is_cancelled]() -> Status {
    if (is_cancelled && is_cancelled())
      return fail(Code::aborted, "a communicator was aborted while it was made, on " + channel_->self().describe() +
                                     " (straitCommAbort)");
    return watch_ ? watch_->sticky() : Status();
  };
}

void Comm::heed(const IsCancelled& is_cancelled) { channel_->heed(news_of(is_cancelled)); }

Status Comm::failure() {
  // Of a peer that has left, the channel may be heard before what it left for.
  if (transport_) transport_->take_in();
  Status sticky = this->sticky();
  if (!sticky) channel_->announce(sticky.error());  // also where the data's way to a rank is cut
  return sticky;
}

Status Comm::agree(const Status& own, const std::string& what, const Deadline& deadline) {
  const std::string text = own ? "" : own.error().message;
  auto all = channel_->all_gather(std::as_bytes(std::span(text)), {deadline, nullptr});
  if (!own) return own;
  if (!all) return tl::unexpected(all.error());
  for (std::size_t i = 0; i < all->size(); ++i)
    if (const auto& message = (*all)[i]; !message.empty())
      return fail(Code::remote_error, channel_->peers()[i].describe() + " cannot " + what + ": " +
                                          std::string(reinterpret_cast<const char*>(message.data()), message.size()));
  return {};
}

Status Comm::register_memory(std::uint64_t number, void* pointer, std::size_t bytes) {
  Status registered = or_tell_out_of_memory([&] { return register_on_all(number, pointer, bytes); });
  if (!registered) STRAIT_TRY(cause_of(registered.error(), SetUpCall::registration));
  return registered;
}

/// What a connection's end says may come of the death of a rank that it does not lead to. Connections of a process
/// close a moment before it is seen to have ended.
Status Comm::death_behind(const Error& error) const {
  constexpr int looks = 100;
  for (int look = 0; look < looks; ++look) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const RankName& name = watch_->name_of(rank);
      if (!watch_->has_died(rank)) continue;
      if (error.message.find(name) != std::string::npos) return {};
      return fail(Code::remote_error, "the process of " + name + " has died: " + error.message);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

Status Comm::cause_of(const Error& error, SetUpCall call) {
  STRAIT_TRY(failure());
  if (error.code == Code::remote_error) STRAIT_TRY(death_behind(error));
  return error.code == Code::timeout && !has_captured_ ? watch_->compare_set_up(text_of(call), sequence_ + 1)
                                                       : Status();
}

Status Comm::begin_set_up(SetUpCall call, const Deadline& deadline) {
  STRAIT_ASSIGN(const auto calls, gather(*channel_, call, deadline));
  for (std::uint32_t other = 0; other < ranks_; ++other)
    if (calls[other] != call)
      return tl::unexpected(watch_->raise_difference(text_of(call), other, text_of(calls[other])));
  return {};
}

Status Comm::register_on_all(std::uint64_t number, void* pointer, std::size_t bytes) {
  STRAIT_TRY(failure());
  const Deadline deadline = Deadline::after_ms(options_.init_timeout_ms);
  device_deadline_ = deadline;
  STRAIT_TRY(begin_set_up(SetUpCall::registration, deadline));
  const std::uint64_t turn = ++registrations_;
  registered_[number] = {static_cast<const std::byte*>(pointer), bytes, turn};  // which may need memory
  Status agreed = register_with_all(turn, pointer, bytes, deadline);
  if (!agreed) registered_.erase(number);
  return agreed;
}

Status Comm::register_with_all(std::uint64_t turn, void* pointer, std::size_t bytes, const Deadline& deadline) {
  if (device_) {
    STRAIT_TRY(device_->register_memory(turn, pointer, bytes));
    Status agreed = agree({}, "register its memory", deadline);
    if (!agreed) device_->forget_memory(turn);
    return agreed;
  }
  Status own;
  if (!all_in_one_process_) {
    auto heap = shm::SharedHeap::instance();
    if (!heap || !(*heap)->contains(pointer, bytes))
      own = fail(Code::invalid_argument, "memory to be registered must come from straitMemAlloc");
  }
  // A rank that cannot reach a peer's memory would find out in the middle of an operation.
  const bool reads_peers = transport_->has_peer_memory();
  for (std::uint32_t peer = 0; peer < ranks_ && own && reads_peers; ++peer)
    if (!transport_->sees_memory_of(peer))
      own = fail(Code::unsupported, "the shared memory of " + watch_->name_of(peer) +
                                        " could not be mapped when the communicator was made (see the warnings of that "
                                        "moment). Check the limit of address space (ulimit -v), or do without "
                                        "straitCommRegister: calls then copy once more");
  return agree(own, "register its memory", deadline);
}

void Comm::forget_memory(std::uint64_t number) {
  const auto own = registered_.find(number);
  if (own == registered_.end()) return;
  device_->forget_memory(own->second.turn);
  registered_.erase(own);
}

Status Comm::deregister_memory(std::uint64_t number) {
  const auto own = registered_.find(number);
  if (own == registered_.end())
    return fail(Code::invalid_argument, "this handle was not given by straitCommRegister, or already given back");
  Status done = device_ ? device_->deregister_memory(own->second.turn) : Status();
  if (done || done.error().code != Code::aborted) registered_.erase(own);  // else what uses it may end, later
  return done;
}

bool Comm::is_registered(const void* pointer, std::size_t bytes) const {
  if (bytes == 0) return true;  // a rank that has no such buffer must not stand against those that have
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  return std::any_of(registered_.begin(), registered_.end(), [&](const auto& entry) {
    const auto range = reinterpret_cast<std::uintptr_t>(entry.second.begin);
    return begin >= range && begin + bytes <= range + entry.second.bytes;
  });
}

}  // namespace strait
