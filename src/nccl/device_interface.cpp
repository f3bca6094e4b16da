// Host functions of NCCL's device interface (nccl_device.h) that can be answered correctly without that interface: it
// is not supported, and so no rank can access another's memory through it. Programs that query this use another method.
#include <cstdint>

#include "nccl/comm.hpp"
#include "nccl/entry.hpp"

using namespace strait::nccl;

namespace {

/// Layout of ncclTeam_t of nccl_device.h.
struct Team {
  int ranks;
  int rank;
  int stride;
};

/// Returns the team of all ranks; an empty one if the communicator is invalid or not set up yet.
Team world(ncclComm_t comm) {
  Team team{0, 0, 1};
  const ncclComm* live = strait::nccl::live_comm(comm);
  if (live != nullptr && live->progress.load(std::memory_order_acquire) != ncclInProgress && live->strait != nullptr) {
    (void)straitCommCount(live->strait, &team.ranks);
    (void)straitCommUserRank(live->strait, &team.rank);
  }
  return team;
}

/// Layout of ncclCommProperties_t of 2.29.4 to 2.30; earlier versions end after `gin_type`.
struct Properties {
  std::size_t size;
  unsigned int magic, version;
  int rank, ranks, cuda_device, nvml_device;
  bool has_device_interface, has_multimem;
  int gin_type;
  int lsa_teams;
  bool has_host_rma;
  int railed_gin_type;
};
constexpr unsigned int first_with_teams = 22904;

/// Fills in the fields that the program's version has, and no more: its structure may be shorter than this one.
ncclResult_t query(const ncclComm& comm, Properties& properties) {
  straitResult_t result = straitCommUserRank(comm.strait, &properties.rank);
  if (result == straitSuccess) result = straitCommCount(comm.strait, &properties.ranks);
  if (result == straitSuccess) result = straitCommDevice(comm.strait, &properties.cuda_device);
  if (result != straitSuccess) return checked(result);
  properties.nvml_device = -1;  // unknown
  properties.has_device_interface = properties.has_multimem = false;
  properties.gin_type = 0;
  if (properties.version < first_with_teams) return ncclSuccess;
  properties.lsa_teams = properties.ranks;
  properties.has_host_rma = false;
  properties.railed_gin_type = 0;
  return ncclSuccess;
}

/// Gets the pointer to a rank's window memory: this rank's own memory if `rank` is `own`; NULL for others, as NCCL does
/// for peers that it cannot reach. Ranks are numbered below `ranks`.
ncclResult_t pointer_of(const char* function, ncclWindow_t window, std::size_t offset, int rank, int own, int ranks,
                        void** pointer) {
  if (rank < 0 || rank >= ranks)
    return failed(ncclInvalidArgument, std::string(function) + ": there is no rank " + std::to_string(rank) +
                                           " among " + std::to_string(ranks));
  *pointer = rank == own ? static_cast<char*>(window->pointer) + offset : nullptr;
  return ncclSuccess;
}

ncclResult_t check(const char* function, ncclWindow_t window, void** pointer) {
  if (window != nullptr && window->mark == ncclWindow_vidmem::live && pointer != nullptr) return ncclSuccess;
  return failed(ncclInvalidArgument, std::string(function) + ": this is not a window, or the pointer is NULL");
}

}  // namespace

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommQueryProperties, ncclComm_t comm, Properties* props) {
  return with_comm(comm, "ncclCommQueryProperties", [&](const ncclComm& live) {
    if (props == nullptr || props->magic != NCCL_API_MAGIC)
      return failed(props == nullptr ? ncclInvalidArgument : ncclInvalidUsage,
                    "ncclCommQueryProperties: the argument is NULL, or not initialized by "
                    "NCCL_COMM_PROPERTIES_INITIALIZER");
    return query(live, *props);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGetLsaMultimemDevicePointer, ncclWindow_t window, size_t /*offset*/,
                  void** outPtr) {
  return guarded([&] {
    if (const ncclResult_t result = check("ncclGetLsaMultimemDevicePointer", window, outPtr); result != ncclSuccess)
      return result;
    *outPtr = nullptr;
    return ncclSuccess;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGetLsaDevicePointer, ncclWindow_t window, size_t offset, int lsaRank,
                  void** outPtr) {
  return guarded([&] {
    constexpr auto* function = "ncclGetLsaDevicePointer";
    if (const ncclResult_t result = check(function, window, outPtr); result != ncclSuccess) return result;
    return pointer_of(function, window, offset, lsaRank, 0, 1, outPtr);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclGetPeerDevicePointer, ncclWindow_t window, size_t offset, int peer, void** outPtr) {
  return guarded([&] {
    constexpr auto* function = "ncclGetPeerDevicePointer";
    if (const ncclResult_t result = check(function, window, outPtr); result != ncclSuccess) return result;
    return pointer_of(function, window, offset, peer, window->rank, window->ranks, outPtr);
  });
}

STRAIT_NCCL_ENTRY(Team, ncclTeamWorld, ncclComm_t comm) { return world(comm); }
// The team of ranks that access one another's memory: each rank is alone in it.
STRAIT_NCCL_ENTRY(Team, ncclTeamLsa, ncclComm_t) { return {1, 0, 1}; }
STRAIT_NCCL_ENTRY(Team, ncclTeamRail, ncclComm_t comm) { return world(comm); }
STRAIT_NCCL_ENTRY(int, ncclTeamRankToWorld, ncclComm_t comm, Team team, int rank) {
  return world(comm).rank + (rank - team.rank) * team.stride;
}
STRAIT_NCCL_ENTRY(int, ncclTeamRankToLsa, ncclComm_t comm, Team team, int rank) {
  return world(comm).rank + (rank - team.rank) * team.stride == world(comm).rank ? 0 : -1;
}
