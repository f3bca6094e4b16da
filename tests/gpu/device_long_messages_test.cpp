// Long messages that are written directly to memory that their receivers have registered, through the public interface.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/registration.hpp"
#include "kernels/launch.hpp"

namespace strait::testing {
namespace {

using DeviceLongMessages = DeviceRanks;
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceLongMessages,
                         ::testing::Values(Setup{false, 1}, Setup{false, 2}, Setup{true, 2}, Setup{false, 4},
                                           Setup{true, 4}),
                         name_of);

/// Sends messages round a ring of ranks into the first and the last of more registrations than kernels are told of.
/// Memory that kernels are not told of must be treated as if it were not registered.
TEST_P(DeviceLongMessages, MoreThanKernelsAreToldOf) {
  run([](straitComm_t comm, int rank, int ranks) {
    const std::size_t bytes = std::size_t{ranks == 2 ? 256u : 32u} << 20;
    DeviceSide side(bytes);
    std::vector<std::byte*> memory(kernels::most_registered + 2);
    std::vector<std::unique_ptr<Registration>> registrations;
    for (std::byte*& each : memory) each = DeviceSide::allocate(bytes, true);
    meet_on_host();  // allocating may wait for kernels of ranks that share the GPU, and these for this rank
    for (std::byte* each : memory) registrations.push_back(std::make_unique<Registration>(comm, each, bytes));
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    for (std::byte* const to : {memory.front(), memory.back()}) {
      const auto value_of = [&](int sender) { return sender * 16 + (to == memory.front() ? 1 : 2); };
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(to, poison, bytes, side.stream()));
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(side.send(), value_of(rank), bytes, side.stream()));
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitSend(side.send(), bytes, straitUint8, next, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(to, bytes, straitUint8, previous, comm, side.stream()));
      STRAIT_EXPECT_OK(straitGroupEnd());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      Bytes received(bytes);
      STRAIT_EXPECT_CUDA(cudaMemcpy(received.data(), to, bytes, cudaMemcpyDeviceToHost));
      const auto expected = static_cast<std::byte>(value_of(previous));
      EXPECT_EQ(std::count(received.begin(), received.end(), expected), static_cast<std::ptrdiff_t>(bytes));
    }
    registrations.clear();
    meet_on_host();
    for (std::byte* each : memory) DeviceSide::release(each, true);
  });
}

/// A graph whose kernels were told of two registrations can be launched after the one that it does not use has been
/// undone and its memory freed.
TEST_P(DeviceLongMessages, AGraphOutlivesWhatItDoesNotUse) {
  run([](straitComm_t comm, int rank, int ranks) {
    const std::size_t bytes = std::size_t{ranks == 2 ? 256u : 32u} << 20;
    DeviceSide side(bytes, true);
    std::byte* const other = DeviceSide::allocate(bytes, true);
    meet_on_host();  // allocating may wait for kernels of ranks that share the GPU, and these for this rank
    std::optional<Registration> of_other(std::in_place, comm, other, bytes);
    const Registration registration(comm, side.receive(), side.bytes());
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const Graph graph(side.stream(), [&] {
      STRAIT_EXPECT_OK(straitGroupStart());
      STRAIT_EXPECT_OK(straitSend(side.send(), bytes, straitUint8, next, comm, side.stream()));
      STRAIT_EXPECT_OK(straitRecv(side.receive(), bytes, straitUint8, previous, comm, side.stream()));
      STRAIT_EXPECT_OK(straitGroupEnd());
    });
    for (int launch = 0; launch < 3; ++launch) {
      const auto value_of = [&](int sender) { return sender * 16 + launch; };
      if (launch == 1) {
        of_other.reset();
        DeviceSide::release(other, true);
      }
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(side.receive(), poison, bytes, side.stream()));
      STRAIT_EXPECT_CUDA(cudaMemsetAsync(side.send(), value_of(rank), bytes, side.stream()));
      graph.launch(side.stream());
      STRAIT_EXPECT_CUDA(cudaStreamSynchronize(side.stream()));
      Bytes received(bytes);
      STRAIT_EXPECT_CUDA(cudaMemcpy(received.data(), side.receive(), bytes, cudaMemcpyDeviceToHost));
      const auto expected = static_cast<std::byte>(value_of(previous));
      EXPECT_EQ(std::count(received.begin(), received.end(), expected), static_cast<std::ptrdiff_t>(bytes)) << launch;
    }
  });
}

/// Sends messages round a ring of ranks into memory that all ranks have registered, or only the even ones.
TEST_P(DeviceLongMessages, LongMessages) {
  run([](straitComm_t comm, int rank, int ranks) {
    const std::size_t bytes = (std::size_t{ranks == 2 ? 257u : 33u} << 20) + 17;  // written directly
    const int turns = ranks == 2 ? 1 : 3;
    DeviceSide registered(bytes + 1, true), plain(bytes + 1);
    const Registration registration(comm, registered.receive(), registered.bytes());
    const auto data_of = [&](int sender, std::uint64_t seed) {
      return random_elements(DataType::uint8, bytes, seed * 100 + static_cast<std::uint64_t>(sender));
    };
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    cudaStream_t stream = registered.stream();
    std::uint64_t seed = 0;
    for (const bool all : {true, false}) {
      const bool is_plain = !all && rank % 2 != 0;
      std::byte* const memory = is_plain ? plain.receive() : registered.receive();
      const std::size_t at = guard_bytes + (all ? 0 : 1);
      const auto call = [&] {
        STRAIT_EXPECT_OK(straitGroupStart());
        STRAIT_EXPECT_OK(straitSend(registered.send(), bytes, straitUint8, next, comm, stream));
        STRAIT_EXPECT_OK(straitRecv(memory + at, bytes, straitUint8, previous, comm, stream));
        STRAIT_EXPECT_OK(straitGroupEnd());
      };
      const auto check = [&](auto&& go) {
        ++seed;
        const Bytes sent = data_of(rank, seed), expected = data_of(previous, seed);
        STRAIT_EXPECT_CUDA(cudaMemsetAsync(memory, poison, registered.bytes(), stream));
        STRAIT_EXPECT_CUDA(cudaMemcpyAsync(registered.send(), sent.data(), bytes, cudaMemcpyHostToDevice, stream));
        go();
        STRAIT_EXPECT_CUDA(cudaStreamSynchronize(stream));
        Bytes received(registered.bytes(), std::byte{});
        STRAIT_EXPECT_CUDA(cudaMemcpy(received.data(), memory, received.size(), cudaMemcpyDeviceToHost));
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), received.begin() + static_cast<std::ptrdiff_t>(at)))
            << "rank " << rank << ", message " << seed;
        const auto is_poison = [](std::byte each) { return each == std::byte{poison}; };
        EXPECT_TRUE(std::all_of(received.begin(), received.begin() + static_cast<std::ptrdiff_t>(at), is_poison));
        EXPECT_TRUE(std::all_of(received.begin() + static_cast<std::ptrdiff_t>(at + bytes), received.end(), is_poison));
      };
      for (int turn = 0; turn < turns; ++turn) check(call);
      const Graph graph(stream, call);
      for (int turn = 0; turn < turns; ++turn) check([&] { graph.launch(stream); });
    }
  });
}

}  // namespace
}  // namespace strait::testing
