#include <algorithm>
#include <map>

#include "builder.hpp"

/// Two levels, for islands of any sizes. For every chunk one member of each island, its leader, exchanges data with the
/// other islands on behalf of all members. So each island sends and receives a chunk once, however many members it has.
/// Leaders differ from chunk to chunk. Adding within islands, adding across islands and spreading results have separate
/// lanes. A sum is rounded once more than in a direct plan.
namespace strait::algorithms {
namespace {

constexpr std::uint16_t to_leader = 0;  ///< contributions, within the island
constexpr std::uint16_t partials = 1;   ///< sums of islands, between islands
constexpr std::uint16_t results = 2;    ///< results, between islands
constexpr std::uint16_t from_leader = 3;
constexpr std::uint16_t from_home = 4;  ///< from the home of a chunk, within its island

/// Signals from a rank to itself.
constexpr std::uint16_t island_added = 0;
constexpr std::uint16_t all_added = 1;

/// The limit exists because every leader has a link to every rank outside its island. Larger machines have equal
/// islands, and use `hierarchical`.
constexpr std::uint32_t most_ranks = 32;

std::vector<Ranks> islands_of(const PlanRequest& request) {
  std::map<std::uint32_t, Ranks> islands;
  for (std::uint32_t rank = 0; rank < request.ranks; ++rank)
    islands[request.shape.levels.front()[rank]].push_back(rank);
  std::vector<Ranks> members;
  for (auto& [number, ranks] : islands) members.push_back(std::move(ranks));
  return members;
}

bool supports(const PlanRequest& request) {
  using enum Collective;
  if (!is_one_of({all_reduce, all_gather, reduce_scatter, broadcast}, request.collective)) return false;
  if (request.shape.levels.empty() || request.ranks > most_ranks) return false;
  const std::size_t islands = islands_of(request).size();
  return islands > 1 && islands < request.ranks;
}

class MultiLeader {
 public:
  MultiLeader(const PlanRequest& request, std::uint32_t rank)
      : request_(request), rank_(rank), islands_(islands_of(request)), p_(request, rank, chunks()) {
    for (const Ranks& island : islands_)
      for (const std::uint32_t member : island) {
        if (member == rank) mine_ = &island;
      }
  }

  RankPlan build() {
    if (is_reduction(request_.collective)) {
      add_in_island();
      p_.next_lane();
      add_all();
    } else {
      send_own();
    }
    p_.next_lane();
    if (request_.collective != Collective::reduce_scatter) spread_results();
    return p_.finish();
  }

 private:
  /// Returns the number of chunks in a block. Chunks are the ranks' blocks, or shares of one buffer.
  std::uint32_t chunks() const {
    const bool blocks =
        request_.collective == Collective::all_gather || request_.collective == Collective::reduce_scatter;
    return blocks ? 1 : request_.ranks;
  }

  /// Returns the rank that first has the result of a chunk: the one that adds it up, or the owner of the data.
  std::uint32_t home(std::uint32_t chunk) const {
    return request_.collective == Collective::broadcast ? request_.root : chunk;
  }

  std::uint32_t leader(const Ranks& island, std::uint32_t chunk) const {
    const bool has_home = std::find(island.begin(), island.end(), home(chunk)) != island.end();
    return has_home ? home(chunk) : island[chunk % island.size()];
  }

  /// Returns the leaders of a chunk in the islands that do not contain its home.
  Ranks leaders(std::uint32_t chunk) const {
    Ranks leaders;
    for (const Ranks& island : islands_)
      if (leader(island, chunk) != home(chunk)) leaders.push_back(leader(island, chunk));
    return leaders;
  }

  /// Returns the members of this rank's island except `excluded`.
  Ranks neighbours(std::uint32_t excluded) const {
    Ranks neighbours = *mine_;
    std::erase(neighbours, excluded);
    return neighbours;
  }

  /// Returns all chunks in the order in which all members of the island process them. Islands start at different
  /// chunks, unless all chunks come from one rank.
  Ranks order() const {
    Ranks order = p_.everyone();
    if (request_.collective == Collective::broadcast) return order;
    std::rotate(order.begin(), order.begin() + mine_->front(), order.end());
    return order;
  }

  bool alone() const { return mine_->size() == 1; }
  /// Returns where the result of the chunk that this rank adds up belongs.
  Operand own_sum() const { return output(request_.collective == Collective::reduce_scatter ? 0 : rank_); }

  /// Returns the contributions of this island to a chunk; this rank's own one is read from its input.
  Operands island_inputs(std::uint32_t chunk) {
    Operands sources;
    for (const std::uint32_t member : *mine_)
      sources.push_back(member == rank_ ? input(chunk) : p_.receive(member, input(chunk), to_leader));
    return sources;
  }

  /// Adds within the island. The island's sum of this rank's own chunk waits in the output for those of other islands.
  void add_in_island() {
    for (const std::uint32_t chunk : order()) {
      const std::uint32_t leads = leader(*mine_, chunk);
      if (leads != rank_) {
        p_.copy(input(chunk), p_.send({leads}, input(chunk), to_leader));
      } else if (chunk != rank_) {
        const Operands leaves = p_.send({chunk}, input(chunk), partials);
        if (alone())
          p_.copy(input(chunk), leaves);
        else
          p_.reduce_partial(island_inputs(chunk), leaves);
      } else if (!alone()) {
        p_.reduce_partial(island_inputs(chunk), {own_sum()});
        p_.signal({rank_}, island_added);
      }
    }
  }

  void add_all() {
    Operands sources;
    for (const Ranks& island : islands_) {
      if (&island != mine_)
        sources.push_back(p_.receive(leader(island, rank_), input(rank_), partials));
      else
        sources.push_back(alone() ? input(rank_) : own_sum());
    }
    if (!alone()) p_.wait({rank_}, island_added);
    Operands destinations{own_sum()};
    if (request_.collective == Collective::all_reduce)
      destinations = joined({destinations, p_.send(leaders(rank_), own_sum(), results)});
    p_.reduce_final(sources, destinations);
    if (request_.collective == Collective::all_reduce && !alone()) p_.signal({rank_}, all_added);
  }

  /// All-gather and broadcast: sends this rank's own data to its neighbours and to the leaders of other islands.
  void send_own() {
    const bool gathers = request_.collective == Collective::all_gather;
    for (std::uint32_t chunk = 0; chunk < request_.ranks; ++chunk) {
      if (home(chunk) != rank_) continue;
      p_.copy(input(gathers ? 0 : chunk), joined({{output(chunk)},
                                                  p_.send(leaders(chunk), output(chunk), results),
                                                  p_.send(neighbours(rank_), output(chunk), from_home)}));
    }
  }

  void spread_results() {
    for (const std::uint32_t chunk : order()) {
      const std::uint32_t leads = leader(*mine_, chunk);
      const std::uint16_t tag = leads == home(chunk) ? from_home : from_leader;
      if (leads != rank_) {
        p_.copy(p_.receive(leads, neighbours(leads), output(chunk), tag), output(chunk));
      } else if (leads != home(chunk)) {
        const Operands destinations = joined({{output(chunk)}, p_.send(neighbours(rank_), output(chunk), tag)});
        p_.copy(p_.receive(home(chunk), leaders(chunk), output(chunk), results), destinations);
      } else if (request_.collective == Collective::all_reduce && !alone()) {
        p_.wait({rank_}, all_added);
        p_.copy(output(chunk), p_.send(neighbours(rank_), output(chunk), tag));
      }
    }
  }

  const PlanRequest& request_;
  std::uint32_t rank_;
  std::vector<Ranks> islands_;
  const Ranks* mine_ = nullptr;
  PlanBuilder p_;
};

RankPlan build(const PlanRequest& request, std::uint32_t rank) { return MultiLeader(request, rank).build(); }

}  // namespace

extern constinit const Algorithm multi_leader{"multi_leader", "Kandalla et al. 2009, with sums", supports, build};

}  // namespace strait::algorithms
