#pragma once

#include <strait/strait.h>

#include <cstddef>

#include "base/error.hpp"
#include "perf/gpu.hpp"
#include "topo/cuda_driver.hpp"

namespace strait::perf {

/// A buffer of a rank, page aligned: from malloc, or from the library and registered; or on a GPU, registered or not,
/// with a pinned copy on the host in which contents are written and read.
class Memory {
 public:
  static Result<Memory> plain(std::size_t size_bytes);
  /// Collective over `comm`.
  static Result<Memory> registered(std::size_t size_bytes, straitComm_t comm);
  /// `gpu` must outlive it. The host reads and writes the first `staged_bytes`.
  static Result<Memory> on_gpu(std::size_t size_bytes, std::size_t staged_bytes, Gpu& gpu);
  /// The same, registered. Collective over the GPU ranks.
  static Result<Memory> registered_on_gpu(std::size_t size_bytes, std::size_t staged_bytes, Gpu& gpu);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  /// What the collectives are given.
  void* data() const;
  /// What the host reads and writes: the buffer itself unless it is on a GPU.
  void* host() const;
  /// Make the first bytes of the buffer those of host(), or the reverse. Complete on return.
  Status from_host(std::size_t size_bytes);
  Status to_host(std::size_t size_bytes);

 private:
  Memory(void* data, straitComm_t comm) : data_(data), comm_(comm) {}

  Status enter(std::size_t size_bytes);

  void* data_ = nullptr;         ///< null: owned by device_
  straitComm_t comm_ = nullptr;  ///< registered with it; null: from malloc
  void* handle_ = nullptr;
  Gpu* gpu_ = nullptr;
  topo::CudaMemory device_;
  topo::CudaMemory staging_;
};

}  // namespace strait::perf
