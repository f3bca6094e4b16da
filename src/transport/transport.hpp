#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "plan/plan.hpp"
#include "transport/control.hpp"
#include "transport/link.hpp"

namespace strait {

/// A call as its rank posted it: its signature, and its buffers as addresses that are valid for the reading rank.
struct PeerCall {
  CallSignature signature;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
};

/// A way to carry bytes between the ranks of one communicator. Each rank has one object per communicator, which only
/// that rank's thread uses. Links and signals are opened on first use, without talking to the peer, and live as long as
/// the transport. Several plans share them; across operations they are used in the order of the calls.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  /// Returns the capacity in bytes of a slot, the same for every link.
  virtual std::size_t slot_bytes() const = 0;
  /// Returns whether every rank can address the other ranks' buffers, as far as these are shared. If so, peer_call()
  /// returns their addresses, and plans may have peer operands. The same on all ranks.
  virtual bool has_peer_memory() const = 0;
  /// Returns whether it can address peers' buffers anywhere, not only in memory from straitMemAlloc.
  virtual bool sees_any_memory() const { return false; }
  /// Returns whether several readers of a link cost its writer no more than one. The same on all ranks.
  virtual bool has_multicast() const = 0;
  /// Returns whether the control words of all ranks lie in memory that all of them see, so that all learn of a failure
  /// at the same moment.
  virtual bool shares_control() const { return true; }
  /// Return the control words of the communicator, and those of each rank. They live as long as the transport.
  virtual Control& control() = 0;
  virtual std::vector<RankControl*> rank_controls() = 0;

  /// Returns whether the process of a rank is known to have died. From any thread.
  virtual bool has_died(std::uint32_t /*rank*/) const { return false; }
  /// Returns what is known of the death of a rank, as "whose ...". From any thread.
  virtual std::string cause_of_death(std::uint32_t /*rank*/) const { return ""; }

  /// Opens an end of a link or signal, which the transport owns. An error names the rank that could not be reached, and
  /// why.
  virtual Result<SendLink*> open_send(const LinkEnd& end) = 0;
  virtual Result<ReceiveLink*> open_receive(const LinkEnd& end) = 0;
  virtual Result<SignalSender*> open_signal(const SignalEnd& end) = 0;
  virtual Result<SignalWaiter*> open_wait(const SignalEnd& end) = 0;

  /// Ends the transport's use of the buffers of an operation that has failed; afterwards they belong to the caller
  /// again.
  virtual void abandon() {}
  /// Returns whether ranks of this process read and write one another's buffers.
  virtual bool reaches_buffers() const { return false; }

  /// Posts this rank's collective, so that peers can read it under its sequence number. A peer sees it at the latest
  /// when it takes a signal or slot of that operation from this rank.
  virtual void post_call(std::uint64_t sequence, const CallSignature& signature, const void* input, void* output) = 0;
  /// Returns the call that `peer` posted under `sequence`, or nothing if it has not been posted yet or has been
  /// overwritten by later calls. Buffers are null if this transport cannot address them.
  virtual std::optional<PeerCall> peer_call(std::uint64_t sequence, std::uint32_t peer) const = 0;
  /// Returns whether this rank can address those buffers of `peer` that lie in registered memory.
  virtual bool sees_memory_of(std::uint32_t /*peer*/) const { return false; }
  /// Returns whether peer_call() can already return the calls that all ranks have posted under `sequence`. To be called
  /// once this rank has learnt, from any ranks, that all have posted it. If calls travel as messages, they may arrive a
  /// moment later than that news.
  virtual bool has_peer_calls(std::uint64_t sequence) = 0;
  /// Receives what peers have sent for later calls of this rank, as far as there is room for it. Called between calls,
  /// by the rank's thread.
  virtual void receive_early() {}
  /// Tells ranks that do not see this rank's control words that its process is exiting in good order. Waits until they
  /// have been told, or until the deadline. May be called by any thread, while the process exits.
  virtual void announce_exit(const Deadline& /*deadline*/) {}
};

}  // namespace strait
