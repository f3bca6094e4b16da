#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

/// The memory of a litmus test's slots, and which GPUs write and read them.
namespace strait::testing {

#define LITMUS_CUDA(call)                                                                    \
  do {                                                                                       \
    const cudaError_t cuda_result = (call);                                                  \
    ASSERT_EQ(cuda_result, cudaSuccess) << #call << ": " << cudaGetErrorString(cuda_result); \
  } while (false)

/// Writers and readers: two GPUs that write to each other at the same time, or blocks of one GPU that write to others
/// of it. The slots are in the reader's memory or in host memory.
enum class Where { peers, peers_through_host, one_gpu, one_gpu_through_host };
constexpr bool has_peers(Where where) { return where == Where::peers || where == Where::peers_through_host; }
constexpr bool is_host(Where where) {
  return where == Where::peers_through_host || where == Where::one_gpu_through_host;
}
inline std::string name_of(const ::testing::TestParamInfo<Where>& test) {
  static const char* const names[] = {"Peers", "PeersThroughHost", "OneGpu", "OneGpuThroughHost"};
  return names[static_cast<int>(test.param)];
}

/// Memory of a device, or pinned memory of the host that all devices reach at the same address.
class LitmusMemory {
 public:
  LitmusMemory() = default;
  /// `device` < 0: host memory.
  LitmusMemory(int device, std::size_t size_bytes) : device_(device), size_bytes_(size_bytes) {
    if (device_ < 0) {
      EXPECT_EQ(cudaHostAlloc(&data_, size_bytes, cudaHostAllocPortable | cudaHostAllocMapped), cudaSuccess);
    } else {
      EXPECT_EQ(cudaSetDevice(device_), cudaSuccess);
      EXPECT_EQ(cudaMalloc(&data_, size_bytes), cudaSuccess);
    }
  }
  ~LitmusMemory() {
    if (device_ < 0)
      cudaFreeHost(data_);
    else
      cudaFree(data_);
  }
  LitmusMemory(const LitmusMemory&) = delete;
  LitmusMemory& operator=(const LitmusMemory&) = delete;
  LitmusMemory(LitmusMemory&& other) noexcept : device_(other.device_), size_bytes_(other.size_bytes_) {
    std::swap(data_, other.data_);
  }
  LitmusMemory& operator=(LitmusMemory&&) = delete;

  void clear() const {
    if (device_ < 0) {
      std::memset(data_, 0, size_bytes_);
    } else {
      EXPECT_EQ(cudaSetDevice(device_), cudaSuccess);
      EXPECT_EQ(cudaMemset(data_, 0, size_bytes_), cudaSuccess);
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  int device_ = -1;
  std::size_t size_bytes_ = 0;
  void* data_ = nullptr;
};

/// The slots and flags of one direction, from a writing GPU to a reading GPU.
struct LitmusWay {
  int writer, reader;
  LitmusMemory slots, flags, returned;
};

inline bool reaches(int device, int peer) {
  int can = 0;
  if (cudaDeviceCanAccessPeer(&can, device, peer) != cudaSuccess || can == 0) return false;
  cudaSetDevice(device);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
  cudaGetLastError();  // clears the error if it was enabled already, by an earlier test
  return enabled == cudaSuccess || enabled == cudaErrorPeerAccessAlreadyEnabled;
}
/// As check_nvlink() (src/device/device_links.cpp): native atomics work across NVLink only.
inline bool has_nvlink(int device, int peer) {
  int atomics = 0;
  return cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer) == cudaSuccess &&
         atomics != 0;
}

}  // namespace strait::testing
