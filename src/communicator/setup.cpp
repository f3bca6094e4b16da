// The life of a communicator around its operations: set-up, split, registered memory.
#include <sched.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "communicator/comm.hpp"
#include "select/calibration.hpp"
#include "transports/loopback/loopback.hpp"
#include "transports/shm/shared_heap.hpp"
#include "transports/shm/shm.hpp"

namespace strait {
namespace {

/// What ranks tell one another before they open a transport.
struct Facts {
  shm::Secret secret;  ///< the lowest rank's is used
  cpu_set_t cores;     ///< that this rank may run on; launchers often give each rank its own
  std::uint64_t last_level_cache_bytes = 0;
  HostRates rates;  ///< likewise: what rank 0 knows of its machine decides for all
};

cpu_set_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0)  // more cores than the set can name
    for (unsigned core = 0; core < std::min(1024u, std::thread::hardware_concurrency()); ++core) CPU_SET(core, &set);
  return set;
}

std::string token(const PeerInfo& peer) {
  return peer.host_id +
         std::string(reinterpret_cast<const char*>(peer.process_token.data()), peer.process_token.size());
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

/// All ranks' values of a plain struct.
template <class T>
Result<std::vector<T>> gather(Channel& channel, const T& own, const Deadline& deadline) {
  STRAIT_ASSIGN(const auto blocks, channel.all_gather(bytes_of(own), {deadline, nullptr}));
  std::vector<T> values(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size() != sizeof(T))
      return fail(Code::remote_error,
                  "rank " + std::to_string(i) + " sent a message of the wrong length during set-up");
    std::memcpy(&values[i], blocks[i].data(), sizeof(T));
  }
  return values;
}

Status check_one_host(const std::vector<PeerInfo>& peers) {
  for (const PeerInfo& peer : peers)
    if (!peer.same_host(peers.front()))
      return fail(Code::unsupported, peers.front().describe() + " and " + peer.describe() +
                                         " are on different hosts, and this build carries data only within one host "
                                         "(transports loopback and shm). Start all ranks on one host");
  return {};
}

}  // namespace

Comm::Comm(std::unique_ptr<Channel> channel)
    : channel_(std::move(channel)),
      rank_(static_cast<std::uint32_t>(channel_->rank())),
      ranks_(static_cast<std::uint32_t>(channel_->ranks())) {}

Result<std::unique_ptr<Comm>> Comm::create(std::unique_ptr<Channel> channel, const CommOptions& options) {
  const Environment environment;
  std::unique_ptr<Comm> comm(new Comm(std::move(channel)));
  comm->options_ = options;
  if (options.init_timeout_ms == 0) {
    STRAIT_ASSIGN(comm->options_.init_timeout_ms, environment.integer("STRAIT_INIT_TIMEOUT_MS"));
  }
  if (options.timeout_ms == 0) {
    STRAIT_ASSIGN(comm->options_.timeout_ms, environment.integer("STRAIT_TIMEOUT_MS"));
  }
  const Deadline deadline = Deadline::after_ms(comm->options_.init_timeout_ms);
  Status opened = comm->read_settings(environment);
  if (opened) opened = comm->open_transport(environment, deadline);
  // That a peer went away is seen in several places; the channel knows which one it was, and soon.
  const Deadline news = Deadline::after_ms(100);
  while (!opened && opened.error().code == Code::remote_error && comm->channel_->check() && !news.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (auto known = comm->channel_->error(); !opened && !known) opened = known;
  // A rank that fails on its way tells the others, who look for such news while they wait for it.
  if (!opened) {
    const std::string who = comm->channel_->self().describe();
    comm->channel_->announce({Code::remote_error, who + " could not join: " + opened.error().message});
    return tl::unexpected(opened.error());
  }
  STRAIT_TRY(comm->channel_->barrier({deadline, nullptr}));
  return comm;
}

Status Comm::read_settings(const Environment& environment) {
  STRAIT_ASSIGN(const std::string simd, environment.text("STRAIT_SIMD"));
  simd_ = best_simd();
  if (const auto forced = simd_from_name(simd)) {
    if (*forced > best_simd())
      return fail(Code::invalid_usage,
                  "STRAIT_SIMD=" + simd + ", but this processor has no more than " + std::string(name(best_simd())));
    simd_ = *forced;
  }
  STRAIT_ASSIGN(select_options_.algorithm, environment.text("STRAIT_ALGORITHM"));
  if (select_options_.algorithm == "auto") select_options_.algorithm.clear();
  if (!select_options_.algorithm.empty() && find_algorithm(select_options_.algorithm) == nullptr)
    return fail(Code::invalid_usage, "STRAIT_ALGORITHM=" + select_options_.algorithm +
                                         " names no algorithm. `strait plan --list` prints them");
  STRAIT_ASSIGN(const std::int64_t slice_bytes, environment.integer("STRAIT_SLICE_BYTES"));
  select_options_.slice_bytes = static_cast<std::size_t>(slice_bytes);
  return {};
}

Status Comm::open_transport(const Environment& environment, const Deadline& deadline) {
  const auto& peers = channel_->peers();
  STRAIT_TRY(check_one_host(peers));
  Facts own{{}, usable_cores(), cache_sizes().shared_bytes, process_rates().host};
  randombytes_buf(&own.secret, sizeof own.secret);
  STRAIT_ASSIGN(const auto facts, gather(*channel_, own, deadline));
  // Every rank must choose alike: by the cores of all together and by the smallest cache.
  cpu_set_t union_of_cores = own.cores;
  last_level_cache_bytes_ = own.last_level_cache_bytes;
  for (const Facts& other : facts) {
    CPU_OR(&union_of_cores, &union_of_cores, &other.cores);
    last_level_cache_bytes_ = std::min<std::size_t>(last_level_cache_bytes_, other.last_level_cache_bytes);
  }
  const auto cores = static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&union_of_cores)));
  HostRates rates = facts.front().rates;
  rates.cache_bytes = last_level_cache_bytes_;
  model_ = host_model(ranks_, cores, rates);

  STRAIT_ASSIGN(const std::string wanted, environment.text("STRAIT_TRANSPORT"));
  all_in_one_process_ =
      std::all_of(peers.begin(), peers.end(), [&](const PeerInfo& peer) { return peer.same_process(peers.front()); });
  if (wanted == "loopback" && !all_in_one_process_)
    return fail(Code::unsupported, "STRAIT_TRANSPORT=loopback joins threads of one process only. Use shm or auto");
  if (wanted == "shm") all_in_one_process_ = false;

  Watch::Peers names;
  names.rank = rank_;
  names.oversubscribed = ranks_ > cores;
  names.timeout_ms = options_.timeout_ms;
  for (const PeerInfo& peer : peers) names.names.push_back(peer.describe());
  slots::Geometry geometry;
  geometry.ranks = ranks_;
  std::unique_ptr<slots::SegmentTransport> transport;
  if (all_in_one_process_) {
    const std::string segment(reinterpret_cast<const char*>(&facts[0].secret), sizeof facts[0].secret);
    STRAIT_ASSIGN(transport, loopback::open(segment, geometry, rank_));
    names.pidfds.resize(ranks_);
  } else {
    shm::OpenRequest request{rank_, {}, facts[0].secret, geometry, deadline, [this] { return channel_->check(); }};
    for (const PeerInfo& peer : peers)
      request.ranks.push_back({static_cast<std::uint32_t>(peer.rank), token(peer), peer.network_namespace});
    STRAIT_ASSIGN(shm::Opened opened, shm::open(request));
    transport = std::move(opened.transport);
    names.pidfds = std::move(opened.pidfds);
  }
  std::vector<RankControl*> controls;
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) controls.push_back(&transport->segment().rank_control(peer));
  watch_ = std::make_unique<Watch>(transport->segment().control(), std::move(controls), *transport, std::move(names));
  log_info(static_cast<int>(rank_), "joined " + std::to_string(ranks_) + " ranks through " +
                                        std::string(transport->name()) + ", " + std::to_string(cores) + " cores");
  select_options_.max_slice_bytes = transport->slot_bytes();
  transport_ = std::move(transport);
  return {};
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

Result<std::unique_ptr<Comm>> Comm::split(int color, int key, const CommOptions& options) {
  if (watch_->has_failed()) return tl::unexpected(watch_->sticky().error());
  struct Wish {
    int color;
    int key;
  };
  const Deadline deadline = Deadline::after_ms(options_.init_timeout_ms);
  STRAIT_ASSIGN(const auto wishes, gather(*channel_, Wish{color, key}, deadline));
  std::vector<std::uint32_t> members;
  for (std::uint32_t other = 0; other < ranks_; ++other)
    if (wishes[other].color == color) members.push_back(other);
  std::stable_sort(members.begin(), members.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return wishes[a].key < wishes[b].key; });

  // The first of each color opens the door for its members. All ranks take part in the exchange, also those without.
  std::array<std::byte, unique_id_bytes> own_id{};
  Status opened;
  if (color >= 0 && members.front() == rank_) {
    RootOptions root;
    root.deadline = deadline;
    auto id = create_unique_id(Environment(), std::move(root));
    if (id)
      own_id = id->pack();
    else
      opened = tl::unexpected(id.error());
  }
  STRAIT_ASSIGN(const auto ids, gather(*channel_, own_id, deadline));
  STRAIT_TRY(agree(opened, "start the parts of a split communicator", deadline));
  if (color < 0) return std::unique_ptr<Comm>();
  STRAIT_ASSIGN(const UniqueId id, unpack_unique_id(ids[members.front()]));
  JoinOptions place;
  place.rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
  place.ranks = static_cast<int>(members.size());
  place.wait.deadline = deadline;
  STRAIT_ASSIGN(auto channel, join(id, place));
  return create(std::move(channel), options);
}

Result<std::uint64_t> Comm::register_memory(void* pointer, std::size_t bytes) {
  if (watch_->has_failed()) return tl::unexpected(watch_->sticky().error());
  const Deadline deadline = Deadline::after_ms(options_.init_timeout_ms);
  Status own;
  if (!all_in_one_process_) {
    auto heap = shm::SharedHeap::instance();
    if (!heap || !(*heap)->contains(pointer, bytes))
      own = fail(Code::invalid_argument, "memory to be registered must come from straitMemAlloc");
  }
  STRAIT_TRY(agree(own, "register its memory", deadline));
  registered_[next_handle_] = {static_cast<const std::byte*>(pointer), bytes};
  return next_handle_++;
}

Status Comm::deregister_memory(std::uint64_t handle) {
  if (registered_.erase(handle) == 0)
    return fail(Code::invalid_argument, "this handle was not given by straitCommRegister, or already given back");
  return {};
}

bool Comm::is_registered(const void* pointer, std::size_t bytes) const {
  if (bytes == 0) return true;  // a rank that has no such buffer must not stand against those that have
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  return std::any_of(registered_.begin(), registered_.end(), [&](const auto& entry) {
    const auto range = reinterpret_cast<std::uintptr_t>(entry.second.first);
    return begin >= range && begin + bytes <= range + entry.second.second;
  });
}

}  // namespace strait
