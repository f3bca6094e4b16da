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

/// The element type of an operation, and how elements are combined.
struct Arithmetic {
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
};

/// Access to messages whose memory becomes available slice by slice, in order: slices to be sent appear over time, and
/// so does room for received ones.
class MessagePieces {
 public:
  virtual ~MessagePieces() = default;
  /// Returns the size of a slice, the same at both ends of each message and at most the transport's slot_bytes.
  virtual std::size_t slice_bytes() const noexcept = 0;
  /// Returns where that slice of the message is, or where it may be put; nullptr if neither is possible yet. May be
  /// called again.
  virtual std::byte* find(std::size_t message, std::uint32_t slice) noexcept = 0;
  /// Tells that the slice has been sent, or has been received.
  virtual void mark_done(std::size_t message, std::uint32_t slice) noexcept = 0;
};

/// A plan bound to links, a layout and an element type in host memory. Compiled once, and run for every call of that
/// shape, one run at a time. Never blocks: progress() does what is possible now, so that one thread can drive several
/// programs.
class HostProgram {
 public:
  struct Options {
    Arithmetic arithmetic;
    std::size_t count = 0;        ///< as the API counts (see Layout)
    std::size_t slice_bytes = 0;  ///< at most the transport's slot_bytes
    bool stream_outputs = false;  ///< write outputs that no step reads with non-temporal stores
    Simd simd = Simd::portable;
    /// For calls in which chunks are messages of their own (all-to-all-v, send/recv): the messages, by chunk. The
    /// caller gives their position, and each step runs for all slices of its chunk (at least one) before the next step.
    /// Empty: the plan's layout applies.
    struct Message {
      Extent extent;
      CallSignature signature;  ///< signature of its slots, instead of the run's
    };
    std::vector<Message> input_messages;
    std::vector<Message> output_messages;
    /// For messages whose memory becomes available in pieces. The offset of such a message's extent is its number, not
    /// an address. Must outlive the program. Null: there are none.
    MessagePieces* pieces = nullptr;
    /// The number of contributions by which an average divides; 0: the number of ranks.
    std::uint32_t averaged = 0;
  };
  /// `transport` must outlive the program.
  static Result<std::unique_ptr<HostProgram>> bind(const RankPlan& plan, const Options& options, Transport& transport);

  struct Run {
    const void* input = nullptr;
    void* output = nullptr;
    std::uint64_t sequence = 0;  ///< sequence number under which peers have posted their buffers
    CallSignature signature;
  };
  void start(const Run& run);
  /// Advances every lane as far as possible. An error ends the run.
  enum class State { idle, advanced, done };
  Result<State> progress();

  /// Returns the ranks that the lanes now wait for, in ascending order: for error messages, and for deciding whether
  /// the death of a rank matters.
  std::vector<std::uint32_t> awaited_ranks() const;

  /// After progress() has failed with Code::mismatch: the peer whose slot or posted call has another signature.
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
    bool streaming = false;
    /// Whether a send publishes the source where it lies, without a copy to the slot.
    bool direct = false;
    std::uint32_t rank = 0;              ///< rank whose memory or slot this operand reads
    std::vector<std::uint32_t> readers;  ///< readers of a send's link
    SendLink* send = nullptr;
    ReceiveLink* receive = nullptr;
    Extent chunk;               ///< the whole chunk, in elements from the start of the buffer
    std::byte* slot = nullptr;  ///< only while a slot is acquired or reserved
  };
  struct BoundWait {
    SignalWaiter* waiter;
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
    bool copies = false;             ///< a single source, copied unchanged
    bool receives_in_place = false;  ///< the received slice may be put directly into its destination
    std::uint32_t slices = 0;
  };
  struct BoundLane {
    std::vector<BoundStep> steps;
    // Progress of the run: slice, step, and how many of the step's waits and operands have been acquired.
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

  void advance(BoundLane& lane) const;
  Result<bool> make_ready(BoundLane& lane, BoundStep& step);
  Result<bool> acquire(BoundStep& step, BoundOperand& operand, std::uint32_t slice);
  /// Returns where a received slice is to be put, or nothing if there is no room yet.
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
  Transport* transport_ = nullptr;
  std::vector<BoundLane> lanes_;
  std::vector<std::byte> scratch_;
  /// The posted calls of the peers whose memory this run has used, by rank.
  std::vector<std::optional<PeerCall>> peers_;
  Run run_;
  std::vector<ReduceSource> sources_;            ///< sources of the step being computed
  std::vector<ReduceDestination> destinations_;  ///< its destinations
  std::optional<Foreign> foreign_;
};

}  // namespace strait
