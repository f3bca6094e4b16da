#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "transport/transport.hpp"
#include "transports/slots/segment.hpp"

namespace strait::slots {

/// How this rank addresses one peer's buffers: not at all, at the same addresses (ranks that are threads of one
/// process), or by offsets into a mapping of the peer's shared heap.
struct PeerView {
  enum class Kind { none, same_addresses, heap };
  Kind kind = Kind::none;
  std::byte* heap = nullptr;  ///< the peer's heap as mapped by this process
};
enum class PeerMemory { none, from_heaps, any };

/// A transport over a segment; the common part of loopback (threads) and shm (processes). These differ in the origin of
/// the segment's memory and in how ranks address one another's buffers.
class SegmentTransport : public Transport {
 public:
  /// `views` is indexed by rank. `own_heap` is this process's shared heap; buffers are posted as offsets from its
  /// start. `resources` are objects that must live as long as the transport, such as mappings. `peer_memory` says
  /// which buffers ranks address of one another in principle, even if a single mapping failed.
  SegmentTransport(std::string_view name, Segment segment, std::uint32_t rank, std::vector<PeerView> views,
                   std::byte* own_heap, std::vector<std::shared_ptr<void>> resources, PeerMemory peer_memory);

  std::string_view name() const override { return name_; }
  std::size_t slot_bytes() const override { return segment_.geometry().slot_bytes; }
  bool has_peer_memory() const override { return peer_memory_ != PeerMemory::none; }
  bool sees_any_memory() const override { return peer_memory_ == PeerMemory::any; }
  bool has_multicast() const override { return true; }
  bool reaches_buffers() const override { return reaches_buffers_; }
  Control& control() override { return segment_.control(); }
  std::vector<RankControl*> rank_controls() override;

  Result<SendLink*> open_send(const LinkEnd& end) override;
  Result<ReceiveLink*> open_receive(const LinkEnd& end) override;
  Result<SignalSender*> open_signal(const SignalEnd& end) override;
  Result<SignalWaiter*> open_wait(const SignalEnd& end) override;
  void post_call(std::uint64_t sequence, const CallSignature& signature, const void* input, void* output) override;
  std::optional<PeerCall> peer_call(std::uint64_t sequence, std::uint32_t peer) const override;
  bool sees_memory_of(std::uint32_t peer) const override { return views_[peer].kind != PeerView::Kind::none; }
  bool has_peer_calls(std::uint64_t /*sequence*/) override { return true; }

 private:
  Result<std::byte*> link_block(const LinkEnd& end) const;
  Result<Counter*> signal_counter(const SignalEnd& end) const;

  std::string_view name_;
  Segment segment_;
  std::uint32_t rank_;
  std::vector<PeerView> views_;
  std::byte* own_heap_;
  std::vector<std::shared_ptr<void>> resources_;
  PeerMemory peer_memory_;
  bool reaches_buffers_ = false;
  std::map<LinkName, std::unique_ptr<SendLink>> sends_;
  std::map<LinkName, std::unique_ptr<ReceiveLink>> receives_;
  std::map<SignalName, std::unique_ptr<SignalSender>> signals_;
  std::map<SignalName, std::unique_ptr<SignalWaiter>> waits_;
};

}  // namespace strait::slots
