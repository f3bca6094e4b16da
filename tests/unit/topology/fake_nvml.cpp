// A fake NVML library with two GPUs, 0000:41:00.0 and 0000:42:00.0. Builds:
//   FAKE_GOOD: P2P works; four NVLinks connect the GPUs, one of them down.   FAKE_CNS: no P2P, no NVLink.
//   FAKE_GRANTED: P2P works, over PCIe only.
//   FAKE_SPARSE: an old library without functions for NVLink and P2P.   FAKE_FAILING: every call about links fails.
//   FAKE_REFUSING: does not start.
#include <cstdio>
#include <cstring>

namespace {
constexpr int success = 0, not_supported = 3, gpu_is_lost = 15, driver_not_loaded = 9;
int devices[2];
int index_of(void* device) { return device == &devices[0] ? 0 : 1; }
struct Pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
[[maybe_unused]] void fill(Pci* pci, int index) {
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:4%d:00.0", 1 + index);
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int nvmlInit_v2() {
#ifdef FAKE_REFUSING
  return driver_not_loaded;
#else
  return success;
#endif
}
EXPORT int nvmlShutdown() { return success; }
EXPORT const char* nvmlErrorString(int status) {
  return status == driver_not_loaded ? "Driver Not Loaded" : status == gpu_is_lost ? "GPU is lost" : "Not Supported";
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 2, success; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { return *device = &devices[index], success; }
EXPORT int nvmlDeviceGetPciInfo_v3(void* device, Pci* pci) { return fill(pci, index_of(device)), success; }

#ifndef FAKE_SPARSE
struct Field {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double real;
    unsigned number;
    unsigned long long wide;
  };
};
EXPORT int nvmlDeviceGetName(void*, char* name, unsigned size) {
  return std::snprintf(name, size, "Fake GPU"), success;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) { return *major = 8, *minor = 6, success; }
EXPORT int nvmlDeviceGetNvLinkCapability(void*, unsigned, unsigned, unsigned* capable) { return *capable = 1, success; }
EXPORT int nvmlDeviceGetNvLinkState([[maybe_unused]] void* device, [[maybe_unused]] unsigned link,
                                    [[maybe_unused]] int* active) {
#if defined(FAKE_FAILING)
  return gpu_is_lost;
#elif defined(FAKE_GOOD)
  if (link >= 5) return not_supported;
  return *active = link != 4, success;
#else
  return not_supported;
#endif
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, Pci* pci) {
  return fill(pci, 1 - index_of(device)), success;
}
EXPORT int nvmlDeviceGetFieldValues(void*, int, Field* field) {
  field->type = 1;
  field->result = success;
  field->number = 14062;
  return success;
}
EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int, [[maybe_unused]] int* status) {
#if defined(FAKE_FAILING)
  return gpu_is_lost;
#elif defined(FAKE_CNS)
  return *status = 1, success;
#else
  return *status = 0, success;
#endif
}
#endif
