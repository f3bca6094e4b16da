#pragma once

#include <atomic>
#include <cstdint>

#include "transport/link.hpp"
#include "transports/slots/segment.hpp"

/// Links and signals in memory that both ends address. The block of a link starts with one counter for each reader (the
/// number of messages that it has released), each on its own cache line, followed by `depth` slots.
namespace strait::slots {

/// A ring buffer of slots in the block of a link. Messages are numbered from 0; message m uses slot m % depth.
class SlotRing {
 public:
  SlotRing(std::byte* block, std::size_t readers, const Segment& segment);

  SlotHeader& header(std::uint64_t message) const {
    return *reinterpret_cast<SlotHeader*>(slots_ + message % depth_ * stride_bytes_);
  }
  std::byte* payload(std::uint64_t message) const {
    return slots_ + message % depth_ * stride_bytes_ + sizeof(SlotHeader);
  }
  /// Returns the number of messages that a reader has released.
  Counter& released_count(std::size_t reader) const { return released_counts_[reader]; }
  std::uint64_t depth() const { return depth_; }

 private:
  Counter* released_counts_;
  std::byte* slots_;
  std::size_t stride_bytes_;
  std::uint64_t depth_;
};

class SlotSendLink final : public SendLink {
 public:
  SlotSendLink(const SlotRing& ring, std::size_t readers) : ring_(ring), readers_(readers) {}
  std::byte* try_reserve() noexcept override;
  std::vector<std::size_t> holders() const override;
  void publish(const CallSignature& signature, std::size_t used_bytes) noexcept override;

 private:
  SlotRing ring_;
  std::size_t readers_;
  std::uint64_t next_ = 0;          ///< number of the next message to write
  std::uint64_t released_all_ = 0;  ///< messages that all readers had released when the writer last looked
};

class SlotReceiveLink final : public ReceiveLink {
 public:
  SlotReceiveLink(const SlotRing& ring, std::size_t reader) : ring_(ring), reader_(reader) {}
  const std::byte* try_acquire(CallSignature& signature) noexcept override;
  void release() noexcept override;

 private:
  SlotRing ring_;
  std::size_t reader_;
  std::uint64_t next_ = 0;  ///< number of the next message to read
};

class CounterSender final : public SignalSender {
 public:
  explicit CounterSender(Counter& counter) : counter_(counter) {}
  void add() noexcept override { counter_.value.store(++sent_, std::memory_order_release); }

 private:
  Counter& counter_;
  std::uint64_t sent_ = 0;
};

class CounterWaiter final : public SignalWaiter {
 public:
  explicit CounterWaiter(Counter& counter) : counter_(counter) {}
  bool try_take() noexcept override;

 private:
  Counter& counter_;
  std::uint64_t taken_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace strait::slots
