// Programs query NCCL's device interface before they use it. Strait has none, and must say so without an error.
#include <gtest/gtest.h>

#include <cstring>

#include "abi/check_sum.hpp"

namespace strait::testing {
namespace {

/// ncclCommProperties_t as in NCCL's headers, up to 2.29.3 and from 2.29.4 on.
struct OldProperties {
  std::size_t size = sizeof(OldProperties);
  unsigned int magic = NCCL_API_MAGIC, version = 22903;
  int rank = -7, ranks = -7, cuda_device = -7, nvml_device = -7;
  bool has_device_interface = true, has_multimem = true;
  int gin_type = -7;
};
struct Properties {
  std::size_t size = sizeof(Properties);
  unsigned int magic = NCCL_API_MAGIC, version = 23004;
  int rank = -7, ranks = -7, cuda_device = -7, nvml_device = -7;
  bool has_device_interface = true, has_multimem = true;
  int gin_type = -7;
  int lsa_teams = -7;
  bool has_host_rma = true;
  int railed_gin_type = -7;
};

extern "C" {
ncclResult_t ncclCommQueryProperties(ncclComm_t, void*);
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t, size_t, int, void**);
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**);
}

TEST(DeviceInterface, IsNoneSayTheProperties) {
  on_threads(2, [](ncclComm_t comm, int rank, int ranks) {
    Properties properties;
    NCCL_EXPECT_OK(ncclCommQueryProperties(comm, &properties));
    EXPECT_EQ(properties.rank, rank);
    EXPECT_EQ(properties.ranks, ranks);
    EXPECT_EQ(properties.lsa_teams, ranks) << "each rank sees its own memory alone";
    EXPECT_FALSE(properties.has_device_interface || properties.has_multimem || properties.has_host_rma);
    EXPECT_EQ(properties.gin_type + properties.railed_gin_type, 0);
  });
}

TEST(DeviceInterface, OldProgramsHaveLessRoom) {
  on_threads(1, [](ncclComm_t comm, int, int) {
    unsigned char memory[sizeof(Properties)];
    std::memset(memory, 0xa5, sizeof memory);
    const OldProperties asked;
    std::memcpy(memory, &asked, sizeof asked);
    NCCL_EXPECT_OK(ncclCommQueryProperties(comm, memory));
    OldProperties answer;
    std::memcpy(&answer, memory, sizeof answer);
    EXPECT_EQ(answer.ranks, 1);
    EXPECT_FALSE(answer.has_device_interface);
    for (std::size_t i = sizeof answer; i < sizeof memory; ++i) ASSERT_EQ(memory[i], 0xa5) << i;
  });
}

TEST(DeviceInterface, APropertiesQuestionSpoilsNoGroup) {
  on_threads(1, [](ncclComm_t comm, int, int) {
    int value = 5;
    Properties properties;
    properties.magic = 0;
    NCCL_EXPECT_OK(ncclGroupStart());
    EXPECT_EQ(ncclCommQueryProperties(comm, &properties), ncclInvalidUsage);
    EXPECT_EQ(ncclCommQueryProperties(comm, nullptr), ncclInvalidArgument);
    NCCL_EXPECT_OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    NCCL_EXPECT_OK(ncclGroupEnd());
    EXPECT_EQ(value, 5);
    EXPECT_EQ(properties.ranks, -7);
  });
}

TEST(DeviceInterface, PointersAreTheOwnOrNone) {
  on_threads(2, [](ncclComm_t comm, int rank, int) {
    char memory[64];
    ncclWindow_t window = nullptr;
    NCCL_EXPECT_OK(ncclCommWindowRegister(comm, memory, sizeof memory, &window, NCCL_WIN_COLL_SYMMETRIC));
    void* pointer = nullptr;
    NCCL_EXPECT_OK(ncclGetPeerDevicePointer(window, 8, rank, &pointer));
    EXPECT_EQ(pointer, memory + 8);
    NCCL_EXPECT_OK(ncclGetPeerDevicePointer(window, 8, 1 - rank, &pointer));
    EXPECT_EQ(pointer, nullptr);
    NCCL_EXPECT_OK(ncclGetLsaDevicePointer(window, 16, 0, &pointer));
    EXPECT_EQ(pointer, memory + 16);
    NCCL_EXPECT_OK(ncclGetLsaMultimemDevicePointer(window, 0, &pointer));
    EXPECT_EQ(pointer, nullptr);
    pointer = memory;
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 2, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 0, 1, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(nullptr, 0, 0, &pointer), ncclInvalidArgument);
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(pointer, memory);
    NCCL_EXPECT_OK(ncclCommWindowDeregister(comm, window));
  });
}

}  // namespace
}  // namespace strait::testing
