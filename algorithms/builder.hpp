#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/plan.hpp"
#include "plan/request.hpp"

/// The words in which algorithms are written. An algorithm describes one set of lanes; finish() repeats it for every
/// lane of the request, each on its own share of every chunk.
namespace strait::algorithms {

using Operands = std::vector<Operand>;
using Ranks = std::vector<std::uint32_t>;

inline Operand input(std::uint32_t chunk) { return {.buffer = Buffer::input, .chunk = chunk}; }
inline Operand output(std::uint32_t chunk) { return {.buffer = Buffer::output, .chunk = chunk}; }
inline Operand scratch(std::uint32_t chunk) { return {.buffer = Buffer::scratch, .chunk = chunk}; }

/// For an algorithm's supports().
inline bool is_one_of(std::initializer_list<Collective> served, Collective collective) {
  return std::find(served.begin(), served.end(), collective) != served.end();
}

class PlanBuilder {
 public:
  PlanBuilder(std::string_view algorithm, const PlanRequest& request, std::uint32_t rank,
              std::uint32_t chunks_per_block = 1);

  /// rank + distance, around the circle of ranks; a negative distance goes back.
  std::uint32_t around(std::int64_t distance) const;
  /// Every rank but this one, starting with the next: so that peers are not all served in the same order.
  Ranks others() const;
  /// The readers of a link from `writer` to all others, as receive() wants them: where links have one reader, this
  /// rank.
  Ranks all_readers(std::uint32_t writer) const;
  Ranks everyone() const;  ///< in rank order

  /// How many steps this lane will have: of large plans, growing costs as much memory again.
  void reserve(std::size_t steps) { plan_.lanes.back().steps.reserve(steps); }

  /// The steps that follow go into another lane.
  void next_lane();

  /// `destinations = source`, bit for bit.
  void copy(Operand source, Operands destinations);
  void copy(Operand source, Operand destination) { copy(source, Operands{destination}); }
  /// `destinations = ` the sources combined in this order, some ranks' contributions still missing.
  void reduce_partial(Operands sources, Operands destinations);
  /// The same when the sources hold all contributions.
  void reduce_final(Operands sources, Operands destinations);

  /// Destinations that bring a slice of `region` to all `readers`: one link where the request allows several readers,
  /// else one for each.
  Operands send(Ranks readers, Operand region, std::uint16_t tag = 0);
  /// The source at the other end of `send(readers, ...)` on rank `writer`.
  Operand receive(std::uint32_t writer, Ranks readers, Operand region, std::uint16_t tag = 0);
  /// The same for a link whose only reader is this rank.
  Operand receive(std::uint32_t writer, Operand region, std::uint16_t tag = 0) {
    return receive(writer, {rank_}, region, tag);
  }
  /// `operand` of rank `rank`, in place: local for this rank, else a peer operand.
  Operand at(std::uint32_t rank, Operand operand) const;

  /// The last step adds one to the signal (tag) to each of these ranks.
  void signal(const Ranks& to, std::uint16_t tag);
  /// The next step first takes one of the signal (tag) from each of these ranks.
  void wait(const Ranks& from, std::uint16_t tag);

  RankPlan finish();

 private:
  void add(Step step);
  void flush_waits();
  std::uint16_t link(LinkEnd end);
  std::uint16_t signal_end(SignalEnd end);

  RankPlan plan_;
  std::uint32_t rank_;
  std::uint32_t ranks_;
  std::uint32_t lanes_;
  bool multicast_;
  std::vector<std::uint16_t> pending_waits_;
  std::unordered_multimap<std::uint64_t, std::uint16_t> link_places_;    ///< by hash
  std::unordered_multimap<std::uint64_t, std::uint16_t> signal_places_;  ///< likewise
};

/// The numerics of algorithms that pass on partial sums: where nothing is added nothing is rounded.
inline Numerics rounded_sums(const PlanRequest& request) {
  return is_reduction(request.collective) ? Numerics::rounded : Numerics::rank_order;
}

inline Numerics rank_order_sums(const PlanRequest&) { return Numerics::rank_order; }

}  // namespace strait::algorithms
