#include "communicator/call_order.hpp"

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "executor/cuda/runtime.hpp"

namespace strait {
namespace {

using cuda::check;
using cuda::DeviceGuard;

/// What is asked of a stream that is in the user's hand.
struct Stream {
  std::uint64_t id = 0;          ///< in a capture its address, for there nothing else may be asked
  std::uint64_t capture_id = 0;  ///< 0: it is not being captured
};

Result<Stream> look_at(void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  unsigned long long id = 0, capture_id = 0;
  cudaStreamCaptureStatus status{};
  STRAIT_TRY(check(cudaStreamGetCaptureInfo(cuda_stream, &status, &capture_id), "the stream cannot be used"));
  if (status != cudaStreamCaptureStatusNone) return Stream{reinterpret_cast<std::uintptr_t>(stream), capture_id};
  STRAIT_TRY(check(cudaStreamGetId(cuda_stream, &id), "the stream cannot be used"));
  return Stream{id, 0};
}

Status create_event(cudaEvent_t& event) {
  return check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cannot create an event");
}

}  // namespace

Result<CallOrder> CallOrder::create(int device) {
  const DeviceGuard guard(device);
  CallOrder order;
  order.device_ = device;
  for (Event* event : {&order.eager_.done, &order.captured_.done, &order.order_}) STRAIT_TRY(create_event(*event));
  return order;
}

CallOrder::~CallOrder() {
  for (const Event event : {eager_.done, captured_.done, order_})
    if (event != nullptr) cudaEventDestroy(event);
}

CallOrder& CallOrder::operator=(CallOrder&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(eager_, other.eager_);
  std::swap(captured_, other.captured_);
  std::swap(order_, other.order_);
  has_run_ = other.has_run_.load();
  has_captured_ = other.has_captured_.load();
  return *this;
}

Status CallOrder::begin(void* stream) {
  const DeviceGuard guard(device_);  // whose default stream it is, if it is that
  STRAIT_ASSIGN(const Stream now, look_at(stream));
  const Last& last = now.capture_id == 0 ? eager_ : captured_;
  if (!last.exists || last.capture_id != now.capture_id || last.stream_id == now.id) return {};
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), last.done, 0), "cannot order two streams");
}

Status CallOrder::end(void* stream) {
  const DeviceGuard guard(device_);
  STRAIT_ASSIGN(const Stream now, look_at(stream));
  Last& last = now.capture_id == 0 ? eager_ : captured_;
  STRAIT_TRY(check(cudaEventRecord(last.done, static_cast<cudaStream_t>(stream)), "cannot order two streams"));
  last.exists = true;
  last.stream_id = now.id;
  last.capture_id = now.capture_id;
  if (now.capture_id != 0) has_captured_ = true;
  has_run_ = true;
  return {};
}

Status CallOrder::order(void* first, void* then) {
  const DeviceGuard guard(device_);
  STRAIT_TRY(check(cudaEventRecord(order_, static_cast<cudaStream_t>(first)), "cannot order two streams"));
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(then), order_, 0), "cannot order two streams");
}

std::optional<bool> CallOrder::is_idle() const {
  if (!has_run_) return true;
  const DeviceGuard guard(device_);
  auto mode = cudaStreamCaptureModeRelaxed;  // the question must not spoil what another thread captures
  cudaThreadExchangeStreamCaptureMode(&mode);
  const cudaError_t state = cudaEventQuery(eager_.done);
  if (state == cudaErrorNotReady) cudaGetLastError();
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (state == cudaErrorNotReady) return false;
  if (state != cudaSuccess || has_captured_) return std::nullopt;
  return true;
}

}  // namespace strait
