#include "base/mapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <string>

namespace strait {

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

Result<Mapping> Mapping::map(int flags, int fd, std::size_t size_bytes) {
  void* memory = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED)
    return fail_errno("cannot map " + std::to_string(size_bytes >> 20) + " MB of memory", errno,
                      "Check the limit of address space (ulimit -v) and the memory limit of the container");
  return Mapping(static_cast<std::byte*>(memory), size_bytes);
}

Result<Mapping> Mapping::of_file(int fd, std::size_t size_bytes) { return map(MAP_SHARED, fd, size_bytes); }

Result<Mapping> Mapping::anonymous(std::size_t size_bytes) { return map(MAP_PRIVATE | MAP_ANONYMOUS, -1, size_bytes); }

}  // namespace strait
