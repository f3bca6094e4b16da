#include "communicator/device_reducers.hpp"

#include <utility>

namespace strait {

Result<DeviceReducers> DeviceReducers::open(const DeviceRank::Request& request, const DeviceArenas& arenas,
                                            DeviceCalls calls) {
  DeviceReducers reducers;
  if (arenas.reducers_memory() == nullptr) return reducers;
  reducers.calls_ = std::move(calls);
  reducers.least_bytes_ = arenas.cpu_reduce_bytes();
  cpu_reducers::LaneReducers::Setup setup;
  setup.memory = arenas.reducers_memory()->data();
  setup.layout = arenas.reducers_layout();
  setup.rank = request.rank;
  setup.options = request.reducers;
  setup.has_failed = [watch = request.watch] { return watch->has_failed(); };
  reducers.threads_ = std::make_unique<cpu_reducers::LaneReducers>(std::move(setup));
  STRAIT_TRY(reducers.threads_->start());
  return reducers;
}

bool DeviceReducers::carries(const Call& call) const {
  return threads_ != nullptr && call.collective == Collective::all_reduce && call.op != ReduceOp::premul_sum &&
         call.count * size_bytes(call.type) >= least_bytes_;
}

DeviceLaunch DeviceReducers::take(const Call& call) {
  DeviceLaunch launch = calls_.launch_to_reducers(call);
  const auto& exchange = std::get<kernels::Exchange>(launch.argument);
  threads_->push({call.type, call.op, exchange.send[cpu_reducers::ReducerMemory::threads]});
  return launch;
}

void DeviceReducers::abort() {
  if (threads_) threads_->abort();
}

std::uint32_t DeviceReducers::awaited_rank() const { return threads_ ? threads_->awaited_rank() : 0; }

}  // namespace strait
