#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "strait/strait.h"
#include "support/ranks.hpp"

/// Random calls on int32, and what they must give.
namespace strait::testing::hunt {

enum class Kind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  reduce,
  gather,
  scatter,
  messages,  ///< to the next rank, from the previous one
  two_sums,  ///< all-reduces of the halves, as a group
  barrier,
  split  ///< into ranks of even and of odd numbers, and these destroyed again
};
inline constexpr std::array<const char*, 12> kind_names{"all-reduce", "all-gather",      "reduce-scatter", "all-to-all",
                                                        "broadcast",  "reduce",          "gather",         "scatter",
                                                        "messages",   "two all-reduces", "barrier",        "split"};

struct Call {
  Kind kind = Kind::all_reduce;
  std::size_t count = 1;
  int root = 0;
  int ranks = 2;
  std::uint64_t seed = 0;
  bool in_graph = false;  ///< where there are graphs
};

/// Numbers that follow from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t below(std::uint64_t limit) { return mix(state_ + ++drawn_) % limit; }

 private:
  std::uint64_t state_, drawn_ = 0;
};

inline Call make_call(std::uint64_t seed, std::uint64_t number, int ranks, std::size_t most_bytes) {
  Draws draws(mix(seed) ^ mix(number + 1));
  Call call{.ranks = ranks, .seed = seed + number};
  call.kind = static_cast<Kind>(draws.below(kind_names.size()));
  call.root = static_cast<int>(draws.below(static_cast<std::uint64_t>(ranks)));
  const std::size_t most = most_bytes / sizeof(std::int32_t) / static_cast<std::size_t>(ranks);
  std::uint64_t magnitude = 2;  // as many of each
  while (magnitude < most && draws.below(5) != 0) magnitude *= 4;
  call.count = std::min<std::size_t>(1 + draws.below(magnitude), most);
  call.in_graph = draws.below(4) == 0 && call.kind != Kind::split;
  return call;
}

/// A call that differs from that one.
inline Call differing(Call call) {
  if (call.kind == Kind::barrier || call.kind == Kind::messages || call.kind == Kind::split)
    call.kind = Kind::all_reduce;
  call.count = call.count > 1 ? call.count - 1 : 2;  // within the buffers
  return call;
}

inline std::string describe(const Call& call) {
  return std::string(kind_names[static_cast<std::size_t>(call.kind)]) + " of " + std::to_string(call.count) +
         (call.in_graph ? ", in a graph if there are any" : "");
}

/// What a rank has at a place of its input; sums wrap.
inline std::uint32_t value(const Call& call, int rank, std::size_t at) {
  return static_cast<std::uint32_t>(at * 2654435761u + static_cast<std::size_t>(rank) * 40503u + call.seed * 69069u);
}

/// What a call must give to `rank`.
inline std::vector<std::int32_t> expected(const Call& call, int rank) {
  const std::size_t n = call.count, own = static_cast<std::size_t>(rank) * n;
  const auto fill = [](std::size_t count, auto&& at) {
    std::vector<std::int32_t> output(count);
    for (std::size_t i = 0; i < count; ++i) output[i] = static_cast<std::int32_t>(at(i));
    return output;
  };
  const auto sum = [&](std::size_t at) {
    std::uint32_t all = 0;
    for (int peer = 0; peer < call.ranks; ++peer) all += value(call, peer, at);
    return all;
  };
  const auto from_each = [&](std::size_t offset) {
    return fill(n * static_cast<std::size_t>(call.ranks),
                [&](std::size_t i) { return value(call, static_cast<int>(i / n), offset + i % n); });
  };
  const int previous = (rank + call.ranks - 1) % call.ranks;
  switch (call.kind) {
    case Kind::all_reduce:
    case Kind::two_sums:
      return fill(n, sum);
    case Kind::reduce_scatter:
      return fill(n, [&](std::size_t i) { return sum(own + i); });
    case Kind::all_gather:
      return from_each(0);
    case Kind::all_to_all:
      return from_each(own);
    case Kind::broadcast:
      return fill(n, [&](std::size_t i) { return value(call, call.root, i); });
    case Kind::scatter:
      return fill(n, [&](std::size_t i) { return value(call, call.root, own + i); });
    case Kind::messages:
      return fill(n, [&](std::size_t i) { return value(call, previous, i); });
    case Kind::reduce:
      return rank == call.root ? fill(n, sum) : std::vector<std::int32_t>();
    case Kind::gather:
      return rank == call.root ? from_each(0) : std::vector<std::int32_t>();
    case Kind::barrier:
    case Kind::split:
      break;
  }
  return {};
}

/// Makes a group of what `calls` makes. Its first error is that of the group.
template <class Calls>
straitResult_t in_group(Calls&& calls) {
  STRAIT_EXPECT_OK(straitGroupStart());
  calls();
  return straitGroupEnd();
}

inline straitResult_t split(straitComm_t comm, int rank) {
  straitComm_t part = nullptr;
  const straitResult_t result = straitCommSplit(comm, rank % 2, rank, &part, nullptr);
  EXPECT_EQ(part != nullptr, result == straitSuccess);
  if (part != nullptr) STRAIT_EXPECT_OK(straitCommDestroy(part));
  return result;
}

inline straitResult_t make(const Call& call, const std::int32_t* in, std::int32_t* out, straitComm_t comm, int rank,
                           straitStream_t stream) {
  const std::size_t n = call.count, half = n / 2;
  const auto next = (rank + 1) % call.ranks, previous = (rank + call.ranks - 1) % call.ranks;
  switch (call.kind) {
    case Kind::all_reduce:
      return straitAllReduce(in, out, n, straitInt32, straitSum, comm, stream);
    case Kind::all_gather:
      return straitAllGather(in, out, n, straitInt32, comm, stream);
    case Kind::reduce_scatter:
      return straitReduceScatter(in, out, n, straitInt32, straitSum, comm, stream);
    case Kind::all_to_all:
      return straitAllToAll(in, out, n, straitInt32, comm, stream);
    case Kind::broadcast:
      return straitBroadcast(in, out, n, straitInt32, call.root, comm, stream);
    case Kind::reduce:
      return straitReduce(in, out, n, straitInt32, straitSum, call.root, comm, stream);
    case Kind::gather:
      return straitGather(in, out, n, straitInt32, call.root, comm, stream);
    case Kind::scatter:
      return straitScatter(in, out, n, straitInt32, call.root, comm, stream);
    case Kind::messages:
      return in_group([&] {
        (void)straitSend(in, n, straitInt32, next, comm, stream);
        (void)straitRecv(out, n, straitInt32, previous, comm, stream);
      });
    case Kind::two_sums:
      return in_group([&] {
        (void)straitAllReduce(in, out, half, straitInt32, straitSum, comm, stream);
        (void)straitAllReduce(in + half, out + half, n - half, straitInt32, straitSum, comm, stream);
      });
    case Kind::split:
      return split(comm, rank);
    case Kind::barrier:
      break;
  }
  return straitBarrier(comm, stream);
}

/// Makes a call, waits for it, and EXPECTs the right bits if it succeeds.
template <class Side>
straitResult_t run_checked(Side& side, const Call& call, straitComm_t comm, int rank) {
  std::vector<std::int32_t> input(call.count * static_cast<std::size_t>(call.ranks));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<std::int32_t>(value(call, rank, i));
  side.set(input);
  const straitResult_t result = side.run(call, comm, rank);
  if (result != straitSuccess) return result;
  const std::vector<std::int32_t> right = expected(call, rank), got = side.get(right.size());
  const auto wrong = std::mismatch(right.begin(), right.end(), got.begin()).first;
  EXPECT_EQ(wrong, right.end()) << describe(call) << " ended with success, and is wrong from number "
                                << wrong - right.begin() << " on";
  return result;
}

}  // namespace strait::testing::hunt
