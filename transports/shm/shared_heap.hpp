#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/mapping.hpp"
#include "base/unique_fd.hpp"

namespace strait::shm {

/// The memory behind straitMemAlloc: one large, sparse, sealed memfd per process, which peers on the host map as a
/// whole when a communicator is made, so that a block's offset is the same for all of them. Thread-safe.
class SharedHeap {
 public:
  static constexpr std::size_t size_bytes = std::size_t{64} << 30;  ///< address space; memory is allocated page by page

  /// Returns the process's heap, which the first call makes. It is never freed.
  static Result<SharedHeap*> instance();

  /// Allocates page-aligned, zeroed memory.
  Result<void*> allocate(std::size_t bytes);
  /// Frees a block from allocate(), and returns its memory to the system.
  Status release(void* pointer);
  /// Whether the whole range lies within one block of this heap.
  bool contains(const void* pointer, std::size_t bytes) const;

  std::byte* base() const { return mapping_.data(); }
  int fd() const { return fd_.get(); }

 private:
  SharedHeap(UniqueFd fd, Mapping mapping);
  static Result<SharedHeap*> make();

  UniqueFd fd_;
  Mapping mapping_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  ///< offset -> bytes, coalesced
  std::map<std::size_t, std::size_t> used_;  ///< offset -> bytes
};

/// Fails if `bytes` exceed the limit of file sizes, where the kernel would kill the process (SIGXFSZ).
Status check_file_size(std::size_t bytes);
/// Makes a memfd of this size that nobody can shrink, grow or unseal, so that its readers need not fear SIGBUS.
Result<UniqueFd> make_sealed_memory(const char* name, std::size_t size_bytes);

}  // namespace strait::shm
