#include "transports/shm/shm.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "base/log.hpp"
#include "base/mapping.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait::shm {
namespace {

/// A received memfd is mapped only if nobody can shrink it under us.
Result<Mapping> map_sealed(const UniqueFd& fd, std::size_t size_bytes) {
  struct stat status {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd.get(), &status) != 0 ||
      static_cast<std::size_t>(status.st_size) < size_bytes)
    return fail(Code::remote_error, "a peer on this host sent shared memory of the wrong size or without its seals");
  return Mapping::of_file(fd.get(), size_bytes);
}

/// Peers' heaps as mapped in this process; one mapping serves all communicators.
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

}  // namespace

Result<Opened> open(const OpenRequest& request) {
  RendezvousRequest meeting{
      request.rank, request.ranks,    request.secret, slots::Segment::size_bytes(request.geometry),
      -1,           request.deadline, request.check};
  auto heap = SharedHeap::instance();
  if (heap)
    meeting.heap_fd = (*heap)->fd();
  else  // no heap costs a copy, no more
    log_warn(static_cast<int>(request.rank), "straitMemAlloc is not available: " + heap.error().message);
  STRAIT_ASSIGN(RendezvousResult met, meet(meeting));

  STRAIT_ASSIGN(Mapping mapping, map_sealed(met.segment, meeting.segment_bytes));
  auto memory = std::make_shared<Mapping>(std::move(mapping));
  std::vector<std::shared_ptr<void>> resources{memory};
  std::vector<slots::PeerView> views(request.geometry.ranks);
  for (std::uint32_t rank = 0; rank < views.size(); ++rank) {
    if (request.ranks[rank].process == request.ranks[request.rank].process) {
      views[rank].kind = slots::PeerView::Kind::same_addresses;
      continue;
    }
    if (!met.pidfds[rank])
      log_warn(static_cast<int>(request.rank), "the death of rank " + std::to_string(rank) +
                                                   " could not be noticed: its system gave no pidfd (Linux older than "
                                                   "5.3, or a seccomp filter). Set STRAIT_TIMEOUT_MS");
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
  Opened opened;
  opened.transport = std::make_unique<slots::SegmentTransport>("shm", segment, request.rank, std::move(views), own_heap,
                                                               std::move(resources));
  opened.pidfds = std::move(met.pidfds);
  return opened;
}

}  // namespace strait::shm
