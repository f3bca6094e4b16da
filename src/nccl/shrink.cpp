// ncclCommShrink: the remaining ranks join anew. Those that are left out take no part in it, so it is no split; the
// lowest remaining rank makes a ticket and sends it to the others over the old communicator.
#include <algorithm>
#include <array>
#include <vector>

#include "nccl/driver.hpp"
#include "nccl/entry.hpp"
#include "nccl/making.hpp"

namespace strait::nccl {
namespace {

/// Memory that a rank can send from and receive into: the host's, or its device's.
class Letter {
 public:
  explicit Letter(int device) : is_on_device_(device >= 0) {
    if (is_on_device_) problem_ = driver::allocate(&memory_, sizeof(straitUniqueId));
  }
  ~Letter() {
    if (is_on_device_ && memory_ != nullptr) (void)driver::free(memory_);
  }
  Letter(const Letter&) = delete;
  Letter& operator=(const Letter&) = delete;

  void write(const straitUniqueId& ticket) {
    if (!is_on_device_)
      on_host_ = ticket;
    else if (problem_.empty())
      problem_ = driver::write(memory_, &ticket, sizeof ticket);
  }
  /// Once what was received is there.
  straitUniqueId read() {
    if (is_on_device_ && problem_.empty()) problem_ = driver::read(&on_host_, memory_, sizeof on_host_);
    return on_host_;
  }
  void* memory() { return is_on_device_ ? memory_ : &on_host_; }
  const driver::Problem& problem() const { return problem_; }

 private:
  bool is_on_device_;
  void* memory_ = nullptr;
  straitUniqueId on_host_{};
  driver::Problem problem_;
};

/// The ranks of `comm` that remain, in order; empty if the list of the others is wrong.
std::vector<int> remaining_ranks(int ranks, const int* excluded, int excluded_count) {
  std::vector<int> remaining;
  for (int i = 0; i < excluded_count; ++i)
    if (excluded[i] < 0 || excluded[i] >= ranks) return {};
  for (int rank = 0; rank < ranks; ++rank)
    if (std::find(excluded, excluded + excluded_count, rank) == excluded + excluded_count) remaining.push_back(rank);
  return remaining;
}

straitResult_t send_tickets(straitComm_t parent, const std::vector<int>& remaining, Letter& letter) {
  if (remaining.size() == 1) return straitSuccess;
  if (const straitResult_t result = straitGroupStart(); result != straitSuccess) return result;
  for (std::size_t i = 1; i < remaining.size(); ++i)
    (void)straitSend(letter.memory(), sizeof(straitUniqueId), straitUint8, remaining[i], parent, nullptr);
  return straitGroupEnd();
}

/// Makes or receives the ticket of the remaining ranks.
straitResult_t share_ticket(straitComm_t parent, const std::vector<int>& remaining, bool is_first, int device,
                            straitUniqueId& ticket) {
  Letter letter(device);
  straitResult_t result = straitSuccess;
  if (is_first) {
    if (result = straitGetUniqueId(&ticket); result != straitSuccess) return result;
    letter.write(ticket);
    if (letter.problem().empty()) result = send_tickets(parent, remaining, letter);
    (void)letter.read();  // waits until it is sent
  } else {
    if (letter.problem().empty())
      result = straitRecv(letter.memory(), sizeof(straitUniqueId), straitUint8, remaining.front(), parent, nullptr);
    ticket = letter.read();
  }
  return letter.problem().empty() ? result : straitCudaError;
}

straitResult_t shrink(ncclComm* comm, straitComm_t* made, straitComm_t parent, const std::vector<int>& remaining,
                      int rank) {
  Place place{static_cast<int>(remaining.size()), 0, -1};
  place.rank = static_cast<int>(std::find(remaining.begin(), remaining.end(), rank) - remaining.begin());
  if (const straitResult_t result = straitCommDevice(parent, &place.device); result != straitSuccess) return result;
  straitUniqueId ticket{};
  straitResult_t result = straitSuccess;
  if (place.device < 0) {
    result = share_ticket(parent, remaining, place.rank == 0, place.device, ticket);
  } else {
    const driver::OnDevice here(place.device);
    result = here.problem().empty() ? share_ticket(parent, remaining, place.rank == 0, place.device, ticket)
                                    : straitCudaError;
  }
  return result == straitSuccess ? join(comm, made, place, ticket) : result;
}

ncclResult_t shrink_checked(ncclComm_t comm, const int* excluded, int excluded_count, ncclComm_t* newcomm,
                            ncclConfig_t* config, int flags) {
  const auto refuse = [](ncclResult_t result, const std::string& problem) {
    return Group::of_this_thread().note(failed(result, "ncclCommShrink: " + problem));
  };
  std::string problem;
  if (const ncclResult_t result = usable(comm, problem); result != ncclSuccess) return refuse(result, problem);
  if (newcomm == nullptr) return refuse(ncclInvalidArgument, "the communicator pointer is NULL");
  if (flags != NCCL_SHRINK_DEFAULT)
    return refuse(ncclInvalidUsage,
                  "Strait shrinks healthy communicators only. Abort this one, and let the remaining ranks join anew");
  int ranks = 0, rank = 0;
  (void)straitCommCount(comm->strait, &ranks);
  (void)straitCommUserRank(comm->strait, &rank);
  if (excluded_count <= 0 || excluded == nullptr) return refuse(ncclInvalidArgument, "no rank is to be left out");
  const std::vector<int> remaining = remaining_ranks(ranks, excluded, excluded_count);
  if (std::find(remaining.begin(), remaining.end(), rank) == remaining.end())
    return refuse(ncclInvalidArgument,
                  "the list holds this rank, which then must not call, or ranks that are not in 0 to " +
                      std::to_string(ranks - 1));
  return set_up("ncclCommShrink", newcomm, comm, config,
                [parent = comm->strait, remaining, rank](ncclComm* made_for, straitComm_t* made) {
                  return shrink(made_for, made, parent, remaining, rank);
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
