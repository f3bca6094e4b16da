#include "bootstrap/root_state.hpp"

#include <algorithm>
#include <set>

#include "base/list_names.hpp"

namespace strait {
namespace {

int known_as(const JoinMessage& message) { return message.known_as < 0 ? message.rank : message.known_as; }

}  // namespace

std::string list_ranks(const std::vector<int>& ranks, int most_ranges) {
  std::string text;
  int ranges = 0;
  for (std::size_t first = 0; first < ranks.size();) {
    if (++ranges > most_ranges) return text + " and " + std::to_string(ranks.size() - first) + " more";
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string describe_process(const JoinMessage& message) {
  return "(host " + message.host_name + ", pid " + std::to_string(message.pid) + ")";
}

std::string describe_rank(const JoinMessage& message) {
  return "rank " + std::to_string(known_as(message)) + " " + describe_process(message);
}

std::string describe_unready(const std::vector<UnreadyRank>& ranks) {
  std::vector<std::string> silent, short_of, waiting;
  for (const UnreadyRank& rank : ranks) {
    const std::string told = rank.name + (rank.account ? " " + rank.account->message : "");
    if (rank.is_silent)
      silent.push_back(rank.name);
    else
      (rank.account && rank.account->code == Code::system_error ? short_of : waiting).push_back(told);
  }
  if (!silent.empty())
    return "nothing is heard from " + list_names(silent) +
           (silent.size() == 1 ? ": its process is" : ": their processes are") +
           " stopped or hanging, or the host does not answer";
  if (!short_of.empty()) return list_names(short_of);
  return list_names(waiting) +
         ". All of them answer: a firewall may block connections between their hosts; STRAIT_SOCKET_IFNAME chooses the "
         "interface on which ranks listen";
}

Status Roster::add(JoinMessage message) {
  const std::string who = describe_rank(message);
  if (message.ranks > most_ranks)
    return fail(Code::invalid_argument, who + " is one of " + std::to_string(message.ranks) + " ranks; there are " +
                                            std::to_string(most_ranks) + " at most");
  if (message.ranks < 1 || message.rank < 0 || message.rank >= message.ranks)
    return fail(Code::invalid_argument,
                who + " is out of range: ranks go from 0 to " + std::to_string(message.ranks - 1));
  if (!members_.empty() && message.ranks != ranks_) {
    const JoinMessage& first = members_.begin()->second;
    return fail(Code::mismatch, "the ranks disagree on how many they are: " + describe_rank(first) + " says " +
                                    std::to_string(ranks_) + ", " + who + " says " + std::to_string(message.ranks) +
                                    ". Give the same number on all ranks");
  }
  if (auto it = members_.find(message.rank); it != members_.end())
    return fail(Code::invalid_argument, "rank " + std::to_string(known_as(message)) + " joined twice: from " +
                                            describe_process(it->second) + " and from " + describe_process(message) +
                                            ". Give each rank its own number, and each communicator its own unique id");
  const std::scoped_lock lock(mutex_);
  ranks_ = message.ranks;
  int rank = message.rank;
  members_.emplace(rank, std::move(message));
  return {};
}

int Roster::joined() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int>(members_.size());
}

std::vector<int> Roster::missing() const {
  const std::scoped_lock lock(mutex_);
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank)
    if (!members_.contains(rank)) missing.push_back(rank);
  return missing;
}

std::vector<std::string> Roster::missing_names(const std::vector<std::string>& names) const {
  std::vector<std::string> missing_ones;
  for (const int rank : missing())
    if (static_cast<std::size_t>(rank) < names.size()) missing_ones.push_back(names[static_cast<std::size_t>(rank)]);
  return missing_ones;
}

std::string Roster::describe_missing(const std::string& waited, const std::vector<std::string>& names,
                                     const std::string& shortage) const {
  constexpr int most_ranges = 4;
  const auto absent = missing();
  const bool is_one = absent.size() == 1;
  const std::string who = names.empty() ? (is_one ? "rank " : "ranks ") + list_ranks(absent, most_ranges)
                                        : list_names(missing_names(names));
  return std::to_string(members_.size()) + " of " + std::to_string(ranks_) + " ranks have joined after " + waited +
         ": " + who + (is_one ? " is" : " are") + " missing. " + (shortage.empty() ? "" : shortage + ". ") +
         (names.empty() ? std::string("Start ") + (is_one ? "it" : "them") + ", or look at " +
                              (is_one ? "its" : "their") + " output"
                        : must_call_shrink);
}

Error Roster::missing_at_deadline(const SocketAddress& root, const std::vector<std::string>& names,
                                  const std::string& shortage, const std::string& drops) const {
  const std::string first = shortage.empty() ? "" : shortage + ". ";
  if (!names.empty() && ranks_ > 0)
    return {Code::timeout, "these did not join by the deadline: " + list_names(missing_names(names)) + ". " + first +
                               must_call_shrink +
                               ". Put ranks that cannot, because they have died or hang, on that "
                               "list, too; or allow more time by STRAIT_INIT_TIMEOUT_MS" +
                               drops};
  const std::string who = ranks_ == 0 ? "no rank joined at " + root.to_string() + " by the deadline"
                                      : "of " + std::to_string(ranks_) + " ranks these did not join at " +
                                            root.to_string() + " by the deadline: " + list_ranks(missing());
  return {Code::timeout, who + ". " + first +
                             "Check that they run and see their own errors; that they have the unique id of this job; "
                             "that no firewall blocks that address, else choose another interface by "
                             "STRAIT_SOCKET_IFNAME; or allow more time by STRAIT_INIT_TIMEOUT_MS" +
                             drops};
}

Status Roster::compare_settings() const {
  // Setting -> value -> the ranks that have it. A setting that a rank does not know also counts as a difference.
  std::map<std::string, std::map<std::string, std::vector<int>>> seen;
  for (const auto& [rank, message] : members_)
    for (const Setting& setting : message.settings) seen[setting.name]["\"" + setting.value + "\""].push_back(rank);
  std::string differences;
  for (auto& [name, values] : seen) {
    std::set<int> known;
    for (const auto& [value, ranks] : values) known.insert(ranks.begin(), ranks.end());
    for (int rank = 0; rank < ranks_; ++rank)
      if (!known.contains(rank)) values["nothing"].push_back(rank);
    if (values.size() < 2) continue;
    differences += (differences.empty() ? "" : "; ") + name + " is ";
    bool first = true;
    for (const auto& [value, ranks] : values) {
      std::vector<int> numbers;
      for (const int rank : ranks) numbers.push_back(known_as(members_.at(rank)));
      differences += (first ? "" : ", ") + value + (ranks.size() == 1 ? " on rank " : " on ranks ") +
                     list_ranks(numbers) + " " + describe_process(members_.at(ranks.front()));
      first = false;
    }
  }
  if (differences.empty()) return {};
  return fail(Code::mismatch,
              "the ranks run with different settings: " + differences + ". Make them equal on all ranks");
}

}  // namespace strait
