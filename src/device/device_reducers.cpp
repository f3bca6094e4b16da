#include "device/device_reducers.hpp"

#include <cuda_runtime_api.h>

#include <utility>

#include "executor/cuda/runtime.hpp"

namespace strait {

/// A reduction that a stream gives to the threads, by a host function, when it comes to it.
struct DeviceReducers::Announcement {
  cpu_reducers::LaneReducers* threads;
  cpu_reducers::Reduction reduction;
  bool once;  ///< not in a graph: is deleted after the first time

  static void CUDART_CB make(void* self) {
    auto* announcement = static_cast<Announcement*>(self);
    announcement->threads->push(announcement->reduction);
    if (announcement->once) delete announcement;
  }
};

DeviceReducers::DeviceReducers() = default;
DeviceReducers::~DeviceReducers() = default;
DeviceReducers::DeviceReducers(DeviceReducers&&) noexcept = default;
DeviceReducers& DeviceReducers::operator=(DeviceReducers&&) noexcept = default;

Result<DeviceReducers> DeviceReducers::open(const DeviceRank::Request& request, const DeviceArenas& arenas,
                                            DeviceCalls calls) {
  DeviceReducers reducers;
  if (arenas.reducers_memory() == nullptr) return reducers;
  reducers.calls_ = std::move(calls);
  const kernels::Ring& meeting = arenas.meeting_ring();
  reducers.least_bytes_ = least_bytes(request, meeting.ranks, arenas.crossing_ranks(), arenas.exchange_rates());
  reducers.least_wire_bytes_ =
      request.options.cpu_reduce_bytes.value_or(0);  // only on request: it has not been shown to pay
  reducers.members_.assign(meeting.members, meeting.members + meeting.ranks);
  cpu_reducers::LaneReducers::Setup setup;
  setup.memory = arenas.reducers_memory()->data() + arenas.reducers_offset();
  setup.layout = arenas.reducers_layout();
  setup.rank = meeting.rank;
  setup.averaged = request.ranks;
  setup.options = request.options.reducers;
  setup.options.threads = arenas.reducer_threads_per_rank();
  setup.has_failed = [watch = request.watch] { return watch->has_failed(); };
  reducers.threads_ = std::make_unique<cpu_reducers::LaneReducers>(std::move(setup));
  STRAIT_TRY(reducers.threads_->start());
  return reducers;
}

bool DeviceReducers::carries(const Call& call) const {
  if (threads_ == nullptr || call.collective != Collective::all_reduce) return false;
  // In a wire format the encoder multiplies.
  if (call.op == ReduceOp::premul_sum && call.wire == WireFormat::off) return false;
  const std::size_t least = call.wire == WireFormat::off ? least_bytes_ : least_wire_bytes_;
  return least != 0 && call.count * size_bytes(call.type) >= least;
}

Result<DeviceLaunch> DeviceReducers::take(const Call& call, bool captures) {
  DeviceLaunch launch = calls_.launch_to_reducers(call);
  const auto& exchange = std::get<kernels::Exchange>(launch.argument);
  const cpu_reducers::Reduction reduction{call.type, call.op, call.wire,
                                          exchange.send[cpu_reducers::ReducerMemory::threads]};
  by_streams_ |= captures;
  if (by_streams_)
    STRAIT_TRY(announce(reduction, captures, call.stream));
  else
    threads_->push(reduction);
  return launch;
}

Status DeviceReducers::announce(const cpu_reducers::Reduction& reduction, bool captures, void* stream) {
  std::unique_ptr<Announcement> announcement(new Announcement{threads_.get(), reduction, !captures});
  STRAIT_TRY(cuda::check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), &Announcement::make, announcement.get()),
                         "cannot have a stream wake the CPU reducers"));
  if (captures)
    captured_.push_back(std::move(announcement));
  else
    (void)announcement.release();  // make() deletes it
  return {};
}

void DeviceReducers::abort() {
  if (threads_) threads_->abort();
}

std::optional<std::uint32_t> DeviceReducers::rank_of(std::uint32_t member) const {
  if (member != DeviceArenas::awaits_reducers) return member;
  const auto awaited = threads_ ? threads_->awaited_rank() : std::nullopt;
  return awaited ? std::optional<std::uint32_t>(members_[*awaited]) : std::nullopt;
}

}  // namespace strait
