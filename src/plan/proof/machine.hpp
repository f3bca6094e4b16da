#pragma once

#include <deque>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "plan/proof/expressions.hpp"
#include "plan/proof/memory.hpp"
#include "plan/proof/operation.hpp"

namespace strait::proof {

/// Runs operations back to back on all ranks with symbolic values.
class Machine {
 public:
  Machine(std::span<const Operation> operations, std::uint32_t depth);

  /// Runs to the end; an error for the first wrong step, or if all that is left is blocked.
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
    std::uint64_t released = 0;  ///< slots that all readers gave back
    std::uint64_t published = 0;
    std::map<std::uint32_t, std::uint64_t> read_by;  ///< by reader: how many it has read
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
    const Operand* operand_missing = nullptr;  ///< while blocked on a link
    std::uint32_t signal_missing = 0;          ///< while blocked on a signal: from which rank
    VectorClock clock = {};
  };
  struct RankState {
    std::uint32_t operation = 0;
    std::uint32_t first_lane = 0;  ///< index into lanes_
    std::uint32_t lanes = 0;       ///< the most of any operation
    std::uint32_t running = 0;
    VectorClock clock;
    std::vector<std::uint32_t> entered;  ///< by operation: time of entering on the rank's own component
    std::vector<VectorClock> left;       ///< by operation: the clock when its last lane ended
    std::vector<Link*> links;            ///< of the current operation, by index of the plan
    std::vector<Signal*> signals;
  };
  using LinkName = std::tuple<std::uint32_t, std::uint16_t, std::vector<std::uint32_t>>;
  using SignalName = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint16_t>;

  const Operation& operation_of(const LaneState& lane) const { return operations_[ranks_[lane.rank].operation]; }
  void enter(std::uint32_t rank);
  void finish_lane(LaneState& lane);
  Status run_lane(std::uint32_t index);
  /// Whether all operands of the step are there; else the lane sleeps on the first that is not.
  bool ready(std::uint32_t index, const Step& step);
  Status execute(LaneState& lane, const Step& step);
  /// Where a step stands in the plan, for errors.
  std::string at(const Access& access) const { return memories_[ranks_[access.rank].operation].text(access); }
  Result<Content> take(LaneState& lane, const Operand& source, const Access& access);
  Status put(LaneState& lane, const Operand& destination, const Content& content, const Access& access,
             const std::shared_ptr<const VectorClock>& clock);
  Status check_entered(const LaneState& lane, const Operand& operand, const Access& access) const;
  Result<Length> length_of(const LaneState& lane, const Step& step, const Access& access) const;
  Status check_sum(const LaneState& lane, const Step& step, std::span<const Content> sources,
                   const Access& access) const;
  bool is_wide(const LaneState& lane, const Operand& operand) const;
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
  std::map<SignalName, Signal> signals_;
  std::vector<std::uint32_t> runnable_;
};

}  // namespace strait::proof
