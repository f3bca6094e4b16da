// A fake NVML library with one GPU that has two NVLinks. Environment variables set its health: FAKE_CELSIUS,
// FAKE_THROTTLE_REASONS, FAKE_ECC_ERRORS, and FAKE_NVLINK_ERRORS_<kind> for its second link.
#include <cstdlib>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0;
int gpu;

unsigned long long number(const std::string& variable) {
  const char* const text = std::getenv(variable.c_str());
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

}  // namespace

EXPORT int nvmlInit_v2() { return success; }
EXPORT int nvmlShutdown() { return success; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 1, success; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned, void** device) { return *device = &gpu, success; }
EXPORT int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  return *celsius = static_cast<unsigned>(number("FAKE_CELSIUS")), success;
}
EXPORT int nvmlDeviceGetTemperatureThreshold(void*, int, unsigned* celsius) { return *celsius = 90, success; }
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  return *reasons = number("FAKE_THROTTLE_REASONS"), success;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void*, int, int, unsigned long long* errors) {
  return *errors = number("FAKE_ECC_ERRORS"), success;
}
EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) { return *active = link < 2 ? 1 : 0, success; }
EXPORT int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned link, int kind, unsigned long long* count) {
  return *count = link == 1 ? number("FAKE_NVLINK_ERRORS_" + std::to_string(kind)) : 0, success;
}
