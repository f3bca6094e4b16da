#include "executor/plan_on_gpu/group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "plan/request.hpp"
#include "support/reference.hpp"

namespace strait::cuda {
namespace {

using strait::testing::Bytes;
using ::testing::HasSubstr;

class CudaGroup : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t result = cudaGetDeviceCount(&devices);
    if (result != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU here: " << cudaGetErrorString(result);
    const int ranks = devices == 1 ? 4 : std::min(devices, 8);
    for (int rank = 0; rank < ranks; ++rank) {
      devices_.push_back(rank % devices);
      DeviceGuard guard(devices_.back());
      cudaStream_t stream = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
      streams_.push_back(stream);
    }
  }
  void TearDown() override {
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  Plan plan(std::string_view algorithm, Collective collective = Collective::all_reduce, bool in_place = false) const {
    PlanRequest request;
    request.collective = collective;
    request.ranks = static_cast<std::uint32_t>(devices_.size());
    request.peer_memory = true;
    request.in_place = in_place;
    return build_all(*find_algorithm(algorithm), request);
  }
  Group::Options options(Protocol protocol, std::uint64_t timeout_ms = 5000) const {
    Group::Options result;
    result.program = {.protocol = protocol, .max_blocks = 4, .block_slot_bytes = 4096, .depth = 2};
    result.devices = devices_;
    result.timeout_ms = timeout_ms;
    return result;
  }
  Status synchronize() const {
    for (cudaStream_t stream : streams_) STRAIT_TRY(check(cudaStreamSynchronize(stream), "a GPU failed"));
    return {};
  }

  /// Runs a collective three times and compares the last outputs with the reference's.
  void expect_reference_bits(const Plan& plan, Protocol protocol, DataType type, ReduceOp op, std::size_t count,
                             std::size_t offset, bool in_place);

  std::vector<int> devices_;
  std::vector<cudaStream_t> streams_;
};

void CudaGroup::expect_reference_bits(const Plan& plan, Protocol protocol, DataType type, ReduceOp op,
                                      std::size_t count, std::size_t offset, bool in_place) {
  SCOPED_TRACE(plan[0].algorithm + " " + std::string(name(type)) + " " + std::string(name(op)) + " " +
               std::to_string(count) + (in_place ? " in place" : "") +
               (protocol == Protocol::packet ? " packets" : " simple"));
  const auto group = Group::create(plan, options(protocol));
  ASSERT_TRUE(group) << group.error().message;
  const std::size_t shift = offset * size_bytes(type);
  std::vector<Bytes> inputs;
  std::vector<DeviceMemory> memory;
  std::vector<RankBuffers> buffers;
  for (std::size_t r = 0; r < devices_.size(); ++r) {
    inputs.push_back(strait::testing::random_elements(type, plan[r].input_blocks() * count, r + 1));
    const std::size_t output_bytes = plan[r].output_blocks() * count * size_bytes(type);
    for (const std::size_t bytes : {inputs[r].size(), std::max(inputs[r].size(), output_bytes)})
      memory.push_back(DeviceMemory::allocate(devices_[r], bytes + shift + 16, devices_).value());
    std::byte* output = memory.back().data() + shift;
    std::byte* input = in_place ? output : memory[memory.size() - 2].data() + shift;
    buffers.push_back({input, output});
  }
  for (int time = 0; time < (in_place ? 1 : 3); ++time) {
    for (std::size_t r = 0; r < devices_.size(); ++r)
      ASSERT_EQ(
          cudaMemcpy(const_cast<void*>(buffers[r].input), inputs[r].data(), inputs[r].size(), cudaMemcpyHostToDevice),
          cudaSuccess);
    // A small copy may not have reached the device yet when cudaMemcpy() returns.
    for (const int device : devices_) {
      DeviceGuard guard(device);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
    const Status status = (*group)->enqueue({type, op, count, 3}, buffers, streams_);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_TRUE(synchronize());
    const Status error = (*group)->error();
    ASSERT_TRUE(error) << error.error().message;
  }
  for (std::uint32_t r = 0; r < devices_.size(); ++r) {
    const Bytes expected = strait::testing::reference_output(
        {.collective = plan[r].collective, .type = type, .op = op, .inputs = inputs}, r);
    Bytes got(expected.size());
    ASSERT_EQ(cudaMemcpy(got.data(), buffers[r].output, got.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(strait::testing::first_difference(expected, got, type, inputs), "") << "rank " << r;
  }
}

TEST_F(CudaGroup, AllReducePlansGiveTheReferencesBits) {
  for (const auto* algorithm : {"one_hop", "two_hop", "peer_one_hop", "peer_two_hop", "peer_push"})
    for (const Protocol protocol : {Protocol::simple, Protocol::packet})
      for (const std::size_t count : {1, 1000, 50'001})
        for (const bool in_place : {false, true})
          expect_reference_bits(plan(algorithm, Collective::all_reduce, in_place), protocol, DataType::bfloat16,
                                ReduceOp::sum, count, count % 2, in_place);
}

TEST_F(CudaGroup, EveryKernelRoundsLikeTheSpecification) {
  for (const auto& kernels : {float32_kernels(), float16_kernels(), bfloat16_kernels(), integer_kernels()})
    for (const Kernel& kernel : kernels)
      expect_reference_bits(plan("two_hop"), kernel.protocol, kernel.type, kernel.op, 20'000, 0, false);
}

TEST_F(CudaGroup, CopyingPlansRunForTypesWithoutAKernel) {
  for (const Protocol protocol : {Protocol::simple, Protocol::packet}) {
    expect_reference_bits(plan("one_hop", Collective::all_gather), protocol, DataType::uint64, ReduceOp::sum, 777, 1,
                          false);
    expect_reference_bits(plan("direct", Collective::all_to_all), protocol, DataType::uint8, ReduceOp::sum, 1001, 0,
                          false);
  }
}

/// Blocks rank 1's stream while `act` runs, and returns the error that the group then reports.
template <class F>
Status run_without_rank_1(Group& group, DataType type, const std::vector<RankBuffers>& buffers,
                          const std::vector<cudaStream_t>& streams, F act) {
  std::atomic<bool> held = true;
  const auto hold = [](void* flag) {
    while (static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  STRAIT_TRY(check(cudaLaunchHostFunc(streams[1], hold, &held), "cannot hold a stream"));
  const Status enqueued = group.enqueue({type, ReduceOp::sum, 64, 1}, buffers, streams);
  act();
  const Status ended = check(cudaStreamSynchronize(streams[0]), "a GPU failed");
  const Status error = group.error();
  held = false;
  for (cudaStream_t stream : streams) STRAIT_TRY(check(cudaStreamSynchronize(stream), "a GPU failed"));
  STRAIT_TRY(enqueued);
  STRAIT_TRY(ended);
  return error;
}

TEST_F(CudaGroup, AWaitForAMissingRankEndsByDeadlineOrAbort) {
  for (const Protocol protocol : {Protocol::simple, Protocol::packet})
    for (const bool abort : {false, true}) {
      const auto group = Group::create(plan("one_hop"), options(protocol, abort ? 60'000 : 200));
      ASSERT_TRUE(group) << group.error().message;
      std::vector<DeviceMemory> memory;
      std::vector<RankBuffers> buffers;
      for (const int device : devices_) {
        memory.push_back(DeviceMemory::allocate(device, 1024, devices_).value());
        buffers.push_back({memory.back().data(), memory.back().data() + 512});
      }
      const Status status = run_without_rank_1(**group, DataType::float32, buffers, streams_, [&] {
        if (!abort) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        (*group)->abort();
      });
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, abort ? Code::aborted : Code::timeout);
      EXPECT_THAT(status.error().message, HasSubstr("waited for rank 1"));
      EXPECT_FALSE((*group)->enqueue({DataType::float32, ReduceOp::sum, 64, 1}, buffers, streams_));
    }
}

TEST_F(CudaGroup, RefusesWhatCannotRunAtOnce) {
  const auto group = Group::create(plan("one_hop"), options(Protocol::simple));
  ASSERT_TRUE(group) << group.error().message;
  const std::vector<RankBuffers> buffers(devices_.size());
  const auto message = [&](const Group::Operation& operation) {
    const Status status = (*group)->enqueue(operation, buffers, streams_);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(message({DataType::float32, ReduceOp::sum, 1, 5}), HasSubstr("1 to 4 blocks"));
  EXPECT_THAT(message({DataType::float32, ReduceOp::prod, 1, 1}), HasSubstr("no kernel for the prod of float32"));
}

}  // namespace
}  // namespace strait::cuda
