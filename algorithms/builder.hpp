#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "plan/plan.hpp"
#include "plan/request.hpp"

/// The functions with which algorithms are written. An algorithm describes one set of lanes; finish() repeats it for
/// every lane of the request, each on its own share of every chunk.
namespace strait::algorithms {

using Operands = std::vector<Operand>;
using Ranks = std::vector<std::uint32_t>;

inline Operand input(std::uint32_t chunk) { return {.buffer = Buffer::input, .chunk = chunk}; }
inline Operand output(std::uint32_t chunk) { return {.buffer = Buffer::output, .chunk = chunk}; }
inline Operand scratch(std::uint32_t chunk) { return {.buffer = Buffer::scratch, .chunk = chunk}; }

/// Returns the lists one after the other.
Operands joined(std::initializer_list<Operands> lists);

/// Returns whether the collective is among `served`. For an algorithm's supports().
inline bool is_one_of(std::initializer_list<Collective> served, Collective collective) {
  return std::find(served.begin(), served.end(), collective) != served.end();
}

class PlanBuilder {
 public:
  PlanBuilder(const PlanRequest& request, std::uint32_t rank, std::uint32_t chunks_per_block = 1);

  /// Returns rank + distance, modulo the number of ranks. The distance may be negative.
  std::uint32_t around(std::int64_t distance) const;
  /// Returns every rank but this one, starting with the next, so that ranks serve their peers in different orders.
  Ranks others() const;
  /// Returns the readers of a link from `writer` to all others, in the form that receive() takes: only this rank if
  /// each link has one reader.
  Ranks all_readers(std::uint32_t writer) const;
  Ranks everyone() const;  ///< all ranks, in order

  /// Reserves memory for this lane's steps: growing a large plan takes as much memory again.
  void reserve(std::size_t steps) { plan_.lanes.back().steps.reserve(steps); }

  /// Starts another lane, into which the following steps go.
  void next_lane();

  /// Adds a step `destinations = source`, bit for bit.
  void copy(Operand source, Operands destinations);
  void copy(Operand source, Operand destination) { copy(source, Operands{destination}); }
  /// Adds a step `destinations = ` the sources combined in this order, if the sources lack some ranks' contributions.
  void reduce_partial(Operands sources, Operands destinations);
  /// The same for sources that together have all contributions.
  void reduce_final(Operands sources, Operands destinations);

  /// Returns destinations that send a slice of `region` to all `readers`: one link if the request allows several
  /// readers, otherwise a link for each.
  Operands send(Ranks readers, Operand region, std::uint16_t tag = 0);
  /// Returns the source at the other end of `send(readers, ...)` on rank `writer`.
  Operand receive(std::uint32_t writer, Ranks readers, Operand region, std::uint16_t tag = 0);
  /// The same for a link whose only reader is this rank.
  Operand receive(std::uint32_t writer, Operand region, std::uint16_t tag = 0) {
    return receive(writer, {rank_}, region, tag);
  }
  /// Returns all ranks' contributions to the chunk `mine`, in rank order. Those of others come over links to this rank.
  Operands contributions(Operand mine);
  /// Adds copies of what every other rank sends to all, from rank r into output chunk r.
  void gather_outputs(std::uint16_t tag = 0);
  /// Returns `operand` of rank `rank`, accessed directly: a local operand for this rank, otherwise a peer operand.
  Operand at(std::uint32_t rank, Operand operand) const;

  /// Makes the last step add one to the signal `tag` to each of these ranks.
  void signal(const Ranks& to, std::uint16_t tag);
  /// Makes the next step first take one from the signal `tag` of each of these ranks.
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
  std::unordered_multimap<std::uint64_t, std::uint16_t> link_places_;    ///< indices into the plan's links, by hash
  std::unordered_multimap<std::uint64_t, std::uint16_t> signal_places_;  ///< indices into its signals, by hash
};

}  // namespace strait::algorithms
