#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace strait {

/// Identifies the call that a slot belongs to. Both ends compare it, so that ranks which make different calls get an
/// error instead of a wrong result. See calls/call.hpp for the packing of `what`.
struct CallSignature {
  std::uint64_t what = 0;
  std::uint64_t count = 0;

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

/// The writer's end of a link, a one-way, ordered channel of slots. Used by one thread at a time; its functions never
/// wait.
class SendLink {
 public:
  virtual ~SendLink() = default;
  /// Returns the payload of the next free slot, or nullptr while readers still hold it. Returns the same slot until
  /// publish() is called.
  virtual std::byte* try_reserve() noexcept = 0;
  /// Returns the readers (by index) that hold the slot, after try_reserve() has returned nullptr.
  virtual std::vector<std::size_t> holders() const = 0;
  /// Hands the first `used_bytes` of the reserved slot to all readers.
  virtual void publish(const CallSignature& signature, std::size_t used_bytes) noexcept = 0;
  /// Returns whether publish_from() is cheaper than filling the slot and calling publish().
  virtual bool sends_from_anywhere() const { return false; }
  /// Publishes `bytes`, which lie outside the slot, in place of the reserved slot's contents; at most as many as a slot
  /// holds. The caller may overwrite them as soon as this returns.
  virtual void publish_from(const CallSignature& signature, std::span<const std::byte> bytes) noexcept {
    std::memcpy(try_reserve(), bytes.data(), bytes.size());
    publish(signature, bytes.size());
  }
};

/// A reader's end of a link. Used by one thread at a time; its functions never wait.
class ReceiveLink {
 public:
  virtual ~ReceiveLink() = default;
  /// Returns the payload of the next filled slot and sets its signature, or returns nullptr. Returns the same slot
  /// until release() is called.
  virtual const std::byte* try_acquire(CallSignature& signature) noexcept = 0;
  /// Returns whether try_acquire_into() may save a copy.
  virtual bool receives_anywhere() const { return false; }
  /// Like try_acquire(), but the link may put a message with the signature `expected` and the length of `place`
  /// directly into `place` instead of a slot; the pointer returned then is that of `place`. `place` belongs to the link
  /// until a message has been acquired or Transport::abandon() has been called.
  virtual const std::byte* try_acquire_into(std::span<std::byte> /*place*/, const CallSignature& /*expected*/,
                                            CallSignature& signature) noexcept {
    return try_acquire(signature);
  }
  /// Returns the acquired slot to the writer.
  virtual void release() noexcept = 0;
};

/// The sending end of a plan's signal, which is a counter from one rank to another.
class SignalSender {
 public:
  virtual ~SignalSender() = default;
  /// Increments the counter. The waiter that takes this signal sees everything that this rank wrote before.
  virtual void add() noexcept = 0;
};

/// The waiting end of a signal.
class SignalWaiter {
 public:
  virtual ~SignalWaiter() = default;
  /// Takes one signal and returns true if more have been added than taken.
  virtual bool try_take() noexcept = 0;
};

}  // namespace strait
