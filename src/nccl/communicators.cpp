// How communicators are made: by unique id and rank, all by one process, and out of another one by a split.
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "nccl/driver.hpp"
#include "nccl/entry.hpp"
#include "nccl/making.hpp"
#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(straitUniqueId));

constexpr int on_host = -1;

/// Gets the device of a rank that this thread makes.
ncclResult_t own_device(int& device) {
  device = on_host;
  if (makes_host_ranks()) return ncclSuccess;
  const driver::Problem problem = driver::current_device(device);
  return problem.empty() ? ncclSuccess : failed(ncclUnhandledCudaError, problem);
}

ncclResult_t init_rank(const char* function, ncclComm_t* out, const RankPosition& position, const ncclUniqueId& id,
                       const ncclConfig_t* config) {
  const auto refuse = [&](const std::string& problem) {
    return Group::of_this_thread().note(failed(ncclInvalidArgument, std::string(function) + ": " + problem));
  };
  if (out == nullptr) return refuse("the communicator pointer is NULL");
  *out = nullptr;
  if (position.ranks < 1) return refuse(std::to_string(position.ranks) + " ranks; there must be at least 1");
  if (position.rank < 0 || position.rank >= position.ranks)
    return refuse("rank " + std::to_string(position.rank) + " is not in 0 to " + std::to_string(position.ranks - 1));
  announce(position.rank, position.ranks);
  straitUniqueId ticket;
  std::memcpy(&ticket, &id, sizeof ticket);
  return set_up(function, out, nullptr, config,
                [position, ticket](ncclComm* comm, straitComm_t* made) { return join(*comm, made, position, ticket); });
}

ncclResult_t init_here(const char* function, ncclComm_t* out, int ranks, int rank, const ncclUniqueId& id,
                       const ncclConfig_t* config) {
  return guarded([&] {
    apply_settings();
    if (out != nullptr) *out = nullptr;
    RankPosition position{ranks, rank, on_host};
    if (const ncclResult_t result = own_device(position.device); result != ncclSuccess)
      return Group::of_this_thread().note(result);
    return init_rank(function, out, position, id, config);
  });
}

/// Gets and checks the devices for ncclCommInitAll.
ncclResult_t list_devices(int ranks, const int* devices, std::vector<int>& out) {
  out.assign(static_cast<std::size_t>(ranks), on_host);
  if (makes_host_ranks()) return ncclSuccess;
  int present = 0;
  if (const driver::Problem problem = driver::device_count(present); !problem.empty())
    return failed(ncclUnhandledCudaError, problem);
  std::set<int> seen;
  for (int rank = 0; rank < ranks; ++rank) {
    const int device = devices == nullptr ? rank : devices[rank];
    if (device < 0 || device >= present)
      return failed(ncclInvalidArgument, "ncclCommInitAll: device " + std::to_string(device) + " is not in 0 to " +
                                             std::to_string(present - 1));
    if (!seen.insert(device).second)
      return failed(ncclInvalidUsage, "ncclCommInitAll: device " + std::to_string(device) + " is listed twice");
    out[static_cast<std::size_t>(rank)] = device;
  }
  return ncclSuccess;
}

ncclResult_t init_all(ncclComm_t* out, int ranks, const int* devices) {
  if (out == nullptr) return failed(ncclInvalidArgument, "ncclCommInitAll: the communicator pointer is NULL");
  if (ranks < 1)
    return failed(ncclInvalidArgument, "ncclCommInitAll: " + std::to_string(ranks) + " ranks; there must be 1 or more");
  std::vector<int> chosen;
  if (const ncclResult_t result = list_devices(ranks, devices, chosen); result != ncclSuccess) return result;
  ncclUniqueId id;
  straitUniqueId ticket;
  if (const ncclResult_t result = checked(straitGetUniqueId(&ticket)); result != ncclSuccess) return result;
  std::memcpy(&id, &ticket, sizeof id);
  Group& group = Group::of_this_thread();
  if (const ncclResult_t result = group.start(); result != ncclSuccess) return result;
  for (int rank = 0; rank < ranks; ++rank)
    (void)init_rank("ncclCommInitAll", &out[rank], {ranks, rank, chosen[static_cast<std::size_t>(rank)]}, id, nullptr);
  return group.end();
}

/// `part` is NULL on a rank that gets no communicator (NCCL_SPLIT_NOCOLOR).
ncclResult_t split(ncclComm* part, straitComm_t* made, straitComm_t parent, int color, int key) {
  if (part == nullptr) return checked(straitCommSplit(parent, color, key, made, nullptr));
  int device = on_host;
  if (const ncclResult_t result = checked(straitCommDevice(parent, &device)); result != ncclSuccess) return result;
  const straitConfig_t wanted = straits_config(*part, device);
  // No parent is given: an abort of it ends Strait's split in any case.
  return make_stoppable(*part, nullptr, made,
                        [&](straitComm_t* joining) { return straitCommSplit(parent, color, key, joining, &wanted); });
}

}  // namespace
}  // namespace strait::nccl

using namespace strait::nccl;

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGetUniqueId, ncclUniqueId* uniqueId) {
  return guarded([&] {
    apply_settings();
    if (uniqueId == nullptr) return failed(ncclInvalidArgument, "ncclGetUniqueId: the pointer is NULL");
    straitUniqueId ticket;
    const ncclResult_t result = checked(straitGetUniqueId(&ticket));
    if (result == ncclSuccess) std::memcpy(uniqueId, &ticket, sizeof ticket);
    return result;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommInitRank, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return init_here("ncclCommInitRank", comm, nranks, rank, commId, nullptr);
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommInitRankConfig, ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                  ncclConfig_t* config) {
  return init_here("ncclCommInitRankConfig", comm, nranks, rank, commId, config);
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommInitRankScalable, ncclComm_t* newcomm, int nranks, int myrank, int nId,
                  ncclUniqueId* commIds, ncclConfig_t* config) {
  return guarded([&] {
    if (commIds == nullptr || nId < 1 || nId > nranks)
      return Group::of_this_thread().note(
          failed(ncclInvalidArgument, "ncclCommInitRankScalable: give 1 to " + std::to_string(nranks) + " unique ids"));
    return init_here("ncclCommInitRankScalable", newcomm, nranks, myrank, commIds[0], config);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommInitAll, ncclComm_t* comm, int ndev, const int* devlist) {
  return guarded([&] {
    apply_settings();
    return Group::of_this_thread().note(init_all(comm, ndev, devlist));
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                  ncclConfig_t* config) {
  return guarded([&] {
    Group& group = Group::of_this_thread();
    const auto refuse = [&](ncclResult_t result, const std::string& problem) {
      return group.note(failed(result, "ncclCommSplit: " + problem));
    };
    std::string problem;
    if (const ncclResult_t result = usable(comm, problem); result != ncclSuccess) return refuse(result, problem);
    if (newcomm == nullptr) return refuse(ncclInvalidArgument, "the communicator pointer is NULL");
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      return refuse(ncclInvalidArgument, "color " + std::to_string(color) + " is negative, and not NCCL_SPLIT_NOCOLOR");
    return set_up(
        "ncclCommSplit", newcomm, comm, config,
        [parent = comm->strait, color, key](ncclComm* part, straitComm_t* made) {
          return split(part, made, parent, color, key);
        },
        color != NCCL_SPLIT_NOCOLOR);
  });
}
