// Two fake GPUs whose memory is host memory, with host ranks in place of GPU ranks, so that `strait perf -g` runs on
// any machine. This library is both the driver (libcuda.so.1) and preloaded. Of Strait's calls only all-reduces are
// recorded into graphs.
//   FAKE_GPUS_LOSE=1: copies to the GPUs move nothing.   FAKE_GPUS_FORGET=1: launched graphs do nothing.
//   FAKE_GPUS_P2P=1: the GPUs reach one another, and the transport is named accordingly. FAKE_GPUS_P2P=0: only the
//   name.
#include <dlfcn.h>
#include <strait/strait.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
/// Strait's own function of that name.
#define REAL(function) reinterpret_cast<decltype(&function)>(::dlsym(RTLD_NEXT, #function))

namespace {

constexpr int success = 0, invalid_value = 1;
int contexts[2];
thread_local int current = -1;
std::atomic<int> held = 0;
using Graph = std::vector<std::function<void()>>;
thread_local Graph* recording = nullptr;

/// Returns memory filled with bits that no one has written.
void* allocate(std::size_t bytes) {
  ++held;
  return std::memset(std::malloc(bytes), 0xab, bytes);
}

int release(void* memory) {
  --held;
  std::free(memory);
  return success;
}

struct AtExit {
  ~AtExit() { std::fprintf(stderr, "fake GPUs: %d held\n", held.load()); }
} at_exit;

}  // namespace

EXPORT straitResult_t straitCommSplit(straitComm_t comm, int color, int key, straitComm_t* split,
                                      const straitConfig_t* config) {
  straitConfig_t host = *config;
  if (host.device != key % 2) return straitInvalidArgument;  // each rank must have the GPU that is its turn
  host.device = -1;
  return REAL(straitCommSplit)(comm, color, key, split, &host);
}

/// Host ranks have no stream, so the stream argument is dropped.
#define WITHOUT_STREAM(function, parameters, ...) \
  EXPORT straitResult_t function parameters { return REAL(function)(__VA_ARGS__, nullptr); }
#define WITHOUT_STREAM_BUT_OPTIONS(function, parameters, ...) \
  EXPORT straitResult_t function parameters { return REAL(function)(__VA_ARGS__, nullptr, options); }
using Type = straitDataType_t;
using Op = straitRedOp_t;
using Comm = straitComm_t;
using Stream = straitStream_t;
using Options = straitCallOptions_t;

EXPORT straitResult_t straitAllReduceWithOptions(const void* from, void* to, size_t count, Type type, Op op, Comm comm,
                                                 Stream, const Options* options) {
  const auto real = REAL(straitAllReduceWithOptions);
  if (recording == nullptr) return real(from, to, count, type, op, comm, nullptr, options);
  recording->push_back([=, kept = *options] { real(from, to, count, type, op, comm, nullptr, &kept); });
  return straitSuccess;
}
WITHOUT_STREAM(straitAllReduce, (const void* from, void* to, size_t count, Type type, Op op, Comm comm, Stream), from,
               to, count, type, op, comm)
WITHOUT_STREAM_BUT_OPTIONS(straitAllGatherWithOptions,
                           (const void* from, void* to, size_t count, Type type, Comm comm, Stream,
                            const Options* options),
                           from, to, count, type, comm)
WITHOUT_STREAM_BUT_OPTIONS(straitReduceScatterWithOptions,
                           (const void* from, void* to, size_t count, Type type, Op op, Comm comm, Stream,
                            const Options* options),
                           from, to, count, type, op, comm)
WITHOUT_STREAM_BUT_OPTIONS(straitAllToAllWithOptions,
                           (const void* from, void* to, size_t count, Type type, Comm comm, Stream,
                            const Options* options),
                           from, to, count, type, comm)
WITHOUT_STREAM(straitBroadcast, (const void* from, void* to, size_t count, Type type, int root, Comm comm, Stream),
               from, to, count, type, root, comm)
WITHOUT_STREAM(straitReduce, (const void* from, void* to, size_t count, Type type, Op op, int root, Comm comm, Stream),
               from, to, count, type, op, root, comm)
WITHOUT_STREAM(straitGather, (const void* from, void* to, size_t count, Type type, int root, Comm comm, Stream), from,
               to, count, type, root, comm)
WITHOUT_STREAM(straitScatter, (const void* from, void* to, size_t count, Type type, int root, Comm comm, Stream), from,
               to, count, type, root, comm)
WITHOUT_STREAM(straitAllToAllv,
               (const void* from, const size_t* send_counts, const size_t* send_offsets, void* to,
                const size_t* receive_counts, const size_t* receive_offsets, Type type, Comm comm, Stream),
               from, send_counts, send_offsets, to, receive_counts, receive_offsets, type, comm)
WITHOUT_STREAM(straitBarrier, (Comm comm, Stream), comm)
WITHOUT_STREAM(straitSend, (const void* from, size_t count, Type type, int peer, Comm comm, Stream), from, count, type,
               peer, comm)
WITHOUT_STREAM(straitRecv, (void* to, size_t count, Type type, int peer, Comm comm, Stream), to, count, type, peer,
               comm)

EXPORT straitResult_t straitCommGetTransport(straitComm_t comm, const char** name, const char** why) {
  const straitResult_t result = REAL(straitCommGetTransport)(comm, name, why);
  if (std::getenv("FAKE_GPUS_P2P") != nullptr) *name = "cuda_p2p";
  return result;
}

EXPORT straitResult_t straitMemAllocDevice(void** pointer, size_t size_bytes, int device) {
  if (device != current) return straitInvalidArgument;
  return ++held, straitMemAlloc(pointer, size_bytes);
}
EXPORT straitResult_t straitMemFree(void* pointer) { return --held, REAL(straitMemFree)(pointer); }

EXPORT int cuStreamBeginCapture_v2(void*, int) { return ++held, recording = new Graph, success; }
EXPORT int cuStreamEndCapture(void*, void** graph) {
  *graph = recording;
  return recording = nullptr, success;
}
EXPORT int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
  return ++held, *executable = new Graph(*static_cast<Graph*>(graph)), success;
}
EXPORT int cuGraphDestroy(void* graph) { return --held, delete static_cast<Graph*>(graph), success; }
EXPORT int cuGraphExecDestroy(void* graph) { return --held, delete static_cast<Graph*>(graph), success; }
EXPORT int cuGraphLaunch(void* graph, void*) {
  if (std::getenv("FAKE_GPUS_FORGET") != nullptr) return success;
  for (const auto& call : *static_cast<Graph*>(graph)) call();
  return success;
}

EXPORT int cuInit(unsigned) { return success; }
EXPORT int cuGetErrorString(int, const char** text) { return *text = "invalid argument", success; }
EXPORT int cuDeviceGetCount(int* count) { return *count = 2, success; }
EXPORT int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, success; }
EXPORT int cuDeviceGetName(char* name, int length, int device) {
  return std::snprintf(name, static_cast<std::size_t>(length), "Fake %d", device), success;
}
EXPORT int cuDeviceGetPCIBusId(char* id, int length, int device) {
  return std::snprintf(id, static_cast<std::size_t>(length), "0000:4%d:00.0", device + 1), success;
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  return ++held, *context = &contexts[device], success;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return --held, success; }
EXPORT int cuCtxSetCurrent(void* context) {
  return current = static_cast<int>(static_cast<int*>(context) - contexts), success;
}
EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  const char* p2p = std::getenv("FAKE_GPUS_P2P");
  return *can = p2p != nullptr && *p2p == '1', device == peer ? invalid_value : success;
}
EXPORT int cuCtxEnablePeerAccess(void* peer, unsigned) { return peer == &contexts[current] ? invalid_value : success; }
struct IpcHandle {
  char bytes[64];
};
EXPORT int cuIpcGetMemHandle(IpcHandle* handle, std::uint64_t address) {
  return std::memcpy(handle, &address, sizeof address), success;
}
EXPORT int cuIpcOpenMemHandle_v2(std::uint64_t*, IpcHandle, unsigned) {
  return invalid_value;
}  // no other process has such memory
EXPORT int cuIpcCloseMemHandle(std::uint64_t) { return invalid_value; }
EXPORT int cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  return *free_bytes = *total_bytes = std::size_t{10} << 20, success;
}
EXPORT int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  if (current < 0) return invalid_value;
  return *address = reinterpret_cast<std::uint64_t>(allocate(bytes)), success;
}
EXPORT int cuMemFree_v2(std::uint64_t address) { return release(reinterpret_cast<void*>(address)); }
EXPORT int cuMemHostAlloc(void** address, std::size_t bytes, unsigned) { return *address = allocate(bytes), success; }
EXPORT int cuMemFreeHost(void* address) { return release(address); }
EXPORT int cuStreamCreate(void** stream, unsigned) { return *stream = allocate(1), success; }
EXPORT int cuStreamDestroy_v2(void* stream) { return release(stream); }
EXPORT int cuStreamQuery(void* stream) { return stream == nullptr ? invalid_value : success; }
EXPORT int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
  if (std::getenv("FAKE_GPUS_LOSE") == nullptr) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return success;
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
  return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), success;
}
EXPORT int cuModuleLoadData(void**, const void*) { return invalid_value; }
EXPORT int cuModuleUnload(void*) { return invalid_value; }
EXPORT int cuModuleGetFunction(void**, void*, const char*) { return invalid_value; }
EXPORT int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**) {
  return invalid_value;
}
EXPORT int cuMemcpyPeerAsync(std::uint64_t to, void*, std::uint64_t from, void*, std::size_t bytes, void*) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes), success;
}
