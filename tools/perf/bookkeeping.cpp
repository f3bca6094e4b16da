#include "perf/bookkeeping.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "perf/call.hpp"

namespace strait::perf {
namespace {

struct Place {
  int rank = 0;
  int ranks = 1;
};

Result<Place> place_in(straitComm_t comm) {
  Place place;
  STRAIT_TRY(checked(straitCommUserRank(comm, &place.rank), comm, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(comm, &place.ranks), comm, "straitCommCount"));
  return place;
}

/// Between rank 0 and every other rank, all at once: `message` is what a rank does about a peer.
Status with_rank_0(straitComm_t comm, const Place& place, const char* what,
                   const std::function<straitResult_t(int peer)>& message) {
  if (place.ranks == 1) return {};
  STRAIT_TRY(checked(straitGroupStart(), nullptr, what));
  straitResult_t first_error = straitSuccess;
  if (place.rank != 0) first_error = message(0);
  for (int peer = 1; place.rank == 0 && peer < place.ranks && first_error == straitSuccess; ++peer)
    first_error = message(peer);
  const straitResult_t ended = straitGroupEnd();
  return checked(first_error != straitSuccess ? first_error : ended, comm, what);
}

template <class T>
T combined(const std::vector<T>& values, Combination combination) {
  const T sum = std::accumulate(values.begin(), values.end(), T{});
  switch (combination) {
    case Combination::sum:
      return sum;
    case Combination::mean:
      return sum / static_cast<T>(values.size());
    case Combination::min:
      return *std::min_element(values.begin(), values.end());
    case Combination::max:
      return *std::max_element(values.begin(), values.end());
  }
  return sum;
}

template <class T>
Status reduce_values(straitComm_t comm, T& value, Combination combination) {
  STRAIT_ASSIGN(const Place place, place_in(comm));
  std::vector<T> values(static_cast<std::size_t>(place.ranks));
  STRAIT_TRY(all_gather(comm, &value, values.data(), sizeof value, "Comparing the ranks' values"));
  value = combined(values, combination);
  return {};
}

}  // namespace

Status all_gather(straitComm_t comm, const void* mine, void* all, std::size_t bytes, const char* what) {
  STRAIT_ASSIGN(const Place place, place_in(comm));
  const auto block = [&](int rank) { return static_cast<std::byte*>(all) + static_cast<std::size_t>(rank) * bytes; };
  std::memcpy(block(place.rank), mine, bytes);
  STRAIT_TRY(with_rank_0(comm, place, what, [&](int peer) {
    return place.rank == 0 ? straitRecv(block(peer), bytes, straitUint8, peer, comm, nullptr)
                           : straitSend(block(place.rank), bytes, straitUint8, peer, comm, nullptr);
  }));
  return broadcast(comm, all, bytes * static_cast<std::size_t>(place.ranks), what);
}

Status broadcast(straitComm_t comm, void* data, std::size_t bytes, const char* what) {
  STRAIT_ASSIGN(const Place place, place_in(comm));
  return with_rank_0(comm, place, what, [&](int peer) {
    return place.rank == 0 ? straitSend(data, bytes, straitUint8, peer, comm, nullptr)
                           : straitRecv(data, bytes, straitUint8, peer, comm, nullptr);
  });
}

Status all_reduce(straitComm_t comm, double& value, Combination combination) {
  return reduce_values(comm, value, combination);
}

Status all_reduce(straitComm_t comm, std::int64_t& value, Combination combination) {
  return reduce_values(comm, value, combination);
}

bool all_go_on(straitComm_t comm, const Status& mine, const std::function<void(const Error&)>& say) {
  const auto exchange = [&]() -> Result<bool> {
    STRAIT_ASSIGN(const Place place, place_in(comm));
    const std::uint64_t said = mine ? 0 : std::hash<std::string>()(mine.error().message) | 1;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(place.ranks));
    STRAIT_TRY(all_gather(comm, &said, all.data(), sizeof said, "Learning whether all ranks can go on"));
    const auto first = std::find(all.begin(), all.end(), said) - all.begin();
    if (!mine && first == place.rank) say(mine.error());
    if (std::all_of(all.begin(), all.end(), [](std::uint64_t other) { return other == 0; })) return true;
    straitBarrier(comm, nullptr);  // who has left already does not matter any more
    return false;
  };
  const auto all = exchange();
  if (!all) say(mine ? all.error() : mine.error());
  return all.value_or(false);
}

}  // namespace strait::perf
