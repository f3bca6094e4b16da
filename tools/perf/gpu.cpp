#include "perf/gpu.hpp"

#include <sched.h>

#include "base/deadline.hpp"
#include "owned_comm.hpp"
#include "perf/call.hpp"

namespace strait::perf {
namespace {

constexpr unsigned polls_a_look = 1024;             // queries of the stream between looks at the communicator
constexpr std::int64_t longest_ending_ms = 10'000;  // of kernels, once their communicator has failed

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::open(straitComm_t control, int device, int timeout_ms,
                                       std::optional<WireFormat> wire) {
  int rank = 0;
  STRAIT_TRY(checked(straitCommUserRank(control, &rank), control, "straitCommUserRank"));
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.device = device;
  if (wire) config.wire = straitWireOff + static_cast<int>(*wire);
  if (timeout_ms > 0) config.timeout_ms = timeout_ms;
  straitComm_t comm = nullptr;
  // First of all, because a library built without CUDA says so here.
  STRAIT_TRY(checked(straitCommSplit(control, 0, rank, &comm, &config), nullptr, "Joining the GPU ranks"));
  tools::OwnedComm owner(comm);
  STRAIT_ASSIGN(auto driver, topo::CudaDriver::open());
  std::unique_ptr<Gpu> gpu(new Gpu(std::move(driver), device));
  STRAIT_ASSIGN(gpu->stream_, gpu->driver_->stream(device));
  gpu->comm_ = owner.release();
  return gpu;
}

Gpu::~Gpu() { straitCommDestroy(comm_); }

Status Gpu::copy_to_gpu(const topo::CudaMemory& to, const topo::CudaMemory& from, std::size_t size_bytes) {
  if (size_bytes != 0) STRAIT_TRY(driver_->to_gpu(stream_, to, from, size_bytes));
  return wait();
}

Status Gpu::copy_to_host(const topo::CudaMemory& to, const topo::CudaMemory& from, std::size_t size_bytes) {
  if (size_bytes != 0) STRAIT_TRY(driver_->to_host(stream_, to, from, size_bytes));
  return wait();
}

Status Gpu::wait() {
  for (unsigned polls = 1;; ++polls) {
    STRAIT_ASSIGN(const bool done, driver_->is_done(stream_));
    if (!done && polls % polls_a_look != 0) continue;
    straitResult_t error = straitSuccess;
    STRAIT_TRY(checked(straitCommGetAsyncError(comm_, &error), comm_, "straitCommGetAsyncError"));
    if (error != straitSuccess) {
      // What the communicator knows says more than that its kernels do not end.
      if (!done) (void)driver_->wait(stream_, Deadline::after_ms(longest_ending_ms));
      return checked(error, comm_, "A call on a GPU");
    }
    if (done) return {};
    if (other_error_) STRAIT_TRY(other_error_());
    sched_yield();
  }
}

}  // namespace strait::perf
