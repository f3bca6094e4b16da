#include "transports/shm/shared_heap.hpp"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace strait::shm {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

Status check_file_size(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || bytes <= limit.rlim_cur) return {};
  return fail_errno("cannot size " + std::to_string(bytes >> 20) + " MB of shared memory", EFBIG,
                    "Raise the limit of file sizes (ulimit -f)");
}

Result<UniqueFd> make_sealed_memory(const char* name, std::size_t size_bytes) {
  STRAIT_TRY(check_file_size(size_bytes));
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd)
    return fail_errno("cannot create shared memory (memfd_create)", errno,
                      "Raise the limit of open files (ulimit -n) if it is reached");
  if (ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return fail_errno("cannot size " + std::to_string(size_bytes >> 20) + " MB of shared memory", errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return fail_errno("cannot seal shared memory", errno);
  return fd;
}

SharedHeap::SharedHeap(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {
  free_[0] = size_bytes;
}

Result<SharedHeap*> SharedHeap::instance() {
  static std::mutex mutex;
  static SharedHeap* heap = nullptr;  // never freed: programs may hold blocks until the process ends
  static pid_t owner = 0;             // a forked child shares its parent's memory, so it needs a heap of its own
  const std::lock_guard lock(mutex);
  if (owner != getpid()) {
    STRAIT_ASSIGN(heap, make());
    owner = getpid();
  }
  return heap;
}

Result<SharedHeap*> SharedHeap::make() {
  STRAIT_ASSIGN(UniqueFd fd, make_sealed_memory("strait-heap", size_bytes));
  STRAIT_ASSIGN(Mapping mapping, Mapping::of_file(fd.get(), size_bytes));
  return new SharedHeap(std::move(fd), std::move(mapping));
}

Result<void*> SharedHeap::allocate(std::size_t bytes) {
  const std::size_t wanted = (std::max<std::size_t>(bytes, 1) + page_bytes - 1) / page_bytes * page_bytes;
  const std::lock_guard lock(mutex_);
  const auto hole = std::find_if(free_.begin(), free_.end(), [&](const auto& block) { return block.second >= wanted; });
  if (wanted < bytes || hole == free_.end())
    return fail(Code::out_of_memory, "no " + std::to_string(bytes >> 20) +
                                         " MB in one piece left in the shared heap (" +
                                         std::to_string(size_bytes >> 30) + " GB of addresses)");
  const auto [offset, size] = *hole;
  free_.erase(hole);
  if (size > wanted) free_[offset + wanted] = size - wanted;
  used_[offset] = wanted;
  return base() + offset;
}

Status SharedHeap::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  auto block = used_.end();
  if (pointer >= base() && pointer < base() + size_bytes)
    block = used_.find(static_cast<std::size_t>(static_cast<std::byte*>(pointer) - base()));
  if (block == used_.end())
    return fail(Code::invalid_argument, "this pointer is not the start of a block from straitMemAlloc");
  auto [offset, size] = *block;
  used_.erase(block);
  fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return {};
    }
  }
  free_[offset] = size;
  return {};
}

bool SharedHeap::contains(const void* pointer, std::size_t bytes) const {
  if (pointer < base() || pointer >= base() + size_bytes) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - base());
  const std::lock_guard lock(mutex_);
  auto block = used_.upper_bound(offset);
  if (block == used_.begin()) return false;
  --block;
  return offset < block->first + block->second && bytes <= block->first + block->second - offset;
}

}  // namespace strait::shm
