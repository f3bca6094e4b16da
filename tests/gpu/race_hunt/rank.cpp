#include "gpu/race_hunt/rank.hpp"

#include <chrono>
#include <thread>

#include "perf/arguments.hpp"
#include "perf/call.hpp"

namespace strait::race {

using cuda::check;
using perf::Segment;

Rank::~Rank() {
  cuda::DeviceGuard guard(place_.device);
  for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  if (order_ != nullptr) cudaEventDestroy(order_);
}

Status Rank::prepare() {
  STRAIT_TRY(cuda::check(cudaSetDevice(place_.device), "cannot use a GPU"));
  STRAIT_TRY(cuda::check(load_kernels(), "cannot load the kernels of the hunt"));
  const std::size_t bytes = buffer_bytes(place_.limits);
  for (std::uint32_t s = 0; s < place_.limits.streams; ++s) {
    streams_.push_back(nullptr);
    STRAIT_TRY(cuda::check(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking), "cannot make a stream"));
    for (std::size_t member = 0; member < most_together; ++member) {
      STRAIT_ASSIGN(auto memory, cuda::DeviceMemory::allocate_uncleared(place_.device, bytes));
      STRAIT_TRY(cuda::check(cudaMemset(memory.data(), poison, bytes), "cannot poison a buffer"));
      buffers_.push_back(std::move(memory));
    }
  }
  STRAIT_ASSIGN(finding_memory_, cuda::DeviceMemory::allocate(place_.device, sizeof(Finding)));
  finding_.call = ~0ull;
  STRAIT_TRY(cuda::check(cudaMemcpy(finding_memory_.data(), &finding_, sizeof finding_, cudaMemcpyHostToDevice),
                         "cannot write to a GPU"));
  STRAIT_TRY(cuda::check(cudaEventCreateWithFlags(&order_, cudaEventDisableTiming), "cannot make an event"));
  return cuda::check(cudaDeviceSynchronize(), "cannot prepare a GPU");
}

Status Rank::run(const Batch& batch, std::uint64_t number, std::uint64_t first_call) {
  Random random(mix(mix(place_.seed, number), place_.rank + 1));  // differs between ranks
  cudaGraphExec_t graph = nullptr;
  std::uint64_t captured = 0;
  if (!batch.captured.empty()) {
    STRAIT_ASSIGN(graph, record(batch, random, first_call));
    for (const Step& step : batch.captured) captured += step.calls.size();
  }
  std::uint64_t call = first_call + captured;  // calls of a replay have the numbers of the captured ones
  auto launch = batch.launches.begin();
  for (std::size_t i = 0; i < batch.eager.size(); ++i) {
    for (; launch != batch.launches.end() && *launch == i; ++launch) {
      STRAIT_TRY(order(batch.graph_stream, true));
      STRAIT_TRY(cuda::check(cudaGraphLaunch(graph, streams_[batch.graph_stream]), "cannot launch a graph"));
    }
    STRAIT_TRY(order(batch.eager[i].stream, false));
    STRAIT_TRY(run(batch.eager[i], random, call, false));
    call += batch.eager[i].calls.size();
  }
  return {};
}

Status Rank::finish() {
  for (cudaStream_t stream : streams_) STRAIT_TRY(cuda::check(cudaStreamSynchronize(stream), "a GPU failed"));
  for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  graphs_.clear();
  STRAIT_TRY(cuda::check(cudaMemcpy(&finding_, finding_memory_.data(), sizeof finding_, cudaMemcpyDeviceToHost),
                         "cannot read from a GPU"));
  straitResult_t error = straitSuccess;
  STRAIT_TRY(perf::checked(straitCommGetAsyncError(comm_, &error), comm_, "straitCommGetAsyncError"));
  return perf::checked(error, comm_, "a call");
}

Status Rank::order(std::uint32_t stream, bool is_graph) {
  if (stream != last_stream_ && (is_graph || last_was_graph_)) {
    STRAIT_TRY(cuda::check(cudaEventRecord(order_, streams_[last_stream_]), "cannot order streams"));
    STRAIT_TRY(cuda::check(cudaStreamWaitEvent(streams_[stream], order_, 0), "cannot order streams"));
  }
  last_stream_ = stream;
  last_was_graph_ = is_graph;
  return {};
}

Result<cudaGraphExec_t> Rank::record(const Batch& batch, Random& random, std::uint64_t first_call) {
  cudaStream_t stream = streams_[batch.graph_stream];
  STRAIT_TRY(cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture"));
  std::uint64_t call = first_call;
  launches_ = batch.launches.size();
  for (const Step& step : batch.captured) {
    STRAIT_TRY(run(step, random, call, true));
    call += step.calls.size();
  }
  launches_ = 1;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  STRAIT_TRY(cuda::check(cudaStreamEndCapture(stream, &graph), "cannot capture"));
  const cudaError_t made = cudaGraphInstantiate(&ready, graph, 0);
  cudaGraphDestroy(graph);
  STRAIT_TRY(cuda::check(made, "cannot instantiate a graph"));
  graphs_.push_back(ready);
  return ready;
}

Status Rank::run(const Step& step, Random& random, std::uint64_t first_call, bool captures) {
  cudaStream_t stream = streams_[step.stream];
  std::vector<HuntedCall> calls = step.calls;
  for (std::size_t i = 0; i < calls.size(); ++i) STRAIT_TRY(enter(calls[i], buffer(step.stream, i), stream));
  STRAIT_TRY(pause(random, stream, captures));
  const bool is_group = calls.size() > 1;
  if (is_group) STRAIT_TRY(perf::checked(straitGroupStart(), comm_, "straitGroupStart"));
  for (std::size_t i = 0; i < calls.size(); ++i) STRAIT_TRY(call(calls[i], buffer(step.stream, i), stream));
  if (is_group) STRAIT_TRY(perf::checked(straitGroupEnd(), comm_, "straitGroupEnd"));
  for (std::size_t i = 0; i < calls.size(); ++i)
    STRAIT_TRY(check(calls[i], buffer(step.stream, i), stream, first_call + i));
  return {};
}

namespace {

/// Returns where a call's buffer begins in its memory, after a guard.
std::byte* begin_of(const HuntedCall& call, std::byte* memory) {
  return memory + (call.skew + perf::guard_elements) * size_bytes(call.operation.type);
}

}  // namespace

/// Sets up a call: for calls in place, copies the input to the buffer.
Status Rank::enter(HuntedCall& call, std::byte* memory, cudaStream_t stream) {
  call.operation.rank = place_.rank;
  const std::size_t width = size_bytes(call.operation.type);
  for (const Segment& segment : perf::receive_contents_before(call.operation)) {
    if (segment.kind != Segment::Kind::input || segment.count == 0) continue;
    const std::byte* from = tables_.input(call.operation.type, segment.rank) + (call.first + segment.source) * width;
    STRAIT_TRY(cuda::check(cudaMemcpyAsync(begin_of(call, memory) + segment.offset * width, from, segment.count * width,
                                           cudaMemcpyDeviceToDevice, stream),
                           "cannot copy an input"));
  }
  return {};
}

/// Makes a call. Out of place, the input is read from the tables themselves, which the call must not change.
Status Rank::call(const HuntedCall& call, std::byte* memory, cudaStream_t stream) {
  const perf::Operation& o = call.operation;
  auto* const input = const_cast<std::byte*>(tables_.input(o.type, place_.rank) + call.first * size_bytes(o.type));
  const perf::Call strait_call(perf::arguments_of(o, input, begin_of(call, memory)), WireFormat::off, comm_, stream);
  return perf::checked(strait_call(), comm_, name(o.collective).data());
}

Status Rank::check(const HuntedCall& call, std::byte* memory, cudaStream_t stream, std::uint64_t number) {
  const perf::Operation& o = call.operation;
  const std::size_t width = size_bytes(o.type);
  Check check{.buffer = begin_of(call, memory) - perf::guard_elements * width,
              .width = static_cast<std::uint32_t>(width),
              .segments = 1,
              .expected = {{0, perf::guard_elements, nullptr}},
              .call = number,
              .finding = reinterpret_cast<Finding*>(finding_memory_.data())};
  for (const Segment& segment : perf::receive_contents_after(o)) {
    if (segment.count == 0) continue;
    if (check.segments == max_expected)
      return fail(Code::internal_error, "a buffer has more segments than the hunt can check");
    const std::byte* reference = nullptr;
    if (segment.kind == Segment::Kind::input) reference = tables_.input(o.type, segment.rank);
    if (segment.kind == Segment::Kind::reduced) reference = tables_.reduced(o.type, o.op);
    if (reference != nullptr) reference += (call.first + segment.source) * width;
    check.expected[check.segments++] = {perf::guard_elements + segment.offset, segment.count, reference};
    checked_elements_ += segment.count * launches_;
  }
  return cuda::check(launch_check(check, stream), "cannot launch a check");
}

/// Delays some calls on some ranks, mostly by microseconds and rarely by milliseconds; most calls follow at once.
Status Rank::pause(Random& random, cudaStream_t stream, bool captures) const {
  const bool on_device = random.one_in(8), on_host = random.one_in(16), for_long = random.one_in(1000);
  const auto device_ns = static_cast<std::uint32_t>(random.below(20'000));
  const auto host = std::chrono::microseconds(for_long ? random.below(5000) : random.below(50));
  if (!place_.waits) return {};
  if (on_device) STRAIT_TRY(cuda::check(launch_delay(device_ns, stream), "cannot launch a delay"));
  if (captures || !(on_host || for_long)) return {};
  for (const auto began = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - began < host;) continue;
  return {};
}

}  // namespace strait::race
