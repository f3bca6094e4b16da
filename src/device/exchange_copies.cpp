#include "device/exchange_copies.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "executor/cuda/runtime.hpp"

namespace strait {

using cuda::check;

namespace {

/// Most bytes of a copy; a round of more makes several. Two of them are the least that can be allocated on a GPU.
constexpr std::size_t most_chunk_bytes = std::size_t{1} << 20, alignment = 4096;
constexpr auto poll_interval = std::chrono::microseconds(50);

}  // namespace

struct ExchangeCopies::State {
  explicit State(Setup with)
      : setup(std::move(with)),
        chunk_bytes(std::min(most_chunk_bytes, setup.host.size() / 2 / alignment * alignment)),
        what("copies between GPU " + std::to_string(setup.device) + " and host memory") {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  Status prepare();
  Status enqueue(std::size_t bytes);
  Status await();

  Setup setup;
  std::size_t chunk_bytes;  ///< of a copy, at most
  std::string what;         ///< for errors
  cuda::DeviceMemory memory;
  cudaStream_t up = nullptr, down = nullptr;
  cudaEvent_t begin = nullptr, up_end = nullptr, down_end = nullptr;
  bool in_flight = false;
};

Status ExchangeCopies::State::prepare() {
  if (chunk_bytes == 0)
    return fail(Code::unsupported, what + " have " + std::to_string(setup.host.size()) + " bytes, and need more");
  STRAIT_ASSIGN(memory, cuda::DeviceMemory::allocate(setup.device, 2 * chunk_bytes));
  for (cudaStream_t* stream : {&up, &down})
    STRAIT_TRY(check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cannot create a stream"));
  for (cudaEvent_t* event : {&begin, &up_end, &down_end})
    STRAIT_TRY(check(cudaEventCreate(event), "cannot create an event"));
  return {};
}

ExchangeCopies::State::~State() {
  const cuda::DeviceGuard guard(setup.device);
  const cuda::RelaxedCapture relaxed;
  for (cudaEvent_t event : {begin, up_end, down_end})
    if (event != nullptr) cudaEventDestroy(event);
  for (cudaStream_t stream : {up, down})
    if (stream != nullptr) cudaStreamDestroy(stream);
}

Status ExchangeCopies::State::enqueue(std::size_t bytes) {
  std::byte *const host = setup.host.data(), *const device = memory.data();
  STRAIT_TRY(check(cudaEventRecord(begin, up), what));
  STRAIT_TRY(check(cudaStreamWaitEvent(down, begin, 0), what));
  for (std::size_t done = 0; done < bytes; done += chunk_bytes) {
    const std::size_t now = std::min(chunk_bytes, bytes - done);
    STRAIT_TRY(check(cudaMemcpyAsync(host, device, now, cudaMemcpyDeviceToHost, up), what));
    STRAIT_TRY(
        check(cudaMemcpyAsync(device + chunk_bytes, host + chunk_bytes, now, cudaMemcpyHostToDevice, down), what));
  }
  STRAIT_TRY(check(cudaEventRecord(up_end, up), what));
  return check(cudaEventRecord(down_end, down), what);
}

Status ExchangeCopies::State::await() {
  for (cudaStream_t stream : {up, down})
    for (;;) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaSuccess) break;
      if (state != cudaErrorNotReady) return check(state, what + " failed");
      if (const Status goes_on = setup.goes_on(); !goes_on)
        return fail(goes_on.error().code, what + " have not ended: " + goes_on.error().message);
      cudaGetLastError();
      std::this_thread::sleep_for(poll_interval);
    }
  in_flight = false;
  return {};
}

Result<ExchangeCopies> ExchangeCopies::open(Setup setup) {
  const cuda::DeviceGuard guard(setup.device);
  const cuda::RelaxedCapture relaxed;
  auto state = std::make_unique<State>(std::move(setup));
  STRAIT_TRY(state->prepare());
  return ExchangeCopies(std::move(state));
}

ExchangeCopies::ExchangeCopies(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExchangeCopies::ExchangeCopies(ExchangeCopies&& other) noexcept = default;
ExchangeCopies::~ExchangeCopies() {
  if (state_ && state_->in_flight) (void)state_.release();
}

bool ExchangeCopies::have_ended() const { return !state_->in_flight; }

Result<std::chrono::nanoseconds> ExchangeCopies::copy(std::size_t bytes) {
  const cuda::DeviceGuard guard(state_->setup.device);
  const cuda::RelaxedCapture relaxed;
  state_->in_flight = true;
  const Status enqueued = state_->enqueue(bytes);
  STRAIT_TRY(state_->await());  // also for what was enqueued before an error
  STRAIT_TRY(enqueued);
  float up_ms = 0, down_ms = 0;
  STRAIT_TRY(check(cudaEventElapsedTime(&up_ms, state_->begin, state_->up_end), state_->what));
  STRAIT_TRY(check(cudaEventElapsedTime(&down_ms, state_->begin, state_->down_end), state_->what));
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::max(up_ms, down_ms) * 1e6));
}

}  // namespace strait
