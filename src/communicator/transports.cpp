#include "communicator/transports.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"
#include "communicator/local_ranks.hpp"
#include "transports/loopback/loopback.hpp"
#include "transports/shm/shm.hpp"
#include "transports/tcp/tcp.hpp"

namespace strait {
namespace {

std::uint32_t rank_of(const TransportRequest& request) { return static_cast<std::uint32_t>(request.channel.rank()); }
std::uint32_t ranks_of(const TransportRequest& request) { return static_cast<std::uint32_t>(request.channel.ranks()); }

/// Encodes a rank's status for the others: "", or its code and message.
std::string told(const Status& status) {
  return status ? "" : std::to_string(static_cast<int>(status.error().code)) + " " + status.error().message;
}
Status heard(std::string_view text, const PeerInfo& from) {
  if (text.empty()) return {};
  const std::size_t space = std::min(text.find(' '), text.size() - 1);
  const auto code = static_cast<Code>(std::atoi(std::string(text.substr(0, space)).c_str()));
  return fail(code, from.describe() + ": " + std::string(text.substr(space + 1)));
}

OpenTransport over_segment(std::unique_ptr<slots::SegmentTransport> transport) {
  OpenTransport open;
  const slots::Segment& segment = transport->segment();
  open.control = &segment.control();
  for (std::uint32_t rank = 0; rank < segment.geometry().ranks; ++rank)
    open.controls.push_back(&segment.rank_control(rank));
  open.transport = std::move(transport);
  return open;
}

Result<OpenTransport> open_loopback(const TransportRequest& request) {
  for (const PeerInfo& peer : request.channel.peers())
    if (!peer.same_process(request.channel.peers().front()))
      return fail(Code::unsupported, "it joins threads of one process only");
  slots::Geometry geometry;
  geometry.ranks = ranks_of(request);
  const std::string name(reinterpret_cast<const char*>(&request.secret), sizeof request.secret);
  STRAIT_ASSIGN(auto transport, loopback::open(name, geometry, rank_of(request)));
  return over_segment(std::move(transport));
}

using OpenShared = Result<shm::Opened> (*)(const shm::OpenRequest&);
Result<OpenTransport> open_shared(const TransportRequest& request, OpenShared open) {
  const auto& peers = request.channel.peers();
  shm::OpenRequest shared;
  for (const PeerInfo& peer : peers) {
    if (!peer.same_host(peers.front()))
      return fail(Code::unsupported, peers.front().describe() + " and " + peer.describe() + " are on different hosts");
  }
  shared.rank = rank_of(request);
  shared.ranks = local_ranks(peers);
  shared.secret = request.secret;
  shared.geometry.ranks = ranks_of(request);
  shared.deadline = request.deadline;
  shared.check = [&channel = request.channel] { return channel.check(); };
  shared.agree = agreement(request.channel, request.deadline);
  STRAIT_ASSIGN(shm::Opened opened, open(shared));
  OpenTransport result = over_segment(std::move(opened.transport));
  result.has_died = [liveness = opened.liveness](std::uint32_t rank) { return liveness->has_died(rank); };
  result.cause_of_death = [](std::uint32_t) {
    return "whose process has died, or become another program (exec). See that rank's output and the kernel log for "
           "why";
  };
  return result;
}
Result<OpenTransport> open_shm(const TransportRequest& request) { return open_shared(request, shm::open); }
Result<OpenTransport> open_shm_file(const TransportRequest& request) { return open_shared(request, shm::open_file); }

Result<OpenTransport> open_tcp(const TransportRequest& request) {
  const tcp::ByUcx by_ucx = request.ucx == "all"  ? tcp::ByUcx::all
                            : request.ucx == "on" ? tcp::ByUcx::other_hosts
                                                  : tcp::ByUcx::none;
  STRAIT_ASSIGN(auto transport, tcp::open(request.channel, {}, request.deadline, by_ucx));
  tcp::Engine& engine = transport->engine();
  OpenTransport open;
  open.control = &engine.control();
  for (std::uint32_t rank = 0; rank < ranks_of(request); ++rank) open.controls.push_back(&engine.rank_control(rank));
  open.has_died = [&engine](std::uint32_t rank) { return engine.has_died(rank); };
  open.cause_of_death = [&engine](std::uint32_t rank) {
    return "whose connection has ended (" + engine.end_reason(rank) +
           "): its process died, or its host or the network between failed. See that rank's output for why";
  };
  open.transport = std::move(transport);
  return open;
}

struct Entry {
  std::string_view name;
  Result<OpenTransport> (*open)(const TransportRequest&);
};
constexpr Entry transports[] = {
    {"loopback", open_loopback}, {"shm", open_shm}, {"shm_file", open_shm_file}, {"tcp", open_tcp}};

/// Returns the transports that these ranks can be expected to use, fastest first.
std::vector<Entry> candidates(const TransportRequest& request) {
  const auto& peers = request.channel.peers();
  const auto all = [&](auto same) {
    return std::all_of(peers.begin(), peers.end(), [&](const PeerInfo& peer) { return (peer.*same)(peers.front()); });
  };
  std::vector<Entry> chosen;
  for (const Entry& entry : transports) {
    const bool is_needless = entry.name == "loopback" && !all(&PeerInfo::same_process);
    const bool is_beyond = entry.name != "tcp" && !all(&PeerInfo::same_host);
    if (request.wanted == "auto" ? !is_needless && !is_beyond : entry.name == request.wanted) chosen.push_back(entry);
  }
  return chosen;
}

}  // namespace

shm::Agree agreement(Channel& channel, const Deadline& deadline) {
  const auto verdict = std::make_shared<Status>();  // shared by copies of the function
  return [&channel, deadline, verdict](const Status& own) {
    if (!*verdict) return *verdict;
    const std::string text = told(own);
    const auto all = channel.all_gather(as_byte_span(text), {deadline, nullptr});
    if (!all) *verdict = tl::unexpected(all.error());
    for (std::size_t rank = 0; all && rank < all->size(); ++rank) {
      const Bytes& bytes = (*all)[rank];
      Status of_rank = heard({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, channel.peers()[rank]);
      // That another rank has failed (remote_error) is not the reason; the error of that rank itself is.
      const bool is_second_hand = !*verdict && verdict->error().code == Code::remote_error;
      if (!of_rank && (*verdict || is_second_hand)) *verdict = std::move(of_rank);
    }
    return *verdict;
  };
}

Result<OpenTransport> open_transport(const TransportRequest& request) {
  std::string why;
  Code code = Code::unsupported;
  for (const Entry& entry : candidates(request)) {
    auto open = entry.open(request);
    // This is not about the transport: a rank has died or given up, perhaps because it lacked what this one could not
    // get either (system_error).
    if (Status known = request.channel.error(); !known)
      return tl::unexpected(!open && open.error().code == Code::system_error ? open.error() : known.error());
    if (open) {
      open->why = why;
      return open;
    }
    const std::string reason = std::string(entry.name) + ": " + open.error().message;
    log_info(request.channel.rank(), "cannot use the transport " + reason);
    code = open.error().code;
    why += (why.empty() ? "" : "; ") + reason;
  }
  if (request.wanted != "auto") return fail(code, "STRAIT_TRANSPORT=" + why + ". auto chooses one that works");
  return fail(code, "no transport joins these ranks. " + why);
}

}  // namespace strait
