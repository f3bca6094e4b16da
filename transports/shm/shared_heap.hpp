#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "base/mapping.hpp"
#include "base/unique_fd.hpp"

namespace strait::shm {

/// The memory behind straitMemAlloc: one large, sparse, sealed memfd a process, which peers on the host map whole when
/// a communicator is made. A block's offset therefore means the same to all of them. Threads may share it.
class SharedHeap {
 public:
  static constexpr std::size_t size_bytes = std::size_t{64} << 30;  ///< addresses; memory is taken page by page

  /// The process's heap, made at the first call.
  static Result<SharedHeap*> instance();

  /// `bytes` of page-aligned memory, zeroed.
  Result<void*> allocate(std::size_t bytes);
  /// Gives back a block of allocate(), its memory too.
  Status release(void* pointer);
  /// Whether all of the range lies in blocks of this heap.
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

/// An error where the limit of file sizes is below: the kernel would end the process by a signal (SIGXFSZ).
Status check_file_size(std::size_t bytes);
/// A memfd of this size that nobody can shrink, grow or unseal: its readers need not fear SIGBUS.
Result<UniqueFd> make_sealed_memory(const char* name, std::size_t size_bytes);

}  // namespace strait::shm
