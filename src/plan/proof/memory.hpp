#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/proof/expressions.hpp"
#include "plan/proof/operation.hpp"

namespace strait::proof {

/// By lane (and, behind the lanes, by rank for entering an operation): how many of its events have happened.
using VectorClock = std::vector<std::uint32_t>;

void merge(VectorClock& into, const VectorClock& from);

/// An access by a step: which lane, when on its own clock, and where in the plan.
struct Access {
  std::uint32_t lane = 0;  ///< index into the vector clocks
  std::uint32_t time = 0;
  std::uint32_t rank = 0;
  std::uint32_t rank_lane = 0;
  std::uint32_t step = 0;
  std::uint32_t slice = 0;

  bool before(const VectorClock& clock) const { return clock[lane] >= time; }
};

/// A value as memory or a slot holds it.
struct Content {
  Expressions::Id value = Expressions::unwritten;
  bool wide = false;
  Length length;
};

/// The buffers of all ranks in one operation, who touched what, and when.
class Memory {
 public:
  Memory(const Operation& operation, std::uint32_t index, Expressions& expressions);

  /// A chunk's content as `access` sees it; an error for races and for reading what nobody wrote.
  Result<Content> read(std::uint32_t owner, const Operand& operand, const Access& access, const VectorClock& clock);
  Status write(std::uint32_t owner, const Operand& operand, const Content& content, const Access& access,
               const VectorClock& clock);
  /// What the operation left behind.
  const Content& result(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const;
  /// The accesses to an owner's buffers by others: the last of each lane.
  const std::map<std::uint32_t, Access>& guests(std::uint32_t owner) const { return owners_[owner].guests; }
  std::string text(const Access& access) const;

 private:
  struct Cell {
    Content content;
    Access writer;
    std::vector<Access> readers;  ///< since the last write, the last of each lane
    bool written = false;         ///< by a step
  };
  struct Owner {
    std::vector<Cell> cells;
    std::map<std::uint32_t, Access> guests;
  };
  std::size_t index_of(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const;
  Cell& touch(std::uint32_t owner, const Operand& operand, const Access& access);
  Status order(const Cell& cell, const Access& access, const VectorClock& clock, std::string_view what) const;

  const Operation& operation_;
  std::vector<Owner> owners_;
};

}  // namespace strait::proof
