#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "host/collective_case.hpp"
#include "strait/strait.h"
#include "support/ranks.hpp"

/// Random calls and their expected results.
namespace strait::testing::hunt {

enum class Kind : std::uint8_t {
  collective,   ///< any collective, including barriers
  messages,     ///< a send to the next rank and a receive from the previous one
  two_sums,     ///< all-reduces of the two halves, as a group
  split,        ///< a split into even and odd ranks; the parts are destroyed again
  registration  ///< a registration of memory, undone at once
};

struct Call {
  Kind kind = Kind::collective;
  CollectiveCase c;  ///< its type, count and seed are used for every kind
  int ranks = 2;
  bool in_graph = false;  ///< captured and replayed, for GPU ranks

  /// Returns whether the call is part of the set-up: its failure need not make the communicator fail, and its deadline
  /// is that of joining.
  bool is_set_up() const { return kind == Kind::split || kind == Kind::registration; }
  std::uint32_t rank_count() const { return static_cast<std::uint32_t>(ranks); }
};

/// Pseudo-random numbers that follow from a seed.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(mix(seed)) {}
  std::uint64_t below(std::uint64_t limit) { return mix(state_ + ++drawn_) % limit; }

 private:
  std::uint64_t state_, drawn_ = 0;
};

/// Limits of the calls of a round.
struct CallLimits {
  int ranks = 2;
  std::size_t most_bytes = std::size_t{1} << 20;      ///< in a call's larger buffer
  std::size_t most_elements = std::size_t{1} << 17;   ///< in that buffer: plain loops compute the results
  std::vector<WireFormat> wires = {WireFormat::off};  ///< candidates for calls that can have one
};

inline Collective draw_collective(Draws& draws) {
  constexpr std::array all{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                           Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                           Collective::gather,     Collective::scatter,    Collective::barrier};
  return all[draws.below(all.size())];
}

inline Call make_call(std::uint64_t seed, std::uint64_t number, const CallLimits& limits) {
  Draws draws(mix(seed) ^ mix(number + 1));
  Call call{.ranks = limits.ranks};
  const std::uint64_t kind = draws.below(13);  // the last four are not single collectives
  call.kind = kind < 9 ? Kind::collective : static_cast<Kind>(kind - 8);
  call.c.collective = call.kind == Kind::collective ? draw_collective(draws) : Collective::all_reduce;
  call.c.type = static_cast<DataType>(draws.below(data_type_count));
  call.c.op = call.kind == Kind::two_sums
                  ? ReduceOp::sum
                  : static_cast<ReduceOp>(draws.below(static_cast<std::uint64_t>(ReduceOp::premul_sum)));
  call.c.root = static_cast<std::uint32_t>(draws.below(call.rank_count()));
  call.c.seed = seed + number;
  const std::size_t most =
      std::min(limits.most_elements, limits.most_bytes / size_bytes(call.c.type)) / call.rank_count();
  std::uint64_t magnitude = 2;  // all magnitudes occur; each is 0.8 times as likely as the one before
  while (magnitude < most && draws.below(5) != 0) magnitude *= 4;
  call.c.count = std::min<std::size_t>(1 + draws.below(magnitude), most);
  call.in_graph = draws.below(4) == 0 && !call.is_set_up();
  const WireFormat wire = limits.wires[draws.below(limits.wires.size())];
  if (call.kind == Kind::collective && wire::problem(call.c.collective, call.c.type, call.c.op).empty())
    call.c.wire = wire;
  return call;
}

/// Returns a call that differs from `call`.
inline Call differing(Call call) {
  if (call.is_set_up() && call.c.seed % 2 == 0) {
    call.kind = call.kind == Kind::split ? Kind::registration : Kind::split;
    return call;
  }
  if (call.kind == Kind::messages || call.is_set_up() || call.c.collective == Collective::barrier) {
    call.kind = Kind::collective;
    call.c.collective = Collective::all_reduce;
  }
  call.c.count = call.c.count > 1 ? call.c.count - 1 : 2;  // stays within the buffers
  return call;
}

inline std::string describe(const Call& call) {
  constexpr std::array words{"", "messages of ", "two halves of ", "split beside ", "registration beside "};
  return words[static_cast<std::size_t>(call.kind)] + describe(call.c) +
         (call.in_graph ? ", in a graph if there are any" : "");
}

/// Returns the input of a rank for a call.
inline Bytes input_of(const Call& call, std::uint32_t rank) { return random_input(call.c, call.rank_count(), rank); }

/// Returns what a call must give `rank`.
inline Bytes expected(const Call& call, std::uint32_t rank) {
  const std::uint32_t ranks = call.rank_count();
  if (call.kind == Kind::messages) return input_of(call, (rank + ranks - 1) % ranks);
  if (call.is_set_up() || call.c.collective == Collective::barrier) return {};
  std::vector<Bytes> inputs;
  for (std::uint32_t peer = 0; peer < ranks; ++peer) inputs.push_back(input_of(call, peer));
  return expected_output(call.c, inputs, {}, rank);
}

/// Makes a group of the calls that `calls` makes. Returns the first error, which is the group's.
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

/// The buffers that a rank passes to a call, and memory that it can register.
struct Buffers {
  const std::byte* in;
  std::byte* out;
  void* memory;
  std::size_t memory_bytes;
};

inline straitResult_t register_for_a_while(straitComm_t comm, const Buffers& buffers) {
  void* handle = nullptr;
  const straitResult_t result = straitCommRegister(comm, buffers.memory, buffers.memory_bytes, &handle);
  if (result == straitSuccess) STRAIT_EXPECT_OK(straitCommDeregister(comm, handle));
  return result;
}

inline straitResult_t make(const Call& call, const Buffers& buffers, straitComm_t comm, int rank,
                           straitStream_t stream) {
  const std::byte* const in = buffers.in;
  std::byte* const out = buffers.out;
  const auto type = static_cast<straitDataType_t>(call.c.type);
  const auto op = static_cast<straitRedOp_t>(call.c.op);
  switch (call.kind) {
    case Kind::messages:
      return in_group([&] {
        (void)straitSend(in, call.c.count, type, (rank + 1) % call.ranks, comm, stream);
        (void)straitRecv(out, call.c.count, type, (rank + call.ranks - 1) % call.ranks, comm, stream);
      });
    case Kind::two_sums:
      return in_group([&] {
        const std::size_t half = call.c.count / 2, half_bytes = half * size_bytes(call.c.type);
        (void)straitAllReduce(in, out, half, type, op, comm, stream);
        (void)straitAllReduce(in + half_bytes, out + half_bytes, call.c.count - half, type, op, comm, stream);
      });
    case Kind::split:
      return split(comm, rank);
    case Kind::registration:
      return register_for_a_while(comm, buffers);
    case Kind::collective:
      break;
  }
  return call_collective(call.c, in, out, op, comm, stream);
}

/// Makes a call, waits for it, and EXPECTs the right bits if it succeeds.
template <class Side>
straitResult_t run_checked(Side& side, const Call& call, straitComm_t comm, int rank) {
  side.set(input_of(call, static_cast<std::uint32_t>(rank)));
  const straitResult_t result = side.run(call, comm, rank);
  if (result != straitSuccess) return result;
  const Bytes right = expected(call, static_cast<std::uint32_t>(rank)), got = side.get(right.size());
  const auto wrong = std::mismatch(right.begin(), right.end(), got.begin()).first;
  EXPECT_EQ(wrong, right.end()) << describe(call) << " ended with success, and is wrong from byte "
                                << wrong - right.begin() << " on";
  return result;
}

}  // namespace strait::testing::hunt
