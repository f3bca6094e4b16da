#include <sodium.h>

#include <algorithm>
#include <array>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/root_state.hpp"

namespace strait {
namespace {

/// Returns a text that differs for different lists. list_ranks() shortens long lists, so these get a digest.
std::string identify(const std::vector<int>& ranks) {
  if (ranks.size() <= most_listed_ranges) return list_ranks(ranks);
  std::string all;
  for (const int rank : ranks) all += std::to_string(rank) + " ";
  const Key digest = derive_key({}, all);
  constexpr std::size_t shown_bytes = 8;
  std::array<char, 2 * shown_bytes + 1> text{};
  sodium_bin2hex(text.data(), text.size(), reinterpret_cast<const unsigned char*>(digest.data()), shown_bytes);
  return list_ranks(ranks) + " (digest " + text.data() + ")";
}

}  // namespace

Result<std::unique_ptr<Channel>> rejoin(const Channel& channel, const std::vector<int>& remaining,
                                        JoinOptions options) {
  const auto own = std::find(remaining.begin(), remaining.end(), channel.rank());
  const bool are_ranks =
      std::adjacent_find(remaining.begin(), remaining.end(), std::greater_equal<>()) == remaining.end() &&
      !remaining.empty() && remaining.front() >= 0 && remaining.back() < channel.ranks();
  if (own == remaining.end() || !are_ranks)
    return fail(Code::internal_error, "a rank that goes on with others is not one of them");
  if (channel.ranks() == 1) return Channel::alone(channel.self());
  const PeerInfo& first = channel.peers()[static_cast<std::size_t>(remaining.front())];
  Bytes secret(channel.key().begin(), channel.key().end());
  secret.insert(secret.end(), channel.session().begin(), channel.session().end());
  const UniqueId id{first.rejoin_address, derive_key(secret, "rejoin"), true};
  options.rank = static_cast<int>(own - remaining.begin());
  options.ranks = static_cast<int>(remaining.size());
  const Setting list{"the list of ranks that go on", identify(remaining)};
  options.settings.push_back(list);
  options.awaits_next_root = true;
  options.known_as = remaining;
  options.call = "shrink of the communicator";
  if (options.rank == 0) {
    RootOptions root;
    root.deadline = options.wait.deadline;
    root.ranks = options.ranks;
    root.remind_after_ms = options.remind_after_ms;
    root.rank_set = list;
    root.known_as = remaining;
    root.reserved = &channel.rejoin_socket();
    for (const int rank : remaining) root.names.push_back(channel.peers()[static_cast<std::size_t>(rank)].describe());
    STRAIT_TRY(start_root(id, std::move(root)));
  }
  auto joined = join(id, options);
  if (joined) return joined;
  Error error = std::move(joined).error();
  error.message = "ranks " + list_ranks(remaining) + " cannot go on by themselves, which " + first.describe() +
                  " has to begin: " + error.message;
  return tl::unexpected(std::move(error));
}

}  // namespace strait
