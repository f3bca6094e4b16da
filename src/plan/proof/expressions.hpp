#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace strait::proof {

inline constexpr std::uint32_t max_ranks = 256;
using RankSet = std::bitset<max_ranks>;

/// One slice of one chunk of a rank's input to one operation.
struct Origin {
  std::uint32_t operation = 0;
  std::uint32_t rank = 0;
  std::uint32_t chunk = 0;  ///< of the rank's input
  std::uint32_t slice = 0;
};

/// Symbolic values. Equal values have equal ids, so two slices contain the same bits if their ids are equal.
class Expressions {
 public:
  using Id = std::uint32_t;
  static constexpr Id unwritten = 0;

  Expressions() { nodes_.emplace_back(); }

  Id contribution(const Origin& origin);
  /// Returns the sum of the terms in this order, rounded once.
  Id sum(std::span<const Id> terms);

  bool is_contribution(Id id) const { return nodes_[id].terms.empty(); }
  const RankSet& ranks(Id id) const { return nodes_[id].ranks; }
  /// Returns the origin of a contribution, or that of the first term of a sum.
  const Origin& origin(Id id) const { return nodes_[id].origin; }
  std::string text(Id id) const;

 private:
  struct Node {
    Origin origin;
    RankSet ranks = {};
    std::vector<Id> terms = {};
  };
  Id intern(std::vector<std::uint32_t> key, Node node);

  std::vector<Node> nodes_;
  std::map<std::vector<std::uint32_t>, Id> ids_;
};

}  // namespace strait::proof
