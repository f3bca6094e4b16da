#pragma once

#include "gpu/device_side.hpp"
#include "support/island_reference.hpp"
#include "support/random_data.hpp"

/// Checks that ranks on GPUs go through, whatever joins the ranks.
namespace strait::testing {

inline constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                             Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                             Collective::gather,     Collective::scatter};
inline void check_shapes(straitComm_t comm, int rank, int ranks, const Islands& islands = {}) {
  DeviceSide side((std::size_t{16} << 20) * static_cast<std::size_t>(ranks));
  std::uint64_t seed = 1;
  for (Collective collective : collectives)
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1000}, std::size_t{40961},
                              std::size_t{500'009}, std::size_t{3'000'001}})
      for (bool in_place : {false, true}) {
        CollectiveCase c;
        c.collective = collective;
        c.type = seed % 2 == 0 ? DataType::float32 : DataType::bfloat16;
        c.count = count;
        c.islands = islands;
        c.in_place = in_place;
        c.seed = ++seed;
        c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
        c.misalignment_bytes = seed % 3 == 0 ? 4 : 0;
        side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
                   seed % 4 < 2 ? Mode::eager : Mode::graph);
      }
}

inline void check_arithmetic(straitComm_t comm, int rank, int ranks, const Islands& islands = {}) {
  DeviceSide side((std::size_t{1} << 20) * static_cast<std::size_t>(ranks));
  std::uint64_t seed = 1000;
  for (Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce})
    for (int type = 0; type < data_type_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op)
        for (std::size_t bytes : {std::size_t{1003}, std::size_t{700'000}}) {
          CollectiveCase c;
          c.collective = collective;
          c.type = static_cast<DataType>(type);
          c.op = static_cast<ReduceOp>(op);
          c.count = bytes / size_bytes(c.type) + 3;
          c.islands = islands;
          c.seed = ++seed;
          c.root = static_cast<std::uint32_t>(seed % static_cast<std::uint64_t>(ranks));
          c.in_place = seed % 2 == 0;
          c.misalignment_bytes = seed % 5 == 0 ? 1 : 0;
          side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::eager);
          if (c.op == ReduceOp::premul_sum)  // a scalar in device memory must be read at each launch
            side.check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c, Mode::graph);
        }
}

/// The longest message, and lengths of messages that lie on both sides of the limits between the protocols.
inline constexpr std::size_t longest_message_bytes = std::size_t{2} << 20;
inline std::size_t mixed_bytes(int from, int to, int turn) {
  const std::uint64_t bits = mix(static_cast<std::uint64_t>(from * 100 + to * 10 + turn));
  return static_cast<std::size_t>(bits / 4) % (bits % 3 == 0 ? std::size_t{64} << 10 : longest_message_bytes);
}

/// Sends messages of different lengths between all ranks, including to itself, several per pair and in groups.
inline void check_messages(straitComm_t comm, int rank, int ranks) {
  constexpr std::size_t slot_bytes = 4 * longest_message_bytes;
  DeviceSide side(slot_bytes);
  std::byte *send = nullptr, *receive = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&send, slot_bytes * static_cast<std::size_t>(ranks)));
  STRAIT_EXPECT_CUDA(cudaMalloc(&receive, slot_bytes * static_cast<std::size_t>(ranks)));
  meet_on_host();  // allocating, like freeing, may wait for kernels of ranks that share the GPU
  for (int turn = 0; turn < 4; ++turn) {
    // Each transfer is two messages: the shorter one is first or last, and the second begins where the first ends.
    const auto first_of = [&](std::size_t bytes) { return turn % 2 == 0 ? bytes / 3 : bytes - bytes / 16; };
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(receive, poison, slot_bytes * static_cast<std::size_t>(ranks), side.stream()));
    STRAIT_EXPECT_OK(straitGroupStart());
    for (int peer = 0; peer < ranks; ++peer) {
      const std::size_t out = mixed_bytes(rank, peer, turn), in = mixed_bytes(peer, rank, turn);
      const std::size_t first_out = first_of(out), first_in = first_of(in);
      const Bytes data = random_elements(DataType::uint8, out, static_cast<std::uint64_t>(rank * 16 + peer + turn));
      std::byte* const from = send + static_cast<std::size_t>(peer) * slot_bytes;
      std::byte* const to = receive + static_cast<std::size_t>(peer) * slot_bytes;
      STRAIT_EXPECT_CUDA(cudaMemcpyAsync(from, data.data(), out, cudaMemcpyHostToDevice, side.stream()));
      STRAIT_EXPECT_OK(straitSend(from, first_out, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitSend(from + first_out, out - first_out, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(to, first_in, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(to + first_in, in - first_in, straitUint8, peer, comm, side.stream()));
    }
    STRAIT_EXPECT_OK(straitGroupEnd());
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
    for (int peer = 0; peer < ranks; ++peer) {
      const Bytes expected = random_elements(DataType::uint8, mixed_bytes(peer, rank, turn),
                                             static_cast<std::uint64_t>(peer * 16 + rank + turn));
      Bytes got(expected.size());
      STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), receive + static_cast<std::size_t>(peer) * slot_bytes, got.size(),
                                    cudaMemcpyDeviceToHost));
      EXPECT_EQ(first_difference(expected, got, DataType::uint8), "") << "from " << peer << " to " << rank;
    }
  }
  // One direction only and without a group; ranks that take no part do nothing.
  if (rank == 0 && ranks > 1) STRAIT_EXPECT_OK(straitSend(send, 1000, straitFloat32, ranks - 1, comm, side.stream()));
  if (rank == ranks - 1 && ranks > 1)
    STRAIT_EXPECT_OK(straitRecv(receive, 1000, straitFloat32, 0, comm, side.stream()));
  STRAIT_EXPECT_OK(straitBarrier(comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  meet_on_host();
  cudaFree(send);
  cudaFree(receive);
}

/// The first rank posts as a group what the last rank posts one by one. The lengths do not fit into the slots, or take
/// several rounds of them.
inline void check_group_beside_others(straitComm_t comm, int rank, int ranks) {
  const int last = ranks - 1, peer = last - rank;
  constexpr std::size_t lengths[] = {std::size_t{4} << 20, (std::size_t{48} << 20) + 17}, most = lengths[1];
  DeviceSide side(16);
  std::byte *const send = DeviceSide::allocate(most, false), *const receive = DeviceSide::allocate(most, false);
  const auto data_of = [](int from) {
    return random_elements(DataType::uint8, most, 77 + static_cast<unsigned>(from));
  };
  STRAIT_EXPECT_CUDA(cudaMemcpy(send, data_of(rank).data(), most, cudaMemcpyHostToDevice));
  for (const std::size_t bytes : lengths) {
    STRAIT_EXPECT_CUDA(cudaMemset(receive, poison, bytes));
    STRAIT_EXPECT_CUDA(cudaDeviceSynchronize());
    meet_on_host();  // device-wide operations may wait for kernels of ranks that share the GPU
    if (peer != rank && (rank == 0 || rank == last)) {
      if (rank == 0) STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitRecv(receive, bytes, straitUint8, peer, comm, side.stream()));
      STRAIT_EXPECT_OK(straitSend(send, bytes, straitUint8, peer, comm, side.stream()));
      if (rank == 0) STRAIT_EXPECT_OK(straitGroupEnd());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      Bytes got(bytes), expected = data_of(peer);
      expected.resize(bytes);
      STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), receive, bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(first_difference(expected, got, DataType::uint8), "") << "from " << peer << " to " << rank;
    }
    meet_on_host();
  }
  DeviceSide::release(send, false);
  DeviceSide::release(receive, false);
}

/// Checks all-to-all-v calls with blocks of different lengths.
inline void check_all_to_all_v(straitComm_t comm, int rank, int ranks) {
  const std::size_t bytes = longest_message_bytes * static_cast<std::size_t>(ranks);
  DeviceSide side(4096);
  std::byte *send = nullptr, *receive = nullptr;
  STRAIT_EXPECT_CUDA(cudaMalloc(&send, bytes));
  STRAIT_EXPECT_CUDA(cudaMalloc(&receive, bytes));
  meet_on_host();  // allocating, like freeing, may wait for kernels of ranks that share the GPU
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<std::size_t> out, in, out_offsets, in_offsets;
    Bytes sent, expected;
    const auto append = [&](int from, int to, Bytes& all, auto& counts, auto& offsets) {
      const Bytes data = random_elements(DataType::uint8, mixed_bytes(from, to, turn),
                                         static_cast<std::uint64_t>(from * 16 + to + turn));
      counts.push_back(data.size());
      offsets.push_back(all.size());
      all.insert(all.end(), data.begin(), data.end());
    };
    for (int peer = 0; peer < ranks; ++peer) {
      append(rank, peer, sent, out, out_offsets);
      append(peer, rank, expected, in, in_offsets);
    }
    Bytes got(expected.size());
    const cudaStream_t stream = side.stream();
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(send, sent.data(), sent.size(), cudaMemcpyHostToDevice, stream));
    STRAIT_EXPECT_CUDA(cudaMemsetAsync(receive, poison, bytes, stream));
    STRAIT_EXPECT_OK(straitAllToAllv(send, out.data(), out_offsets.data(), receive, in.data(), in_offsets.data(),
                                     straitUint8, comm, stream));
    STRAIT_EXPECT_CUDA(cudaMemcpyAsync(got.data(), receive, got.size(), cudaMemcpyDeviceToHost, stream));
    STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(first_difference(expected, got, DataType::uint8), "") << "on rank " << rank << ", turn " << turn;
  }
  STRAIT_EXPECT_OK(straitBarrier(comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  meet_on_host();
  cudaFree(send);
  cudaFree(receive);
}

/// Runs small all-reduces back to back, each with different values, so that a line taken from a wrong use of a slot
/// would show.
inline void check_repeats(straitComm_t comm, int rank, int ranks) {
  constexpr int count = 96;
  const int calls = takes_turns(ranks) ? 1000 : 20'000;
  DeviceSide side(1 << 20);
  std::int32_t *input = nullptr, *output = nullptr;
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(calls + count));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(rank));
  STRAIT_EXPECT_CUDA(cudaMalloc(&input, numbers.size() * 4));
  STRAIT_EXPECT_CUDA(cudaMalloc(&output, static_cast<std::size_t>(calls) * count * 4));
  STRAIT_EXPECT_CUDA(cudaMemcpyAsync(input, numbers.data(), numbers.size() * 4, cudaMemcpyHostToDevice, side.stream()));
  meet_on_host();  // allocating, like freeing, may wait for kernels of ranks that share the GPU
  for (int call = 0; call < calls; ++call)
    STRAIT_EXPECT_OK(straitAllReduce(input + call, output + std::size_t{count} * static_cast<std::size_t>(call), count,
                                     straitInt32, straitSum, comm, side.stream()));
  STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
  std::vector<std::int32_t> got(static_cast<std::size_t>(calls) * count);
  STRAIT_EXPECT_CUDA(cudaMemcpy(got.data(), output, got.size() * 4, cudaMemcpyDeviceToHost));
  std::size_t wrong = 0;
  for (std::size_t call = 0; call < static_cast<std::size_t>(calls); ++call)
    for (std::size_t i = 0; i < count; ++i)
      wrong += got[call * count + i] != static_cast<std::int32_t>((call + i) * 7) * ranks + ranks * (ranks - 1) / 2;
  EXPECT_EQ(wrong, 0u);
  meet_on_host();
  cudaFree(input);
  cudaFree(output);
}

/// Runs collectives of all lengths back to back on two streams and in graphs.
inline void check_turns(straitComm_t comm, int rank, int ranks, const Islands& islands) {
  DeviceSide one(std::size_t{8} << 20), other(std::size_t{8} << 20);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CollectiveCase c;
    c.collective = collectives[mix(seed) % std::size(collectives)];
    c.type = DataType::bfloat16;
    c.count = 1 + mix(seed + 1000) % (seed % 2 == 0 ? 3000 : 400'000);
    c.root = static_cast<std::uint32_t>(mix(seed + 2000) % static_cast<std::uint64_t>(ranks));
    c.seed = seed;
    c.islands = islands;
    (seed % 3 == 0 ? other : one)
        .check(comm, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks), c,
               seed % 5 == 0 ? Mode::graph : Mode::eager);
  }
}

}  // namespace strait::testing
