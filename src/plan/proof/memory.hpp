#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/proof/expressions.hpp"
#include "plan/proof/operation.hpp"

namespace strait::proof {

/// A vector clock: for each lane the number of its events so far. Behind the lanes follow the ranks, whose events are
/// the operations they have entered.
using VectorClock = std::vector<std::uint32_t>;

void merge(VectorClock& into, const VectorClock& from);

/// An access by a step: the lane, the time on the lane's own clock, and the place in the plan.
struct Access {
  std::uint32_t lane = 0;  ///< index into the vector clocks
  std::uint32_t time = 0;
  std::uint32_t rank = 0;
  std::uint32_t rank_lane = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;

  bool before(const VectorClock& clock) const { return clock[lane] >= time; }
};

/// A value in memory or in a slot.
struct Content {
  Expressions::Id value = Expressions::unwritten;
  Length length;
};

/// The buffers of all ranks in one operation, with the latest accesses to each slice.
class Memory {
 public:
  Memory(const Operation& operation, std::uint32_t index, Expressions& expressions);

  /// Returns a chunk's content as `access` sees it. Fails if there is a race, or if no step has written the chunk.
  Result<Content> read(std::uint32_t owner, const Operand& operand, const Access& access, const VectorClock& clock);
  Status write(std::uint32_t owner, const Operand& operand, const Content& content, const Access& access,
               const VectorClock& clock);
  /// Returns the content of a slice at the end of the operation.
  const Content& result(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const;
  /// Returns the last access of each lane of other ranks to the owner's buffers.
  const std::map<std::uint32_t, Access>& peer_accesses(std::uint32_t owner) const {
    return owners_[owner].peer_accesses;
  }
  std::string text(const Access& access) const;

 private:
  struct Cell {
    Content content;
    Access writer;
    std::vector<Access> readers;  ///< the last read of each lane since the last write
    bool written = false;         ///< whether a step has written it (otherwise it has its initial value)
  };
  struct Owner {
    std::vector<Cell> cells;
    std::map<std::uint32_t, Access> peer_accesses;
  };
  std::size_t index_of(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const;
  Cell& touch(std::uint32_t owner, const Operand& operand, const Access& access);
  Status order(const Cell& cell, const Access& access, const VectorClock& clock, std::string_view what) const;

  const Operation& operation_;
  std::vector<Owner> owners_;
};

}  // namespace strait::proof
