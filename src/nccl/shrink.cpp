// ncclCommShrink: the remaining ranks join anew. Those that are left out take no part in it, so it is no split; the
// lowest remaining rank makes a ticket and sends it to the others over the old communicator, or word that it cannot.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "nccl/driver.hpp"
#include "nccl/entry.hpp"
#include "nccl/making.hpp"

namespace strait::nccl {
namespace {

/// What the first of the remaining ranks tells the others: the ticket, or why there is none.
struct News {
  straitUniqueId ticket;
  bool is_bad;
  char problem[511];  ///< ends with a zero
};

/// Memory that a rank can send from and receive into: the host's, or its device's.
class Letter {
 public:
  explicit Letter(int device) : is_on_device_(device >= 0) {
    if (is_on_device_) problem_ = driver::allocate(&memory_, sizeof(News));
  }
  ~Letter() {
    if (is_on_device_ && memory_ != nullptr) (void)driver::free(memory_);
  }
  Letter(const Letter&) = delete;
  Letter& operator=(const Letter&) = delete;

  void write(const News& news) {
    if (!is_on_device_)
      on_host_ = news;
    else if (problem_.empty())
      problem_ = driver::write(memory_, &news, sizeof news);
  }
  /// Once what was received is there.
  News read() {
    if (is_on_device_ && problem_.empty()) problem_ = driver::read(&on_host_, memory_, sizeof on_host_);
    return on_host_;
  }
  void* memory() { return is_on_device_ ? memory_ : &on_host_; }
  const driver::Problem& problem() const { return problem_; }

 private:
  bool is_on_device_;
  void* memory_ = nullptr;
  News on_host_{};
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

/// A failure that is this rank's own, while the others wait for it over the old communicator: only that can tell them.
ncclResult_t raised(straitComm_t parent, ncclResult_t result, const std::string& text) {
  (void)straitCommAbort(parent);
  return failed(result, "ncclCommShrink: " + text);
}

straitResult_t send_news(straitComm_t parent, const std::vector<int>& remaining, Letter& letter) {
  if (const straitResult_t result = straitGroupStart(); result != straitSuccess) return result;
  for (std::size_t i = 1; i < remaining.size(); ++i)
    (void)straitSend(letter.memory(), sizeof(News), straitUint8, remaining[i], parent, nullptr);
  return straitGroupEnd();
}

/// Brings the first rank's news to the others.
ncclResult_t share_news(straitComm_t parent, const std::vector<int>& remaining, bool is_first, int device, News& news) {
  Letter letter(device);
  straitResult_t result = straitSuccess;
  if (is_first) letter.write(news);
  if (letter.problem().empty())
    result = is_first ? send_news(parent, remaining, letter)
                      : straitRecv(letter.memory(), sizeof(News), straitUint8, remaining.front(), parent, nullptr);
  if (result != straitSuccess) return raised(parent, to_nccl(result), straitGetLastError(nullptr));
  const News arrived = letter.read();  // waits until it is sent, or there
  if (!letter.problem().empty()) return raised(parent, ncclUnhandledCudaError, letter.problem());
  // On a GPU a call that was cut short looks like one that is done.
  straitResult_t sticky = straitSuccess;
  (void)straitCommGetAsyncError(parent, &sticky);
  if (sticky != straitSuccess) return failed(to_nccl(sticky), straitGetLastError(parent));
  news = arrived;
  return ncclSuccess;
}

ncclResult_t share_news_on_device(straitComm_t parent, const std::vector<int>& remaining, bool is_first, int device,
                                  News& news) {
  const driver::OnDevice here(device);
  if (!here.problem().empty()) return raised(parent, ncclUnhandledCudaError, here.problem());
  return share_news(parent, remaining, is_first, device, news);
}

/// The ticket of the remaining ranks, made by the first of them. Who aborts the new communicator `comm` meanwhile
/// aborts the old one: others wait for this rank there.
ncclResult_t find_ticket(ncclComm& comm, straitComm_t parent, const std::vector<int>& remaining, const Place& place,
                         straitUniqueId& ticket) {
  const bool is_first = place.rank == 0;
  News news{};
  ncclResult_t made = ncclSuccess;
  if (is_first) {
    made = checked(straitGetUniqueId(&news.ticket));
    news.is_bad = made != ncclSuccess;
    if (news.is_bad) std::string_view(last_error()).copy(news.problem, sizeof news.problem - 1);
  }
  if (remaining.size() > 1) {
    const Joining of_comm(comm, parent);
    const auto share = place.device < 0 ? share_news : share_news_on_device;
    if (const ncclResult_t result = share(parent, remaining, is_first, place.device, news); result != ncclSuccess)
      return result;
  }
  if (is_first && news.is_bad) return failed(made, news.problem);
  if (news.is_bad)
    return failed(ncclRemoteError, "ncclCommShrink: rank " + std::to_string(remaining.front()) +
                                       " cannot start the smaller communicator: " + news.problem);
  ticket = news.ticket;
  return ncclSuccess;
}

ncclResult_t shrink(ncclComm& comm, straitComm_t* made, ncclComm& parent, const std::vector<int>& remaining, int rank) {
  Place place{static_cast<int>(remaining.size()), 0, -1};
  place.rank = static_cast<int>(std::find(remaining.begin(), remaining.end(), rank) - remaining.begin());
  if (const ncclResult_t result = checked(straitCommDevice(parent.strait, &place.device)); result != ncclSuccess)
    return result;
  straitUniqueId ticket{};
  if (const ncclResult_t result = find_ticket(comm, parent.strait, remaining, place, ticket); result != ncclSuccess)
    return result;
  return join(comm, &parent, made, place, ticket);
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
                [parent = comm, remaining, rank](ncclComm* made_for, straitComm_t* made) {
                  return shrink(*made_for, made, *parent, remaining, rank);
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
