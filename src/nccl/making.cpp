// What all functions that make a communicator share.
#include "nccl/making.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "nccl/config.hpp"
#include "nccl/settings.hpp"

namespace strait::nccl {

/// As in NCCL, the environment overrides the program's configuration.
straitConfig_t straits_config(const ncclComm& comm, int device) {
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.device = device;
  if (!environment_bounds_sms()) config.max_sms = comm.max_sms;
  return config;
}

ncclResult_t make_stoppable(ncclComm& comm, ncclComm* parent, straitComm_t* made,
                            const std::function<straitResult_t(straitComm_t* joining)>& post) {
  if (const ncclResult_t result = checked(straitGroupStart()); result != ncclSuccess) return result;
  straitComm_t joining = nullptr;
  (void)post(&joining);  // straitGroupEnd returns its error again
  ncclResult_t result = ncclSuccess;
  {
    const AbortTarget of_comm(comm, joining, 0);
    std::optional<AbortTarget> of_parent;
    if (parent != nullptr) of_parent.emplace(*parent, joining, comm.known_parent_stops);
    result = checked(straitGroupEnd());
  }
  if (result == ncclSuccess)
    *made = joining;
  else
    (void)straitCommDestroy(joining);
  return result;
}

ncclResult_t join(ncclComm& comm, straitComm_t* made, const RankPosition& position, const straitUniqueId& ticket) {
  const straitConfig_t wanted = straits_config(comm, position.device);
  const ncclResult_t result = make_stoppable(comm, nullptr, made, [&](straitComm_t* joining) {
    return straitCommInitRank(joining, position.ranks, &ticket, position.rank, &wanted);
  });
  if (result == ncclSuccess && position.rank == 0) report_ignored_networks(*made);
  return result;
}

ncclResult_t set_up(const char* function, ncclComm_t* out, ncclComm* parent, const ncclConfig_t* config,
                    decltype(SetUp::make) make, bool makes_one) {
  Group& group = Group::of_this_thread();
  const auto refuse = [&](ncclResult_t result, const std::string& problem) {
    return group.note(failed(result, std::string(function) + ": " + problem));
  };
  ncclConfig_t known;
  std::string problem;
  if (const ncclResult_t result = read_config(config, known, problem); result != ncclSuccess)
    return refuse(result, problem);
  report_ignored_fields(ignored_fields(known));
  auto comm = std::make_unique<ncclComm>();
  const bool inherits = config == nullptr && parent != nullptr;  // as in NCCL, all or nothing
  comm->max_sms = inherits ? parent->max_sms : max_sms_of(known);
  comm->is_blocking = inherits ? parent->is_blocking : known.blocking != 0;
  if (const auto forced = forced_blocking()) comm->is_blocking = *forced;
  const bool deferred = group.is_open() || !(parent != nullptr ? parent : comm.get())->is_blocking;
  if (parent != nullptr) {
    const std::scoped_lock lock(parent->mutex);
    comm->known_parent_stops = parent->stops;
  }
  if (makes_one) hand_out(comm.get());
  ncclComm* made = makes_one ? comm.release() : nullptr;
  if (made != nullptr) hold(made);  // once the handle is stored below, another thread may abort it
  std::atomic_ref(*out).store(made, std::memory_order_release);
  const ncclResult_t result = group.submit({made, parent, std::move(make)});
  // If the work is still to come, the program asks the handle for the error later. If it is done, the result reports
  // it, and there is no handle.
  if (result != ncclSuccess && !deferred && made != nullptr) {
    *out = nullptr;
    if (retire(made)) let_go(made);
  }
  if (made != nullptr) let_go(made);
  return group.note(result);
}

}  // namespace strait::nccl
