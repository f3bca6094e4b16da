#include "device/device_reducers.hpp"

#include <utility>

namespace strait {

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

DeviceLaunch DeviceReducers::take(const Call& call, bool captures) {
  DeviceLaunch launch = calls_.launch_to_reducers(call);
  if (captures)
    threads_->expect_always();
  else
    threads_->expect(std::get<kernels::Exchange>(launch.argument).send[cpu_reducers::ReducerMemory::threads]);
  return launch;
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
