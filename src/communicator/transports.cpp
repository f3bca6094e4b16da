#include "communicator/transports.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/log.hpp"
#include "communicator/local_ranks.hpp"
#include "communicator/tcp_model.hpp"
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

Result<std::unique_ptr<Transport>> open_loopback(const TransportRequest& request) {
  slots::Geometry geometry;
  geometry.ranks = ranks_of(request);
  const std::string name(reinterpret_cast<const char*>(&request.secret), sizeof request.secret);
  return loopback::open(name, geometry, rank_of(request));
}

shm::OpenRequest shared_request(const TransportRequest& request) {
  shm::OpenRequest shared;
  shared.rank = rank_of(request);
  shared.ranks = local_ranks(request.channel.peers());
  shared.secret = request.secret;
  shared.geometry.ranks = ranks_of(request);
  shared.deadline = request.deadline;
  shared.check = [&channel = request.channel] { return channel.check(); };
  shared.agree = agreement(request.channel, request.deadline);
  return shared;
}
Result<std::unique_ptr<Transport>> open_shm(const TransportRequest& request) {
  return shm::open(shared_request(request));
}
Result<std::unique_ptr<Transport>> open_shm_file(const TransportRequest& request) {
  return shm::open_file(shared_request(request));
}

Result<std::unique_ptr<Transport>> open_tcp(const TransportRequest& request) {
  const tcp::ByUcx by_ucx = request.ucx == "all"  ? tcp::ByUcx::all
                            : request.ucx == "on" ? tcp::ByUcx::other_hosts
                                                  : tcp::ByUcx::none;
  return tcp::open(request.channel, {}, request.deadline, by_ucx);
}

enum class Reach : std::uint8_t { process, host, any };

struct Entry {
  std::string_view name;
  Reach reach;
  Result<std::unique_ptr<Transport>> (*open)(const TransportRequest&);
  AdaptModel adapt_model;
};
/// Fastest first.
constexpr Entry transports[] = {{"loopback", Reach::process, open_loopback, nullptr},
                                {"shm", Reach::host, open_shm, nullptr},
                                {"shm_file", Reach::host, open_shm_file, nullptr},
                                {"tcp", Reach::any, open_tcp, put_tcp_between}};

Status check_reach(Reach reach, const std::vector<PeerInfo>& peers) {
  const PeerInfo& first = peers.front();
  for (const PeerInfo& peer : peers) {
    if (reach == Reach::process && !peer.same_process(first))
      return fail(Code::unsupported, "it joins threads of one process only");
    if (reach == Reach::host && !peer.same_host(first))
      return fail(Code::unsupported, first.describe() + " and " + peer.describe() + " are on different hosts");
  }
  return {};
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
  for (const Entry& entry : transports) {
    const Status reach = check_reach(entry.reach, request.channel.peers());
    if (request.wanted == "auto" ? !reach : entry.name != request.wanted) continue;
    auto open = reach ? entry.open(request) : tl::unexpected(reach.error());
    // This is not about the transport: a rank has died or given up, perhaps because it lacked what this one could not
    // get either (system_error).
    if (Status known = request.channel.error(); !known)
      return tl::unexpected(!open && open.error().code == Code::system_error ? open.error() : known.error());
    if (open) return OpenTransport{std::move(*open), entry.adapt_model, why};
    const std::string reason = std::string(entry.name) + ": " + open.error().message;
    log_info(request.channel.rank(), "cannot use the transport " + reason);
    code = open.error().code;
    why += (why.empty() ? "" : "; ") + reason;
  }
  if (request.wanted != "auto") return fail(code, "STRAIT_TRANSPORT=" + why + ". auto chooses one that works");
  return fail(code, "no transport joins these ranks. " + why);
}

}  // namespace strait
