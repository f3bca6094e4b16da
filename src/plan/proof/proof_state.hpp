#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "plan/proof/expressions.hpp"
#include "plan/proof/memory.hpp"
#include "plan/proof/operation.hpp"

namespace strait::proof {

/// The state of all ranks in a proof, which executes operations back to back, with symbolic values.
class ProofState {
 public:
  ProofState(std::span<const Operation> operations, std::uint32_t depth);

  /// Runs to the end. Fails at the first wrong step, or if all remaining lanes are blocked.
  Status run();
  const Memory& memory(std::size_t operation) const { return memories_[operation]; }
  const Expressions& expressions() const { return expressions_; }
  Expressions& expressions() { return expressions_; }

 private:
  struct Message {
    Content content;
    std::shared_ptr<const VectorClock> clock;
  };
  struct Link {
    std::deque<Message> slots;
    std::uint64_t released = 0;  ///< slots that all readers have released
    std::uint64_t published = 0;
    std::map<std::uint32_t, std::uint64_t> read_by;  ///< number of slots read, by reader
    std::vector<std::uint32_t> sleepers;             ///< lanes blocked on this link
  };
  struct Signal {
    std::deque<std::shared_ptr<const VectorClock>> counts;
    std::vector<std::uint32_t> sleepers;
  };
  struct LaneState {
    std::uint32_t rank = 0;
    std::uint32_t index = 0;  ///< within the rank
    std::uint32_t slice = 0;
    std::uint32_t slices = 0;
    std::size_t step = 0;
    bool active = false;
    const Operand* operand_missing = nullptr;  ///< the operand it waits for, if blocked on a link
    std::uint32_t signal_missing = 0;          ///< if blocked on a signal: the rank that signals
    VectorClock clock = {};
  };
  struct RankState {
    std::uint32_t operation = 0;
    std::uint32_t first_lane = 0;  ///< index into lanes_
    std::uint32_t lanes = 0;       ///< largest number of lanes of any operation
    std::uint32_t running = 0;
    VectorClock clock;
    std::vector<std::uint32_t> entered;  ///< by operation: time of entering, on the rank's own component of the clock
    std::vector<VectorClock> left;       ///< by operation: clock at the end of its last lane
    std::vector<Link*> links;            ///< of the current operation, by index of the plan
    std::vector<Signal*> signals;
  };

  const Operation& operation_of(const LaneState& lane) const { return operations_[ranks_[lane.rank].operation]; }
  void enter(std::uint32_t rank);
  void finish_lane(LaneState& lane);
  Status run_lane(std::uint32_t index);
  /// Returns whether all operands of the step are available. Otherwise puts the lane to sleep on the first missing one.
  bool ready(std::uint32_t index, const Step& step);
  Status execute(LaneState& lane, const Step& step);
  /// Describes where in the plan an access happens, for errors.
  std::string at(const Access& access) const { return memories_[ranks_[access.rank].operation].text(access); }
  Result<Content> take(LaneState& lane, const Operand& source, const Access& access);
  Status put(LaneState& lane, const Operand& destination, const Content& content, const Access& access,
             const std::shared_ptr<const VectorClock>& clock);
  Status check_entered(const LaneState& lane, const Operand& operand, const Access& access) const;
  Result<Length> length_of(const LaneState& lane, const Step& step, const Access& access) const;
  Status check_sum(const LaneState& lane, const Step& step, std::span<const Content> sources,
                   const Access& access) const;
  void wake(std::vector<std::uint32_t>& sleepers);
  std::string blocked_on(const LaneState& lane) const;
  Status report_blocked() const;
  Status check_left() const;

  std::span<const Operation> operations_;
  std::uint32_t depth_;
  Expressions expressions_;
  std::vector<Memory> memories_;
  std::vector<RankState> ranks_;
  std::vector<LaneState> lanes_;
  std::map<LinkName, Link> links_;
  std::map<std::pair<std::uint32_t, SignalName>, Signal> signals_;  ///< by operation and name
  std::vector<std::uint32_t> runnable_;
};

}  // namespace strait::proof
