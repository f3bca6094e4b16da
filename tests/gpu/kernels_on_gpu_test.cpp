// What the kernels that communicators load require of GPUs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/wire_format.hpp"

namespace strait::kernels {
namespace {

/// A kernel that needs more local memory than a context has initially is launched only when all other work on the GPU
/// has ended. That would be a deadlock if such work waits for the kernel.
TEST(Kernels, NeedNoMoreLocalMemoryThanAContextHas) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "needs a GPU, here is none";
  std::size_t stack_bytes = 0;
  ASSERT_EQ(cudaDeviceGetLimit(&stack_bytes, cudaLimitStackSize), cudaSuccess);
  std::vector<const void*> all = all_add_kernels();
  const auto add = [&all](const auto& some) { all.insert(all.end(), some.begin(), some.end()); };
  for (const Protocol protocol : {Protocol::lines, Protocol::packets, Protocol::bulk}) add(all_kernels(protocol));
  for (const PipedKernel& piped : all_piped_kernels()) all.push_back(piped.kernel);
  add(all_wire_kernels());
  for (const void* kernel : all) {
    cudaFuncAttributes attributes{};
    const char* name = "";
    ASSERT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
    ASSERT_EQ(cudaFuncGetName(&name, kernel), cudaSuccess);
    EXPECT_LE(attributes.localSizeBytes, stack_bytes) << name;
  }
}

}  // namespace
}  // namespace strait::kernels
