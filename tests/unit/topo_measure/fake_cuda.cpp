// A fake CUDA driver with two GPUs, 0000:41:00.0 and 0000:42:00.0. Copies move no data, but take time: 8 GB/s up and 10
// GB/s down, each shared by both GPUs, 16 GB/s from GPU 0 to GPU 1, and 4 GB/s back. P2P is granted only from 0 to 1.
// Builds of this file:
//   FAKE_GOOD: works.   FAKE_EMPTY: a driver without GPUs.   FAKE_OLD: lacks a function.
//   FAKE_STUCK: copies never end.   FAKE_FAILING: copies between GPUs fail.   FAKE_NO_COMPILER: refuses PTX.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>

namespace {
constexpr int success = 0, invalid_value = 1, no_device = 100, illegal_address = 700, not_ready = 600;
[[maybe_unused]] constexpr int jit_compiler_not_found = 221;
constexpr std::uint64_t granularity = 4096;

int contexts[2];
int current = -1;
std::uint64_t next_address = granularity;
std::map<std::uint64_t, int> allocations;  // by address: the GPU, or -1 for the host
struct Stream {
  double done_us = 0;
};
std::map<void*, std::unique_ptr<Stream>> streams;  // includes streams that a test leaves behind
int retained = 0;

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Wire {
  double gbps;
  double free_us = 0;
};
[[maybe_unused]] Wire up{8}, down{10}, forth{16}, back{4};

int move(Wire& wire, std::size_t bytes, void* stream) {
  auto* mine = static_cast<Stream*>(stream);
  if (!streams.contains(mine) || current < 0) return invalid_value;
  const double begin = std::max({now_us(), wire.free_us, mine->done_us});
  mine->done_us = wire.free_us = begin + static_cast<double>(bytes) / (wire.gbps * 1e3);
  return success;
}

struct CudaIpcHandle {
  char bytes[64];
};

int owner(std::uint64_t address) {
  const auto found = allocations.find(address);
  return found == allocations.end() ? -2 : found->second;
}

std::uint64_t allocate(int gpu, std::size_t bytes) {
  const std::uint64_t address = next_address;
  next_address += (bytes / granularity + 1) * granularity;
  allocations[address] = gpu;
  return address;
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

/// For tests: returns how many resources are still held.
EXPORT int fakeCudaLeft() { return static_cast<int>(allocations.size() + streams.size()) + retained; }

EXPORT int cuInit(unsigned) {
#ifdef FAKE_EMPTY
  return no_device;
#else
  return success;
#endif
}
EXPORT int cuGetErrorString(int status, const char** text) {
  *text = status == illegal_address ? "an illegal memory access was encountered" : "invalid argument";
  return success;
}
EXPORT int cuDeviceGetCount(int* count) { return *count = 2, success; }
EXPORT int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal + 7, ordinal >= 0 && ordinal < 2 ? success : invalid_value;
}
EXPORT int cuDeviceGetName(char* name, int length, int device) {
  return std::snprintf(name, static_cast<std::size_t>(length), "Fake %d", device - 7), success;
}
EXPORT int cuDeviceGetPCIBusId(char* id, int length, int device) {
  return std::snprintf(id, static_cast<std::size_t>(length), "0000:4%d:00.0", device - 6), success;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  return ++retained, *context = &contexts[device - 7], success;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return --retained, success; }
EXPORT int cuCtxSetCurrent(void* context) {
  return current = static_cast<int>(static_cast<int*>(context) - contexts), success;
}
EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) { return *can = device < peer, success; }
EXPORT int cuCtxEnablePeerAccess(void* peer, unsigned) {
  return peer == &contexts[1 - current] ? success : invalid_value;
}
EXPORT int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (current < 0) return invalid_value;
  *total_bytes = std::size_t{1} << 30;
  return *free_bytes = *total_bytes - static_cast<std::size_t>(current), success;
}
EXPORT int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  return *address = allocate(current, bytes), success;
}
EXPORT int cuMemFree_v2(std::uint64_t address) {
  return owner(address) >= 0 && allocations.erase(address) == 1 ? success : invalid_value;
}
EXPORT int cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  return *address = reinterpret_cast<void*>(allocate(-1, bytes)), success;
}
EXPORT int cuMemFreeHost(void* address) {
  const auto number = reinterpret_cast<std::uint64_t>(address);
  return owner(number) == -1 && allocations.erase(number) == 1 ? success : invalid_value;
}
EXPORT int cuStreamCreate(void** stream, unsigned) {
  auto made = std::make_unique<Stream>();
  *stream = made.get();
  streams.emplace(*stream, std::move(made));
  return success;
}
EXPORT int cuStreamDestroy_v2(void* stream) { return streams.erase(stream) == 1 ? success : invalid_value; }
EXPORT int cuStreamQuery(void* stream) {
  auto* mine = static_cast<Stream*>(stream);
  if (!streams.contains(mine)) return invalid_value;
#ifdef FAKE_STUCK
  return not_ready;
#else
  return now_us() < mine->done_us ? not_ready : success;
#endif
}
EXPORT int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  if (owner(to) != current || owner(reinterpret_cast<std::uint64_t>(from)) != -1) return invalid_value;
  return move(down, bytes, stream);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  if (owner(from) != current || owner(reinterpret_cast<std::uint64_t>(to)) != -1) return invalid_value;
  return move(up, bytes, stream);
}
EXPORT int cuModuleLoadData(void** module, const void* ptx) {
#ifdef FAKE_NO_COMPILER
  return jit_compiler_not_found;
#endif
  if (current < 0 || std::strstr(static_cast<const char*>(ptx), ".entry ping") == nullptr) return invalid_value;
  return ++retained, *module = &contexts[current], success;
}
EXPORT int cuModuleUnload(void* module) { return module == &contexts[current] ? (--retained, success) : invalid_value; }
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  static const char* const names[] = {"nothing", "clear", "ping", "copy_over", "add_up"};
  for (const char* const& known : names)
    if (std::strcmp(name, known) == 0 && module == &contexts[current])
      return *function = const_cast<char*>(known), success;
  return invalid_value;
}
/// Takes 2 us for an empty kernel, 4 us from GPU to GPU, and the time of 1000 GB/s for copies or 500 GB/s for sums.
EXPORT int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void* stream, void** arguments, void**) {
  auto* mine = static_cast<Stream*>(stream);
  const std::string kernel(static_cast<const char*>(function));
  const auto number = [&](int i) { return *static_cast<std::uint64_t*>(arguments[i]); };
  double us = 2;
  if (kernel == "ping") {
    us = 2 * 4.0 * static_cast<double>(number(2));
    // Peers can access one another's flags only if P2P is granted both ways.
    if (owner(number(0)) != -1 || owner(number(1)) != -1 || number(3) > 1) return illegal_address;
  } else if (kernel == "clear") {
    if (owner(number(0)) == -2) return illegal_address;
  } else if (kernel != "nothing") {
    if (owner(number(0)) != current || owner(number(1)) != current) return illegal_address;
    us = static_cast<double>(number(2)) / (kernel == "copy_over" ? 1000e3 : 500e3);
  }
  mine->done_us = std::max(now_us(), mine->done_us) + us;
  return success;
}
#ifndef FAKE_OLD
EXPORT int cuMemcpyPeerAsync(std::uint64_t to, void* to_context, std::uint64_t from, void* from_context,
                             std::size_t bytes, void* stream) {
#ifdef FAKE_FAILING
  (void)to, (void)to_context, (void)from, (void)from_context, (void)bytes, (void)stream;
  return illegal_address;
#else
  if (from_context != &contexts[current] || to_context != &contexts[1 - current]) return invalid_value;
  if (owner(from) != current || owner(to) != 1 - current) return invalid_value;
  return move(current == 0 ? forth : back, bytes, stream);
#endif
}
#endif
EXPORT int cuIpcGetMemHandle(void*, std::uint64_t) { return invalid_value; }
EXPORT int cuIpcOpenMemHandle_v2(std::uint64_t*, CudaIpcHandle, unsigned) { return invalid_value; }
EXPORT int cuIpcCloseMemHandle(std::uint64_t) { return invalid_value; }
EXPORT int cuStreamBeginCapture_v2(void*, int) { return invalid_value; }
EXPORT int cuStreamEndCapture(void*, void**) { return invalid_value; }
EXPORT int cuGraphInstantiateWithFlags(void**, void*, unsigned long long) { return invalid_value; }
EXPORT int cuGraphDestroy(void*) { return invalid_value; }
EXPORT int cuGraphExecDestroy(void*) { return invalid_value; }
EXPORT int cuGraphLaunch(void*, void*) { return invalid_value; }
