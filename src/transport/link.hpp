#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace strait {

/// What call a slot belongs to. Both ends compare it, so that ranks which call different things get an error and not a
/// wrong result. See calls/call.hpp for the packing of `what`.
struct CallSignature {
  std::uint64_t what = 0;
  std::uint64_t count = 0;

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

/// The writer's end of a link: a one-way, ordered channel of slots. Used by one thread at a time; never waits.
class SendLink {
 public:
  virtual ~SendLink() = default;
  /// The next free slot, or nullptr while readers still hold it. Repeatable: the same slot until publish().
  virtual std::byte* try_reserve() noexcept = 0;
  /// After try_reserve() found no slot: which readers (by index) hold it.
  virtual std::vector<std::size_t> holders() const = 0;
  /// Hands the first `used_bytes` of the reserved slot to all readers.
  virtual void publish(const CallSignature& signature, std::size_t used_bytes) noexcept = 0;
  /// Whether publish_from() is cheaper than to fill the slot.
  virtual bool sends_from_anywhere() const { return false; }
  /// Likewise, of bytes that lie elsewhere, at most as many as a reserved slot holds. They may change once it returns.
  virtual void publish_from(const CallSignature& signature, std::span<const std::byte> bytes) noexcept {
    std::memcpy(try_reserve(), bytes.data(), bytes.size());
    publish(signature, bytes.size());
  }
};

/// A reader's end of a link. Used by one thread at a time; never waits.
class ReceiveLink {
 public:
  virtual ~ReceiveLink() = default;
  /// The next filled slot and its signature, or nullptr. Repeatable: the same slot until release().
  virtual const std::byte* try_acquire(CallSignature& signature) noexcept = 0;
  /// Whether try_acquire_into() may spare a copy.
  virtual bool receives_anywhere() const { return false; }
  /// Likewise; a message of that signature and length may be put into `place` instead of a slot, and is then acquired
  /// there. Until it was, or until Transport::abandon(), `place` belongs to the link.
  virtual const std::byte* try_acquire_into(std::span<std::byte> /*place*/, const CallSignature& /*expected*/,
                                            CallSignature& signature) noexcept {
    return try_acquire(signature);
  }
  /// Gives the acquired slot back to the writer.
  virtual void release() noexcept = 0;
};

/// A counter from one rank to another; the ends of a plan's signal.
class SignalSender {
 public:
  virtual ~SignalSender() = default;
  /// Everything this rank wrote before is visible to the waiter that takes this signal.
  virtual void add() noexcept = 0;
};

class SignalWaiter {
 public:
  virtual ~SignalWaiter() = default;
  /// Takes one signal if there is one beyond those taken so far; `credits` of them count as given in advance.
  virtual bool try_take(std::uint32_t credits) noexcept = 0;
};

}  // namespace strait
