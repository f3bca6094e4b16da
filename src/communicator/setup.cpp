// How a communicator is made, and what its ranks do together besides operations.
#include <chrono>
#include <thread>

#include "base/at_scope_end.hpp"
#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "base/process_began.hpp"
#include "base/shortage.hpp"
#include "base/stages.hpp"
#include "communicator/comm.hpp"
#include "communicator/facts.hpp"
#include "communicator/gather.hpp"
#include "communicator/init_watch.hpp"
#include "communicator/opening.hpp"
#include "communicator/transports.hpp"

namespace strait {
namespace {

/// How long a rank waits in a set-up call before it looks whether others make another call: nobody waits longer if all
/// make the same one.
constexpr std::chrono::milliseconds entering_patience(300);

std::string text_of(SetUpCall call) {
  return call == SetUpCall::split ? "called a split of the communicator" : "registered memory";
}

/// Returns an error that names the rank whose death is behind `error`, if any: a connection may also end because a rank
/// died that is not at its other end. Looks for a while, because connections of a process close a moment before it is
/// known to have ended.
Status death_behind(const Channel& channel, const Watch& watch, const Error& error) {
  constexpr int looks = 100;
  for (int look = 0; look < looks; ++look) {
    for (std::uint32_t rank = 0; rank < watch.ranks(); ++rank) {
      const RankName& name = watch.name_of(rank);
      if (!watch.has_died(rank)) continue;
      if (error.message.find(name) != std::string::npos) return {};
      return fail(Code::remote_error, "the " + channel.call() + " needs " + name + ", " + watch.cause_of_death(rank) +
                                          ". This rank first saw: " + error.message);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace

Comm::Comm(std::unique_ptr<Channel> channel)
    : channel_(std::move(channel)),
      rank_(static_cast<std::uint32_t>(channel_->rank())),
      ranks_(static_cast<std::uint32_t>(channel_->ranks())) {}

Result<std::unique_ptr<Comm>> Comm::create(std::unique_ptr<Channel> channel, const CommOptions& options,
                                           const IsCancelled& is_cancelled, InitProgress* progress) {
  Opening opening{.is_cancelled = is_cancelled};
  std::unique_ptr<Comm> comm(new Comm(std::move(channel)));
  comm->options_ = options;
  comm->set_error_source(is_cancelled);
  Stages stages;
  Status opened = catch_shortage([&]() -> Status {
    STRAIT_TRY(comm->read_settings(opening));
    opening.deadline = Deadline::after_ms(comm->options_.init_timeout_ms);
    stages.done("settings");
    note_awaited(progress, "the other ranks, with which it opens the transport between them");
    STRAIT_TRY(comm->open_transport(opening));
    stages.done("transport");
    note_awaited(progress, "the other ranks, with which it prepares their devices");
    return comm->open_device(opening);
  });
  stages.done("device");
  // That a peer is gone shows in several places; the channel knows which peer it is, or will soon.
  const Deadline news = Deadline::after_ms(100);
  while (!opened && opened.error().code == Code::remote_error && comm->channel_->check() && !news.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // What this rank itself lacks (system_error) may be why others have failed, even before it has told them.
  const bool is_own = !opened && opened.error().code == Code::system_error;
  if (auto known = comm->channel_->error(); !opened && !known && !is_own) opened = known;
  // A rank that fails tells the others, who check for such news while they wait for it.
  if (!opened) {
    const std::string who = comm->channel_->self().describe();
    comm->channel_->announce({Code::remote_error, who + " could not join: " + opened.error().message});
    return tl::unexpected(opened.error());
  }
  note_awaited(progress, "the other ranks, to complete the communicator too");
  STRAIT_TRY(comm->channel_->barrier({opening.deadline, nullptr}));
  stages.done("the others");
  log_trace(static_cast<int>(comm->rank_), "set-up of the communicator: " + stages.text());
  // Not of the host ranks within a HostsRank: the outer communicator's recorder is dumped.
  if (!options.is_part_of_hosts()) watch_for_signal(*comm->recorder_);
  if (comm->device_ != nullptr) comm->prepare_exit();
  comm->set_error_source({});  // from now on an abort is a failure of the communicator
  return comm;
}

Status Comm::open_transport(Opening& opening) {
  const Environment& environment = opening.environment;
  const Deadline& deadline = opening.deadline;
  const auto& peers = channel_->peers();
  const Facts own = own_facts(environment, *channel_, options_.device >= 0, *options_.wire, opening.tuning);
  STRAIT_ASSIGN(const auto facts, exchange_facts(*channel_, own, deadline));
  const Facts& first = facts.front();
  STRAIT_ASSIGN(const std::string wanted, environment.text("STRAIT_TRANSPORT"));
  STRAIT_ASSIGN(const std::string ucx, environment.text("STRAIT_UCX"));
  STRAIT_ASSIGN(OpenTransport open, strait::open_transport({*channel_, wanted, ucx, first.secret, deadline}));
  transport_ = std::move(open.transport);
  transport_name_ = transport_->name();
  transport_why_ = std::move(open.why);

  opening.resources = common_resources(peers, facts);
  STRAIT_ASSIGN(ClockModel model, model_of(*channel_, transport_name_, open.adapt_model, opening.resources,
                                           first.has_measured_plans, deadline));

  make_recorder(first.communicator);
  make_watch(is_oversubscribed(channel_->self().host_id, peers, facts));
  log_info(static_cast<int>(rank_), "joined " + std::to_string(ranks_) + " ranks through " + transport_name_ + ", " +
                                        std::to_string(opening.resources.cores) + " cores");
  collectives_.emplace(*transport_);
  if (options_.device < 0) make_host_operations(opening, std::move(model));
  return {};
}

void Comm::make_host_operations(Opening& opening, ClockModel model) {
  opening.select.max_slice_bytes = transport_->slot_bytes();
  Selector selector({.model = std::move(model),
                     .options = std::move(opening.select),
                     .tuning = std::move(opening.tuning),
                     .shape = {},
                     .multicast = transport_->has_multicast(),
                     .warns = rank_ == 0});
  const HostPrograms::Setup programs{.rank = rank_,
                                     .ranks = ranks_,
                                     .averaged = options_.averaged,
                                     .simd = opening.simd,
                                     .cache_bytes = opening.resources.rates.cache_bytes};
  host_operations_.emplace(HostOperations::Parts{*transport_, *watch_, *recorder_, *collectives_}, programs,
                           std::move(selector));
}

std::vector<RankName> Comm::rank_names() const {
  if (!options_.names.empty()) return options_.names;
  std::vector<RankName> names;
  for (const PeerInfo& peer : channel_->peers()) names.push_back(peer.describe());
  return names;
}

void Comm::make_recorder(std::uint64_t communicator) {
  FlightRecorder::About about;
  about.communicator = communicator;
  about.rank = rank_;
  about.names = rank_names();
  about.host = channel_->self().host_name;
  about.pid = channel_->self().pid;
  about.process_began_unix_us = process_began_unix_us();
  about.device = options_.device;
  about.transport = transport_name_;
  about.shares_control = transport_->shares_control();
  const auto asks = [this](auto question) {
    return [question, device = &asked_device_] {
      return *device != nullptr ? (device->load()->*question)() : std::nullopt;
    };
  };
  about.is_idle = asks(&DeviceRank::is_idle);
  about.progress = asks(&DeviceRank::progress);
  recorder_ = std::make_unique<FlightRecorder>(transport_->rank_controls(), std::move(about));
}

void Comm::make_watch(bool oversubscribed) {
  Watch::Peers peers;
  peers.rank = rank_;
  peers.names = rank_names();
  peers.oversubscribed = oversubscribed;
  peers.timeout_ms = options_.timeout_ms;
  if (!options_.is_part_of_hosts())
    peers.on_failure = [recorder = recorder_.get()](const Error& error) { dump_on_failure(*recorder, error); };
  watch_ = std::make_unique<Watch>(*transport_, std::move(peers));
}

std::function<Status()> Comm::error_source_of(const IsCancelled& is_cancelled) const {
  return [this, is_cancelled]() -> Status {
    if (is_cancelled && is_cancelled())
      return fail(Code::aborted, "a communicator was aborted while it was made, on " + channel_->self().describe() +
                                     " (straitCommAbort)");
    if (!watch_) return {};
    STRAIT_TRY(watch_->sticky());
    return check_entering();
  };
}

/// A rank that enters a set-up call has not begun it on any rank, so a rank that is seen in the next collective has not
/// made that set-up call before, and would wait forever.
Status Comm::check_entering() const {
  const bool is_due = entering_ && std::chrono::steady_clock::now() - entering_->since >= entering_patience;
  if (!is_due || collectives_->has_captured()) return {};
  return watch_->compare_set_up(text_of(entering_->call), collectives_->next());
}

void Comm::set_error_source(const IsCancelled& is_cancelled) {
  channel_->set_error_source(error_source_of(is_cancelled));
}

Status Comm::announce_failure() {
  // If a peer has left because of a failure, the channel may tell of its leaving before the failure is known here.
  if (transport_) transport_->receive_early();
  Status sticky = this->sticky();
  if (!sticky) channel_->announce(sticky.error());  // reaches also ranks whose data connection is cut
  return sticky;
}

Status Comm::cause_of(const Error& error) {
  STRAIT_TRY(announce_failure());
  if (error.code == Code::remote_error) STRAIT_TRY(death_behind(*channel_, *watch_, error));
  return {};
}

InitPlace Comm::init_place() const {
  return {static_cast<int>(rank_), static_cast<int>(ranks_), recorder_->communicator()};
}

Status Comm::begin_set_up(SetUpCall call, const Deadline& deadline) {
  // A thread of Strait's (the drop-in has them) may run beside this rank's operations, which count on meanwhile.
  if (!is_own_thread) entering_ = {call, std::chrono::steady_clock::now()};
  const AtScopeEnd entered([this] { entering_.reset(); });
  auto all = gather(*channel_, call, deadline);
  if (!all && all.error().code == Code::timeout && !collectives_->has_captured())
    STRAIT_TRY(watch_->compare_set_up(text_of(call), collectives_->next()));
  STRAIT_ASSIGN(const auto calls, std::move(all));
  for (std::uint32_t other = 0; other < ranks_; ++other)
    if (calls[other] != call)
      return tl::unexpected(watch_->raise_difference(text_of(call), other, text_of(calls[other])));
  return {};
}

}  // namespace strait
