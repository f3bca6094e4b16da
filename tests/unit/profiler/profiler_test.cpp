// The ranges that a profiler sees. A fake profiler is linked in, in a way that NVTX provides.
#include <gmock/gmock.h>
#include <nvtx3/nvToolsExt.h>

#include <mutex>
#include <string>
#include <vector>

#include "support/ranks.hpp"

namespace strait::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string domain_name;
struct Range {
  std::string text;
  std::uint64_t payload;
};
thread_local std::vector<Range> ranges;
thread_local int open_ranges = 0;

nvtxDomainHandle_t create(const char* name) {
  domain_name = name;
  return reinterpret_cast<nvtxDomainHandle_t>(&domain_name);
}
int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  ranges.push_back({attributes->message.ascii, attributes->payload.ullValue});
  return open_ranges++;
}
int pop(nvtxDomainHandle_t) { return --open_ranges; }

template <class F>
void put(NvtxFunctionTable table, int index, F* function) {
  *table[index] = reinterpret_cast<NvtxFunctionPointer>(function);
}

int attach(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  put(table, NVTX_CBID_CORE2_DomainCreateA, create);
  put(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  put(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}

/// A linked-in profiler sets this variable of NVTX before the first call.
const bool attached = (InitializeInjectionNvtx2_fnptr = attach) != nullptr;

TEST(Profiler, SeesEveryCallWithItsSizeRankAndCommunicator) {
  run_as_threads(2, [](straitComm_t comm, int rank, int) {
    ranges.clear();
    float values[8] = {};
    STRAIT_EXPECT_OK(straitAllReduce(values, values, 8, straitFloat32, straitSum, comm, nullptr));
    float gathered[16] = {};
    STRAIT_EXPECT_OK(straitAllGather(values, gathered, 8, straitFloat32, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(straitSend(values, 2, straitFloat32, 1 - rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitRecv(gathered, 2, straitFloat32, 1 - rank, comm, nullptr));
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(straitAllReduce(nullptr, values, 8, straitFloat32, straitSum, comm, nullptr), straitInvalidArgument);
    ASSERT_EQ(ranges.size(), 5U) << "a call that is refused has none";
    const std::string self = ", rank " + std::to_string(rank) + " of 2, communicator ";
    EXPECT_THAT(ranges[0].text, HasSubstr("all-reduce(count 8, float32, sum), 32 bytes" + self));
    EXPECT_THAT(ranges[0].text, MatchesRegex(".*communicator [0-9a-f]{16}"));
    EXPECT_EQ(ranges[0].payload, 32U);
    EXPECT_THAT(ranges[1].text, HasSubstr("all-gather(count 8, float32), 64 bytes" + self));
    EXPECT_THAT(ranges[2].text, HasSubstr("send-recv(count 2, float32) to rank " + std::to_string(1 - rank) + ", 8"));
    EXPECT_THAT(ranges[3].text, HasSubstr(" from rank " + std::to_string(1 - rank)));
    EXPECT_EQ(ranges[4].text, "straitGroupEnd");
    EXPECT_EQ(open_ranges, 0);
  });
  EXPECT_TRUE(attached);
  EXPECT_EQ(domain_name, "Strait");
}

}  // namespace
}  // namespace strait::testing
