#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "plan/plan.hpp"
#include "transport/link.hpp"

namespace strait {

/// A call as its rank posted it: what it is, and its buffers in the addresses of whoever looks.
struct PeerCall {
  CallSignature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

/// A way to carry bytes between the ranks of one communicator. One object a rank and communicator, used by that rank's
/// thread. Links and signals are opened on first use, without talking to the peer, and live as long as the transport:
/// several plans share them, and their order across operations is the order of the calls.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  /// The capacity of a slot of every link.
  virtual std::size_t slot_bytes() const = 0;
  /// Whether every rank can address the others' buffers, as far as they share them: peer_call() then tells where they
  /// are, and plans may have peer operands. The same on all ranks.
  virtual bool has_peer_memory() const = 0;
  /// Whether a link costs its writer the same for one reader and for several. The same on all ranks.
  virtual bool has_multicast() const = 0;
  /// Whether the ranks' control lies in memory that all see: a failure of one is then known to all at once.
  virtual bool shares_control() const { return true; }

  /// Owned by the transport. The error says which rank could not be reached, and why.
  virtual Result<SendLink*> open_send(const LinkEnd& end) = 0;
  virtual Result<ReceiveLink*> open_receive(const LinkEnd& end) = 0;
  virtual Result<SignalSender*> open_signal(const SignalEnd& end) = 0;
  virtual Result<SignalWaiter*> open_wait(const SignalEnd& end) = 0;

  /// After an operation that failed: the memory of its buffers is its caller's again.
  virtual void abandon() {}
  /// Whether ranks of this process read and write the buffers of one another.
  virtual bool reaches_buffers() const { return false; }

  /// Makes this rank's collective known to peers under its sequence number. Visible to a peer once it takes a signal or
  /// a slot of that operation from this rank.
  virtual void post_call(std::uint64_t sequence, const CallSignature& signature, const void* input, void* output) = 0;
  /// The call that `peer` posted under `sequence`, or nothing if it has not, or long ago. Buffers are null where this
  /// transport cannot address them.
  virtual std::optional<PeerCall> peer_call(std::uint64_t sequence, std::uint32_t peer) const = 0;
  /// Whether it can address the buffers of `peer` that lie in registered memory.
  virtual bool sees_memory_of(std::uint32_t /*peer*/) const { return false; }
  /// After this rank has heard, through whichever ranks, that all have posted `sequence`: whether peer_call() can tell
  /// by now. Where calls travel as messages, they may come a moment later than the news.
  virtual bool knows_calls(std::uint64_t sequence) = 0;
  /// Takes in what peers have sent for calls that this rank is still to make, as far as there is room for it. Between
  /// calls, by the rank's thread.
  virtual void take_in() {}
  /// That this rank's process ends in good order: what its control says, to ranks that do not see that. Waits until they
  /// have heard it, or for as long as that. When the process ends, by any thread.
  virtual void tell_end(const Deadline& /*deadline*/) {}
};

}  // namespace strait
