#include <bit>
#include <optional>

#include "builder.hpp"

/// Two complementary binary trees, each for one half of the data: a rank that is an inner node of one tree is a leaf of
/// the other, so every rank's links carry the same load. The root of the call is above both trees. Sums are rounded at
/// every hop (elements travel, not accumulators); children are added in order of their places in the tree.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  return request.collective == Collective::all_reduce || request.collective == Collective::broadcast ||
         request.collective == Collective::reduce;
}

/// One of the two trees, as seen by a rank. Places 1..n-1 are numbered in order (left subtree, node, right subtree).
/// Place 0 is the root of the call.
class Tree {
 public:
  Tree(const PlanRequest& request, std::uint32_t rank, std::uint32_t which) : request_(request), which_(which) {
    const std::uint32_t mine = place_of(rank);
    if (mine != 0) parent_ = parent_place(mine);
    // The distance to a parent is a power of two. Children are listed in order of their places.
    std::uint32_t bit = std::bit_ceil(request.ranks);
    for (; bit > 0; bit /= 2)
      if (mine > bit && parent_place(mine - bit) == mine) children_.push_back(rank_at(mine - bit));
    for (bit = 1; mine + bit < request.ranks; bit *= 2)
      if (parent_place(mine + bit) == mine) children_.push_back(rank_at(mine + bit));
  }

  std::optional<std::uint32_t> parent() const { return parent_ ? std::optional(rank_at(*parent_)) : std::nullopt; }
  const Ranks& children() const { return children_; }

 private:
  /// Returns a rank's place. The second tree is the first one mirrored, or shifted if mirroring would map leaves to
  /// leaves.
  std::uint32_t place_of(std::uint32_t rank) const {
    const std::uint32_t last = request_.ranks - 1;
    const std::uint32_t distance = (rank + request_.ranks - request_.root) % request_.ranks;
    if (which_ == 0 || distance == 0) return distance;
    return last % 2 == 0 ? last + 1 - distance : distance % last + 1;
  }

  std::uint32_t rank_at(std::uint32_t place) const {
    const std::uint32_t last = request_.ranks - 1;
    std::uint32_t distance = place;
    if (which_ == 1 && place != 0) distance = last % 2 == 0 ? last + 1 - place : (place + last - 2) % last + 1;
    return (distance + request_.root) % request_.ranks;
  }

  std::uint32_t parent_place(std::uint32_t place) const {
    const std::uint32_t bit = place & (~place + 1);
    const std::uint32_t up = (place ^ bit) | (bit << 1);
    return up < request_.ranks ? up : place ^ bit;
  }

  const PlanRequest& request_;
  std::uint32_t which_;
  std::optional<std::uint32_t> parent_;
  Ranks children_;
};

void build_tree(PlanBuilder& p, const PlanRequest& request, std::uint32_t rank, std::uint32_t which) {
  const Tree tree(request, rank, which);
  const auto up = static_cast<std::uint16_t>(2 * which);
  const auto down = static_cast<std::uint16_t>(2 * which + 1);
  Operands results{output(which)};
  if (request.collective != Collective::reduce)
    results = joined({results, p.send(tree.children(), output(which), down)});
  if (is_reduction(request.collective)) {
    Operands sources{input(which)};
    for (const std::uint32_t child : tree.children()) sources.push_back(p.receive(child, input(which), up));
    if (!tree.parent())
      p.reduce_final(sources, results);
    else if (tree.children().empty())
      p.copy(input(which), p.send({*tree.parent()}, input(which), up));
    else
      p.reduce_partial(sources, p.send({*tree.parent()}, input(which), up));
  } else if (!tree.parent()) {
    p.copy(input(which), results);
  }
  if (request.collective == Collective::reduce || !tree.parent()) return;
  p.next_lane();
  const Tree above(request, *tree.parent(), which);
  p.copy(p.receive(*tree.parent(), above.children(), output(which), down), results);
}

RankPlan build(const PlanRequest& request, std::uint32_t rank) {
  PlanBuilder p(request, rank, 2);
  build_tree(p, request, rank, 0);
  p.next_lane();
  build_tree(p, request, rank, 1);
  return p.finish();
}

}  // namespace

extern constinit const Algorithm tree{"tree", "Sanders, Speck and Traeff 2009, Two-tree algorithms", supports, build};

}  // namespace strait::algorithms
