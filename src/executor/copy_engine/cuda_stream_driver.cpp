#include "executor/copy_engine/cuda_stream_driver.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "executor/cuda/driver.hpp"
#include "executor/cuda/runtime.hpp"

namespace strait::copy_engine {
namespace {

using cuda::check;
using cuda::DeviceGuard;
using cuda::RelaxedCapture;

constexpr unsigned wait_flags(MemoryOperation::Kind kind) {
  return kind == MemoryOperation::Kind::wait_equal ? CU_STREAM_WAIT_VALUE_EQ : CU_STREAM_WAIT_VALUE_GEQ;
}

class CudaStreams final : public StreamDriver {
 public:
  explicit CudaStreams(int device) : device_(device) {}
  Status prepare();

  Result<Stream> create_stream() override;
  void destroy_stream(Stream stream) override;
  Result<Event> create_event() override;
  void destroy_event(Event event) override;
  Result<StreamState> look_at(Stream stream) override;
  Status record(Event event, Stream stream) override;
  Status wait(Stream stream, Event event) override;
  Status wait_external(Stream stream, Event event) override;
  Status record_external(Event event, Stream stream, GraphEnd& end) override;
  Status copy(const RowCopy& copy, Stream stream) override;
  Status operate(std::span<const MemoryOperation> operations, Stream stream) override;
  bool is_idle(Stream stream) override;
  std::optional<bool> has_passed(Event event) override;

 private:
  Status check_call(CUresult result, const char* what) const;
  Status check_device(Stream stream) const;
  Status operate_batch(std::span<const MemoryOperation> operations, Stream stream);

  int device_;
  const cuda::Driver* driver_ = nullptr;
  std::size_t most_pitch_bytes_ = 0;
  std::vector<CUstreamBatchMemOpParams> batch_;
  /// Ids of streams that are known to belong to this device. Ids are never reused.
  std::array<std::uint64_t, 8> known_streams_{};
  std::size_t next_known_ = 0;
};

Status CudaStreams::prepare() {
  STRAIT_ASSIGN(driver_, cuda::Driver::instance());
  int most_pitch_bytes = 0;
  STRAIT_TRY(check(cudaDeviceGetAttribute(&most_pitch_bytes, cudaDevAttrMaxPitch, device_),
                   "cannot ask GPU " + std::to_string(device_) + " for the largest pitch of a copy"));
  most_pitch_bytes_ = static_cast<std::size_t>(most_pitch_bytes);
  return {};
}

Result<StreamDriver::Stream> CudaStreams::create_stream() {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  cudaStream_t stream = nullptr;
  STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream"));
  return static_cast<Stream>(stream);
}

void CudaStreams::destroy_stream(Stream stream) { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

Result<StreamDriver::Event> CudaStreams::create_event() {
  const DeviceGuard guard(device_);
  cudaEvent_t event = nullptr;
  STRAIT_TRY(check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cannot create an event"));
  return static_cast<Event>(event);
}

void CudaStreams::destroy_event(Event event) { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

Result<StreamState> CudaStreams::look_at(Stream stream) {
  const DeviceGuard guard(device_);  // the default stream is that of the current device
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  unsigned long long id = 0, capture_id = 0;
  cudaStreamCaptureStatus status{};
  const cudaError_t looked = cudaStreamGetCaptureInfo(cuda_stream, &status, &capture_id);
  if (looked == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return fail(Code::invalid_usage,
                "the default stream cannot be used while a stream that waits for it is being captured. Give the call "
                "another stream");
  }
  STRAIT_TRY(check(looked, "the stream cannot be used"));
  if (status == cudaStreamCaptureStatusInvalidated)  // CUDA reports no id for such a capture
    return fail(Code::invalid_usage,
                "an error has ended the capture of its stream, and whatever the stream is given fails until "
                "cudaStreamEndCapture() is called");
  if (status != cudaStreamCaptureStatusNone) {
    STRAIT_TRY(check_device(stream));
    return StreamState{reinterpret_cast<std::uintptr_t>(stream), capture_id};
  }
  STRAIT_TRY(check(cudaStreamGetId(cuda_stream, &id), "the stream cannot be used"));
  if (std::find(known_streams_.begin(), known_streams_.end(), id) == known_streams_.end()) {
    STRAIT_TRY(check_device(stream));
    known_streams_[next_known_++ % known_streams_.size()] = id;
  }
  return StreamState{id, 0};
}

/// Checks that the stream belongs to this device. A kernel runs on its stream's device, where this device's addresses
/// mean nothing.
Status CudaStreams::check_device(Stream stream) const {
  CUcontext context = nullptr;
  CUdevice device = device_;
  constexpr const char* what = "cannot tell which GPU a stream is of";
  STRAIT_TRY(check_call(driver_->get_stream_context(static_cast<CUstream>(stream), &context), what));
  STRAIT_TRY(check_call(driver_->push_context(context), what));
  const CUresult told = driver_->get_context_device(&device);
  STRAIT_TRY(check_call(driver_->pop_context(&context), what));
  STRAIT_TRY(check_call(told, what));
  if (device == device_) return {};
  return fail(Code::invalid_usage, "the stream is of GPU " + std::to_string(device) +
                                       ", and the communicator's rank of GPU " + std::to_string(device_) +
                                       ". Create it while that one is the current device");
}

Status CudaStreams::record(Event event, Stream stream) {
  const DeviceGuard guard(device_);
  return check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
               "cannot record an event");
}

Status CudaStreams::wait(Stream stream, Event event) {
  const DeviceGuard guard(device_);
  return check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
               "cannot let a stream wait for an event");
}

Status CudaStreams::wait_external(Stream stream, Event event) {
  const DeviceGuard guard(device_);
  return check(
      cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), cudaEventWaitExternal),
      "cannot let a graph wait for an event");
}

Status CudaStreams::record_external(Event event, Stream stream, GraphEnd& end) {
  const DeviceGuard guard(device_);
  constexpr const char* what = "cannot record an event at the end of a graph";
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  const CUgraphNode* last = nullptr;
  std::size_t count = 0;
  STRAIT_TRY(check_call(
      driver_->get_capture_info(static_cast<CUstream>(stream), &status, nullptr, &graph, &last, &count), what));
  const std::vector<void*> behind(last, last + count);
  const auto has = [](const std::vector<void*>& nodes, void* node) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  const auto each_edge = [&](auto change, const std::vector<void*>& nodes, const std::vector<void*>& others) -> Status {
    for (void* const each : nodes) {
      if (has(others, each)) continue;
      const auto from = static_cast<CUgraphNode>(each), to = static_cast<CUgraphNode>(end.node);
      STRAIT_TRY(check_call(change(graph, &from, &to, 1), what));
    }
    return {};
  };
  if (end.node == nullptr) {
    CUgraphNode node = nullptr;
    STRAIT_TRY(
        check_call(driver_->add_event_record_node(&node, graph, last, count, static_cast<CUevent>(event)), what));
    end.node = node;
  } else {
    // Only behind the last call, which comes after the others: kernels whose end several nodes await take longer to
    // end.
    STRAIT_TRY(each_edge(driver_->add_dependencies, behind, end.behind));
    STRAIT_TRY(each_edge(driver_->remove_dependencies, end.behind, behind));
  }
  end.behind = behind;
  return {};
}

Status CudaStreams::copy(const RowCopy& copy, Stream stream) {
  const DeviceGuard guard(device_);
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const auto check_copy = [&](cudaError_t result) -> Status {
    if (result == cudaSuccess) return {};
    return check(result, "cannot enqueue a copy of " + std::to_string(copy.rows) + " x " +
                             std::to_string(copy.row_bytes) + " bytes");
  };
  if (copy.rows > 1 && std::max(copy.to_pitch_bytes, copy.from_pitch_bytes) <= most_pitch_bytes_)
    return check_copy(cudaMemcpy2DAsync(copy.to, copy.to_pitch_bytes, copy.from, copy.from_pitch_bytes, copy.row_bytes,
                                        copy.rows, cudaMemcpyDefault, cuda_stream));
  for (std::size_t row = 0; row < copy.rows; ++row)
    STRAIT_TRY(check_copy(cudaMemcpyAsync(static_cast<std::byte*>(copy.to) + row * copy.to_pitch_bytes,
                                          static_cast<const std::byte*>(copy.from) + row * copy.from_pitch_bytes,
                                          copy.row_bytes, cudaMemcpyDefault, cuda_stream)));
  return {};
}

Status CudaStreams::operate(std::span<const MemoryOperation> operations, Stream stream) {
  constexpr std::size_t most_in_a_batch = 255;  // the driver's limit
  const DeviceGuard guard(device_);
  if (operations.size() == 1 && operations.front().kind != MemoryOperation::Kind::clear_pair) {
    const MemoryOperation& one = operations.front();
    const auto word = reinterpret_cast<CUdeviceptr>(one.word);
    const auto cuda_stream = static_cast<CUstream>(stream);
    if (one.kind == MemoryOperation::Kind::write)
      return check_call(driver_->write_value(cuda_stream, word, one.value, CU_STREAM_WRITE_VALUE_DEFAULT),
                        "cannot let a stream write a word");
    return check_call(driver_->wait_value(cuda_stream, word, one.value, wait_flags(one.kind)),
                      "cannot let a stream wait for a word");
  }
  while (!operations.empty()) {
    const std::size_t count = std::min(operations.size(), most_in_a_batch);
    STRAIT_TRY(operate_batch(operations.first(count), stream));
    operations = operations.subspan(count);
  }
  return {};
}

Status CudaStreams::operate_batch(std::span<const MemoryOperation> operations, Stream stream) {
  batch_.clear();
  for (const MemoryOperation& operation : operations) {
    CUstreamBatchMemOpParams parameters{};
    if (operation.kind == MemoryOperation::Kind::write) {
      parameters.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      parameters.writeValue.address = reinterpret_cast<CUdeviceptr>(operation.word);
      parameters.writeValue.value = operation.value;
      parameters.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    } else if (operation.kind == MemoryOperation::Kind::clear_pair) {
      parameters.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
      parameters.writeValue.address = reinterpret_cast<CUdeviceptr>(operation.word);
      parameters.writeValue.value64 = 0;
      parameters.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    } else {
      parameters.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
      parameters.waitValue.address = reinterpret_cast<CUdeviceptr>(operation.word);
      parameters.waitValue.value = operation.value;
      parameters.waitValue.flags = wait_flags(operation.kind);
    }
    batch_.push_back(parameters);
  }
  return check_call(driver_->batch_memory_operations(static_cast<CUstream>(stream),
                                                     static_cast<unsigned>(batch_.size()), batch_.data(), 0),
                    "cannot let a stream write and wait for words");
}

bool CudaStreams::is_idle(Stream stream) {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  const cudaError_t state = cudaStreamQuery(static_cast<cudaStream_t>(stream));
  if (state == cudaErrorNotReady) cudaGetLastError();
  return state != cudaErrorNotReady;
}

std::optional<bool> CudaStreams::has_passed(Event event) {
  const DeviceGuard guard(device_);
  const RelaxedCapture relaxed;
  const cudaError_t state = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (state == cudaErrorNotReady) cudaGetLastError();
  if (state == cudaSuccess || state == cudaErrorNotReady) return state == cudaSuccess;
  return std::nullopt;
}

Status CudaStreams::check_call(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  return driver_->check(result, std::string(what) + " (GPU " + std::to_string(device_) + ")");
}

}  // namespace

Result<std::unique_ptr<StreamDriver>> open_cuda_streams(int device) {
  auto streams = std::make_unique<CudaStreams>(device);
  STRAIT_TRY(streams->prepare());
  return streams;
}

}  // namespace strait::copy_engine
