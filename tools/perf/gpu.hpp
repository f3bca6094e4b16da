#pragma once

#include <strait/strait.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/wire_format.hpp"
#include "topo/cuda_driver.hpp"

namespace strait::perf {

/// What a GPU rank measures with: a communicator of GPU ranks, beside the one of host ranks by which the ranks agree on
/// times and sizes; a stream; and the driver for memory and copies. Used by one thread.
class Gpu {
 public:
  /// Joins the GPU ranks, in the order of `control`. Collective over `control`. `timeout_ms`: the deadline of its
  /// operations; 0: as STRAIT_TIMEOUT_MS says. `wire`: the communicator's; none: STRAIT_WIRE's.
  static Result<std::unique_ptr<Gpu>> open(straitComm_t control, int device, int timeout_ms = 0,
                                           std::optional<WireFormat> wire = {});
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  straitComm_t comm() const { return comm_; }
  straitStream_t stream() const { return stream_.handle(); }
  int device() const { return device_; }
  Result<std::string> name() { return driver_->name(device_); }
  Result<std::string> bus_id() { return driver_->bus_id(device_); }
  Result<std::size_t> free_bytes() { return driver_->free_bytes(device_); }

  topo::CudaDriver& driver() { return *driver_; }
  /// Makes it the current one of the calling thread.
  Status use() { return driver_->use(device_); }
  /// What `enqueue` puts on the stream, to be launched instead.
  Result<topo::CudaGraph> record(const std::function<Status()>& enqueue) { return driver_->record(stream_, enqueue); }
  Status launch(const topo::CudaGraph& graph) { return driver_->launch(graph, stream_); }

  Result<topo::CudaMemory> memory(std::size_t size_bytes) { return driver_->gpu_memory(device_, size_bytes); }
  /// Pinned memory of the host.
  Result<topo::CudaMemory> staging(std::size_t size_bytes) { return driver_->host_memory(size_bytes, device_); }
  Status copy_to_gpu(const topo::CudaMemory& to, const topo::CudaMemory& from, std::size_t size_bytes);
  Status copy_to_host(const topo::CudaMemory& to, const topo::CudaMemory& from, std::size_t size_bytes);

  /// Until the stream is done. Ends with the communicator's error where it has one: its deadline and failures of peers
  /// end its kernels.
  Status wait();
  /// Another library's work is on the stream, too: its errors end a wait.
  void also_ask(std::function<Status()> error) { other_error_ = std::move(error); }

 private:
  Gpu(std::shared_ptr<topo::CudaDriver> driver, int device) : driver_(std::move(driver)), device_(device) {}

  std::shared_ptr<topo::CudaDriver> driver_;
  int device_;
  topo::CudaStream stream_;
  straitComm_t comm_ = nullptr;
  std::function<Status()> other_error_;
};

}  // namespace strait::perf
