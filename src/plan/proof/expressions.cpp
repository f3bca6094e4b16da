#include "plan/proof/expressions.hpp"

#include <utility>

namespace strait::proof {

Expressions::Id Expressions::intern(std::vector<std::uint32_t> key, Node node) {
  const auto [entry, is_new] = ids_.try_emplace(std::move(key), static_cast<Id>(nodes_.size()));
  if (is_new) nodes_.push_back(std::move(node));
  return entry->second;
}

Expressions::Id Expressions::contribution(const Origin& origin) {
  Node node{.origin = origin};
  node.ranks.set(origin.rank);
  return intern({0, origin.operation, origin.rank, origin.chunk, origin.slice}, std::move(node));
}

Expressions::Id Expressions::sum(std::span<const Id> terms) {
  Node node{.origin = nodes_[terms.front()].origin, .terms = {terms.begin(), terms.end()}};
  std::vector<std::uint32_t> key{1};
  key.insert(key.end(), terms.begin(), terms.end());
  for (const Id term : terms) node.ranks |= nodes_[term].ranks;
  return intern(std::move(key), std::move(node));
}

std::string Expressions::text(Id id) const {
  if (id == unwritten) return "nothing";
  const Node& node = nodes_[id];
  if (node.terms.empty())
    return "rank " + std::to_string(node.origin.rank) + "'s input[" + std::to_string(node.origin.chunk) + "] slice " +
           std::to_string(node.origin.slice);
  std::string text = "(";
  for (const Id term : node.terms) {
    if (text.size() > 1) text += " + ";
    const bool leaf = nodes_[term].terms.empty();
    text += leaf ? "r" + std::to_string(nodes_[term].origin.rank) : this->text(term);
  }
  return text + ")";
}

}  // namespace strait::proof
