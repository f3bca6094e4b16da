// ncclCommShrink: the remaining ranks make a new communicator without any help of the excluded ones.
#include <string>
#include <vector>

#include "nccl/entry.hpp"
#include "nccl/making.hpp"

namespace strait::nccl {
namespace {

ncclResult_t shrink(ncclComm& comm, straitComm_t* made, ncclComm& parent, const std::vector<int>& excluded) {
  int device = -1;
  if (const ncclResult_t result = checked(straitCommDevice(parent.strait, &device)); result != ncclSuccess)
    return result;
  const straitConfig_t wanted = straits_config(comm, device);
  return make_stoppable(comm, &parent, made, [&](straitComm_t* joining) {
    return straitCommShrink(parent.strait, excluded.data(), static_cast<int>(excluded.size()), joining, &wanted);
  });
}

/// Returns why the ranks cannot be excluded; "" if they can.
std::string problem_of(straitComm_t parent, const int* excluded, int count) {
  int ranks = 0, rank = 0;
  (void)straitCommCount(parent, &ranks);
  (void)straitCommUserRank(parent, &rank);
  if (count <= 0 || excluded == nullptr) return "no rank is to be left out";
  for (int i = 0; i < count; ++i)
    if (excluded[i] < 0 || excluded[i] >= ranks || excluded[i] == rank)
      return "the list holds this rank, which then must not call, or ranks that are not in 0 to " +
             std::to_string(ranks - 1);
  return "";
}

ncclResult_t shrink_checked(ncclComm_t comm, const int* excluded, int count, ncclComm_t* newcomm, ncclConfig_t* config,
                            int flags) {
  const auto refuse = [](ncclResult_t result, const std::string& problem) {
    return Group::of_this_thread().note(failed(result, "ncclCommShrink: " + problem));
  };
  std::string problem;
  if (const ncclResult_t result = usable(comm, problem); result != ncclSuccess) return refuse(result, problem);
  if (newcomm == nullptr) return refuse(ncclInvalidArgument, "the communicator pointer is NULL");
  if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
    return refuse(ncclInvalidArgument, "flags of " + std::to_string(flags) + " mean nothing");
  problem = problem_of(comm->strait, excluded, count);
  if (!problem.empty()) return refuse(ncclInvalidArgument, problem);
  return set_up("ncclCommShrink", newcomm, comm, config,
                [parent = comm, list = std::vector(excluded, excluded + count), aborts = flags == NCCL_SHRINK_ABORT](
                    ncclComm* made_for, straitComm_t* made) {
                  if (aborts && straitCommAbort(parent->strait) == straitSuccess) parent->has_ended_itself = true;
                  return shrink(*made_for, made, *parent, list);
                });
}

}  // namespace
}  // namespace strait::nccl

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommShrink, ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                  ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  using namespace strait::nccl;
  return guarded(
      [&] { return shrink_checked(comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags); });
}
