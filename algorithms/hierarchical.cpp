#include "builder.hpp"
#include "grid.hpp"

/// Nested islands as a grid: every stage communicates along one dimension. Sums go from the finest islands outwards, so
/// that the slowest links carry each sum once; copies go inwards. A sum is rounded once per level.
namespace strait::algorithms {
namespace {

bool supports(const PlanRequest& request) {
  using enum Collective;
  return is_one_of({all_reduce, all_gather, reduce_scatter, broadcast, all_to_all}, request.collective) &&
         request.ranks > 1 && grid_of(request).sizes.size() > 1;
}

class Hierarchy {
 public:
  Hierarchy(const PlanRequest& request, std::uint32_t rank)
      : request_(request),
        rank_(rank),
        grid_(grid_of(request)),
        me_(grid_.point_of[rank]),
        blocks_(request.collective != Collective::all_reduce),
        p_(request, rank, blocks_ ? 1 : request.ranks) {}

  RankPlan build() {
    const std::size_t dimensions = grid_.sizes.size();
    switch (request_.collective) {
      case Collective::broadcast:
        broadcast();
        break;
      case Collective::all_to_all:
        all_to_all();
        break;
      default:
        if (request_.collective == Collective::all_gather) p_.copy(input(0), output(rank_));
        if (is_reduction(request_.collective))
          for (std::size_t d = 0; d < dimensions; ++d) reduce_scatter_along(d);
        if (request_.collective != Collective::reduce_scatter)
          for (std::size_t d = dimensions; d-- > 0;) all_gather_along(d);
    }
    return p_.finish();
  }

 private:
  static constexpr std::uint16_t sums = 0;
  static constexpr std::uint16_t copies = 1;

  /// Returns the chunk of a point. If chunks are blocks, it is the block of the point's rank.
  std::uint32_t chunk_of(std::uint32_t point) const { return blocks_ ? grid_.rank_of[point] : point; }

  /// Returns whether two points are equal in the dimensions from `begin` to `end` - 1.
  bool agree(std::uint32_t a, std::uint32_t b, std::size_t begin, std::size_t end) const {
    for (std::size_t d = begin; d < end; ++d)
      if (grid_.coordinate(a, d) != grid_.coordinate(b, d)) return false;
    return true;
  }

  /// Returns the other points of a point's row along a dimension, starting with the one behind it.
  std::vector<std::uint32_t> row(std::uint32_t point, std::size_t dimension) const {
    std::vector<std::uint32_t> row;
    for (std::uint32_t k = 1; k < grid_.sizes[dimension]; ++k)
      row.push_back(grid_.moved(point, dimension, (grid_.coordinate(point, dimension) + k) % grid_.sizes[dimension]));
    return row;
  }

  Ranks row_ranks(std::uint32_t point, std::size_t dimension) const {
    Ranks ranks;
    for (const std::uint32_t other : row(point, dimension)) ranks.push_back(grid_.rank_of[other]);
    return ranks;
  }

  void reduce_scatter_along(std::size_t d) {
    const bool first = d == 0;
    const bool last = d + 1 == grid_.sizes.size();
    const auto partial = [&](std::uint32_t chunk) { return blocks_ ? scratch(chunk) : output(chunk); };
    for (std::uint32_t point = 0; point < request_.ranks; ++point) {
      // Only chunks that stay here; their rows along d have those sent to others.
      if (!agree(point, me_, 0, d + 1)) continue;
      for (const std::uint32_t other : row(me_, d)) {
        const std::uint32_t theirs = chunk_of(grid_.moved(point, d, grid_.coordinate(other, d)));
        p_.copy(first ? input(theirs) : partial(theirs), p_.send({grid_.rank_of[other]}, input(theirs), sums));
      }
      const std::uint32_t mine = chunk_of(point);
      Operands sources;
      for (std::uint32_t k = 0; k < grid_.sizes[d]; ++k) {
        const std::uint32_t from = grid_.moved(me_, d, k);
        Operand source = first ? input(mine) : partial(mine);
        if (from != me_) source = p_.receive(grid_.rank_of[from], input(mine), sums);
        sources.push_back(source);
      }
      if (last)
        p_.reduce_final(sources, {output(blocks_ ? 0 : mine)});
      else
        p_.reduce_partial(sources, {partial(mine)});
    }
  }

  void all_gather_along(std::size_t d) {
    for (std::uint32_t point = 0; point < request_.ranks; ++point) {
      if (!agree(point, me_, 0, d + 1)) continue;
      p_.copy(output(chunk_of(point)), p_.send(row_ranks(me_, d), output(chunk_of(point)), copies));
      for (const std::uint32_t other : row(me_, d)) {
        const std::uint32_t theirs = chunk_of(grid_.moved(point, d, grid_.coordinate(other, d)));
        p_.copy(p_.receive(grid_.rank_of[other], row_ranks(other, d), output(theirs), copies), output(theirs));
      }
    }
  }

  /// A rank receives along the first dimension in which it differs from the root, and sends along the earlier ones.
  void broadcast() {
    const std::uint32_t root = grid_.point_of[request_.root];
    std::size_t heard = 0;
    while (heard < grid_.sizes.size() && agree(me_, root, heard, heard + 1)) ++heard;
    Operands destinations{output(0)};
    for (std::size_t d = heard; d-- > 0;)
      destinations = joined({destinations, p_.send(row_ranks(me_, d), output(0), copies)});
    if (me_ == root) {
      p_.copy(input(0), destinations);
      return;
    }
    const std::uint32_t from = grid_.moved(me_, heard, grid_.coordinate(root, heard));
    p_.copy(p_.receive(grid_.rank_of[from], row_ranks(from, heard), output(0), copies), destinations);
  }

  /// Place q first holds the block for point q, and finally the block from point q. Stage d exchanges places along
  /// coordinate d of q. Between the stages blocks are kept in scratch, and in an in-place call also before the first
  /// stage.
  void all_to_all() {
    const std::size_t dimensions = grid_.sizes.size();
    if (!request_.in_place) p_.copy(input(rank_), output(rank_));
    for (std::uint32_t q = 0; request_.in_place && q < request_.ranks; ++q)
      if (q != me_) p_.copy(input(grid_.rank_of[q]), scratch(q));
    for (std::size_t d = 0; d < dimensions; ++d)
      for (std::uint32_t q = 0; q < request_.ranks; ++q) {
        if (!agree(q, me_, d, d + 1)) continue;
        for (const std::uint32_t other : row(me_, d)) {
          const std::uint32_t place = grid_.moved(q, d, grid_.coordinate(other, d));
          const bool unmoved = agree(place, me_, 0, d) && !request_.in_place;
          const Operand region = input(grid_.rank_of[place]);
          p_.copy(unmoved ? region : scratch(place), p_.send({grid_.rank_of[other]}, region));
        }
        for (const std::uint32_t other : row(me_, d)) {
          const std::uint32_t place = grid_.moved(q, d, grid_.coordinate(other, d));
          const Operand arrived = output(grid_.rank_of[place]);
          const bool is_last = agree(place, me_, d + 1, dimensions);
          p_.copy(p_.receive(grid_.rank_of[other], arrived), is_last ? arrived : scratch(place));
        }
      }
  }

  const PlanRequest& request_;
  std::uint32_t rank_;
  Grid grid_;
  std::uint32_t me_;  ///< point of this rank
  bool blocks_;       ///< whether chunks are the ranks' blocks, otherwise shares of one buffer
  PlanBuilder p_;
};

RankPlan build(const PlanRequest& request, std::uint32_t rank) { return Hierarchy(request, rank).build(); }

}  // namespace

extern constinit const Algorithm hierarchical{"hierarchical", "folklore: reduce inside islands first", supports, build};

}  // namespace strait::algorithms
