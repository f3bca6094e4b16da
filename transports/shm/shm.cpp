#include "transports/shm/shm.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/log.hpp"
#include "base/mapping.hpp"
#include "transports/shm/liveness_monitor.hpp"
#include "transports/shm/shared_file.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait::shm {
namespace {

/// A segment whose ranks' lives are watched.
class ShmTransport final : public slots::SegmentTransport {
 public:
  template <class... Arguments>
  explicit ShmTransport(std::unique_ptr<const LivenessMonitor> liveness, Arguments&&... arguments)
      : SegmentTransport(std::forward<Arguments>(arguments)...), liveness_(std::move(liveness)) {}
  bool has_died(std::uint32_t rank) const override { return liveness_->has_died(rank); }
  std::string cause_of_death(std::uint32_t /*rank*/) const override {
    return "whose process has died, or become another program (exec). See that rank's output and the kernel log for "
           "why";
  }

 private:
  std::unique_ptr<const LivenessMonitor> liveness_;
};

/// Maps a received memfd, but only if it is sealed so that nobody can shrink it.
Result<Mapping> map_sealed(const UniqueFd& fd, std::size_t size_bytes) {
  struct stat status {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < size_bytes)
    return fail(Code::remote_error, "a peer on this host sent shared memory of the wrong size or without its seals");
  return Mapping::of_file(fd.get(), size_bytes);
}

/// Maps a peer's heap. All communicators of this process share one mapping of it.
Result<std::shared_ptr<Mapping>> map_heap(const std::string& process, const UniqueFd& fd) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Mapping>> heaps;
  const std::lock_guard lock(mutex);
  std::erase_if(heaps, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = heaps[process];
  if (auto heap = entry.lock()) return heap;
  STRAIT_ASSIGN(Mapping mapping, map_sealed(fd, SharedHeap::size_bytes));
  auto heap = std::make_shared<Mapping>(std::move(mapping));
  entry = heap;
  return heap;
}

RendezvousRequest meeting_of(const OpenRequest& request) {
  RendezvousRequest meeting;
  meeting.rank = request.rank;
  meeting.ranks = request.ranks;
  meeting.secret = request.secret;
  meeting.segment_bytes = slots::Segment::size_bytes(request.geometry);
  meeting.deadline = request.deadline;
  meeting.check = request.check;
  meeting.agree = request.agree;
  return meeting;
}

Result<std::unique_ptr<Transport>> open_passed(const OpenRequest& request) {
  RendezvousRequest meeting = meeting_of(request);
  auto heap = SharedHeap::instance();
  if (heap)
    meeting.heap_fd = (*heap)->fd();
  else  // without a heap, data is copied; nothing else is lost
    log_warn(static_cast<int>(request.rank), "straitMemAlloc is not available: " + heap.error().message);
  STRAIT_ASSIGN(RendezvousResult met, meet(meeting));
  if (met.strangers_dropped > 0)
    log_info(static_cast<int>(request.rank),
             "dropped " + std::to_string(met.strangers_dropped) + " strangers at the unix socket of this host's ranks");

  STRAIT_ASSIGN(Mapping mapping, map_sealed(met.segment, meeting.segment_bytes));
  auto memory = std::make_shared<Mapping>(std::move(mapping));
  std::vector<std::shared_ptr<void>> resources{memory};
  std::vector<slots::PeerView> views(request.geometry.ranks);
  for (std::uint32_t rank = 0; rank < views.size(); ++rank) {
    if (request.ranks[rank].process == request.ranks[request.rank].process) {
      views[rank].kind = slots::PeerView::Kind::same_addresses;
      continue;
    }
    if (met.heaps[rank]) {
      auto peer_heap = map_heap(request.ranks[rank].process, met.heaps[rank]);
      if (!peer_heap) {
        log_warn(static_cast<int>(request.rank), "memory from straitMemAlloc is copied: " + peer_heap.error().message);
        continue;
      }
      views[rank] = {slots::PeerView::Kind::heap, (*peer_heap)->data()};
      resources.push_back(*peer_heap);
    }
  }
  std::byte* own_heap = heap ? (*heap)->base() : nullptr;
  const slots::Segment segment(memory->data(), request.geometry);
  STRAIT_ASSIGN(auto liveness, LivenessMonitor::watch(meeting, met));
  return std::make_unique<ShmTransport>(std::move(liveness), "shm", segment, request.rank, std::move(views), own_heap,
                                        std::move(resources), slots::PeerMemory::from_heaps);
}

Result<std::unique_ptr<Transport>> open_via_file(const OpenRequest& request) {
  const RendezvousRequest meeting = meeting_of(request);
  RendezvousResult met;
  met.pidfds.resize(request.ranks.size());
  STRAIT_ASSIGN(met.segment, share_file(meeting));
  STRAIT_ASSIGN(Mapping mapping, Mapping::of_file(met.segment.get(), meeting.segment_bytes));
  auto memory = std::make_shared<Mapping>(std::move(mapping));
  const slots::Segment segment(memory->data(), request.geometry);
  STRAIT_ASSIGN(auto liveness, LivenessMonitor::watch(meeting, met));
  return std::make_unique<ShmTransport>(std::move(liveness), "shm_file", segment, request.rank,
                                        std::vector<slots::PeerView>(request.geometry.ranks), nullptr,
                                        std::vector<std::shared_ptr<void>>{memory}, slots::PeerMemory::none);
}

Result<std::unique_ptr<Transport>> agreed(const OpenRequest& request, Result<std::unique_ptr<Transport>> opened) {
  STRAIT_TRY(request.agree(opened ? Status() : tl::unexpected(opened.error())));
  return opened;
}

}  // namespace

Result<std::unique_ptr<Transport>> open(const OpenRequest& request) { return agreed(request, open_passed(request)); }

Result<std::unique_ptr<Transport>> open_file(const OpenRequest& request) {
  // The file's memory is reserved in advance, so slots should be no larger than is useful.
  constexpr std::size_t slot_bytes = 32 << 10;
  OpenRequest smaller = request;
  smaller.geometry.slot_bytes = std::min(slot_bytes, request.geometry.slot_bytes);
  return agreed(request, open_via_file(smaller));
}

}  // namespace strait::shm
