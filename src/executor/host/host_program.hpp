#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "executor/host/reduce.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"
#include "transport/transport.hpp"

namespace strait {

/// What the elements of an operation are and what is done to them.
struct Arithmetic {
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
};

/// Where messages lie that their owner has piece by piece, a slice at a time: of one that is sent slices come, and of
/// one that is received they go, in order.
class MessagePieces {
 public:
  virtual ~MessagePieces() = default;
  /// A slice's, the same at both ends of each message; at most the transport's slot_bytes.
  virtual std::size_t slice_bytes() const noexcept = 0;
  /// Where that slice of the message is, or may be put; nullptr: not yet. Repeatable.
  virtual std::byte* find(std::size_t message, std::uint32_t slice) noexcept = 0;
  /// It has been sent, or is there.
  virtual void finish(std::size_t message, std::uint32_t slice) noexcept = 0;
};

/// A plan bound to links, a layout and a type on host memory: compiled once, run for every call of that shape. Runs
/// without waiting: progress() does what can be done now, so that one thread can drive several programs.
/// One run at a time.
class HostProgram {
 public:
  static constexpr std::size_t accumulator_bytes = 4;  ///< of f16, bf16 and fp8, the types whose wide form differs

  struct Options {
    Arithmetic arithmetic;
    std::size_t count = 0;        ///< as the API counts
    std::size_t slice_bytes = 0;  ///< at most the transport's slot_bytes
    bool stream_outputs = false;  ///< write outputs that nobody reads again around the cache
    Simd simd = Simd::portable;
    /// Chunks that are messages of their own (all-to-all-v, send/recv), by chunk: the caller gives their place, and
    /// each step takes all the slices of its chunk, at least one, before the next step. Empty: the layout of the plan.
    struct Message {
      Extent extent;
      CallSignature signature;  ///< on its slots, instead of the run's
    };
    std::vector<Message> input_messages;
    std::vector<Message> output_messages;
    /// For messages whose extents begin at their numbers, not at addresses. Outlives the program. Null: there are none.
    MessagePieces* pieces = nullptr;
    std::uint32_t averaged = 0;  ///< contributions that an average divides by; 0: as many as there are ranks
  };
  /// `transport` outlives the program.
  static Result<std::unique_ptr<HostProgram>> bind(const RankPlan& plan, const Options& options, Transport& transport);

  struct Run {
    const void* input = nullptr;
    void* output = nullptr;
    std::uint64_t sequence = 0;  ///< under which peers posted their buffers
    CallSignature signature;
  };
  void start(const Run& run);
  /// Advances every lane as far as it goes. An error ends the run.
  enum class State { idle, advanced, done };
  Result<State> progress();

  /// Ranks that the lanes now wait for, lowest first; for messages and for deciding whether a death matters.
  std::vector<std::uint32_t> awaited_ranks() const;

  /// Where a slot of another call arrived: the peer and its call, after progress() failed with Code::mismatch.
  struct Foreign {
    std::uint32_t rank;
    CallSignature expected;
    CallSignature seen;
  };
  const std::optional<Foreign>& foreign() const { return foreign_; }

 private:
  struct BoundOperand {
    Operand::Kind kind;
    Buffer buffer;
    bool wide = false;
    bool streaming = false;
    bool direct = false;                 ///< a send from where the source lies, without a copy to the slot
    std::uint32_t rank = 0;              ///< whose memory or slot this operand reads
    std::vector<std::uint32_t> readers;  ///< of a send
    SendLink* send = nullptr;
    ReceiveLink* receive = nullptr;
    Extent chunk;               ///< whole chunk, in elements from the start of the buffer
    std::byte* slot = nullptr;  ///< while acquired or reserved
  };
  struct BoundWait {
    SignalWaiter* waiter;
    std::uint32_t credits;
    std::uint32_t rank;
  };
  struct BoundStep {
    std::vector<BoundWait> waits;
    std::vector<BoundOperand> sources;
    std::vector<BoundOperand> destinations;
    std::vector<SignalSender*> signals;
    std::optional<CallSignature> signature;
    bool reduces = false;
    bool final = false;
    bool copies = false;    ///< one source as it is
    bool takes_in = false;  ///< what comes may arrive at its destination
    std::uint32_t slices = 0;
  };
  struct BoundLane {
    std::vector<BoundStep> steps;
    // Where the run stands: slice, step, and how many of the step's waits and operands are in hand.
    bool done = false;
    std::uint32_t slice = 0;
    std::uint32_t step = 0;
    std::uint32_t ready = 0;
  };
  HostProgram() = default;
  Result<BoundOperand> bind_operand(const RankPlan& plan, const Operand& operand, Transport& transport) const;
  Result<BoundStep> bind_step(const RankPlan& plan, const Step& step, Transport& transport) const;
  Extent chunk_extent(Buffer buffer, std::uint32_t chunk) const;
  std::uint32_t slices_of(const BoundStep& step) const;
  void mark_streaming();

  void go_on(BoundLane& lane) const;
  Result<bool> make_ready(BoundLane& lane, BoundStep& step);
  Result<bool> acquire(BoundStep& step, BoundOperand& operand, std::uint32_t slice);
  /// Nothing: there is no room yet.
  std::optional<std::span<std::byte>> place_of_received(BoundStep& step, std::uint32_t slice);
  bool find_piece(BoundOperand& operand, std::uint32_t slice) const;
  Status check_signature(const BoundStep& step, std::uint32_t rank, const CallSignature& seen);
  void execute(const BoundStep& step, std::uint32_t slice);
  void compute(const BoundStep& step, std::uint32_t slice, std::size_t count);
  void finish(const BoundStep& step, std::uint32_t slice, std::size_t count);
  std::byte* address(const BoundOperand& operand, std::uint32_t slice);
  std::size_t slice_count(const BoundStep& step, std::uint32_t slice) const;
  const CallSignature& signature_of(const BoundStep& step) const {
    return step.signature ? *step.signature : run_.signature;
  }
  bool has_messages() const { return !options_.input_messages.empty() || !options_.output_messages.empty(); }

  Options options_;
  Layout layout_;
  std::uint32_t ranks_ = 1;
  std::size_t element_bytes_ = 1;
  std::size_t scratch_chunk_bytes_ = 0;
  Transport* transport_ = nullptr;
  std::vector<BoundLane> lanes_;
  std::vector<std::byte> scratch_;
  std::vector<std::optional<PeerCall>> peers_;  ///< calls of the peers whose memory this run has used
  Run run_;
  std::vector<ReduceSource> sources_;            ///< of the step being computed
  std::vector<ReduceDestination> destinations_;  ///< likewise
  std::optional<Foreign> foreign_;
};

}  // namespace strait
