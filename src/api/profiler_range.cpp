#include "api/profiler_range.hpp"

#ifdef STRAIT_HAS_NVTX
#include <nvtx3/nvToolsExt.h>

namespace strait {
namespace {

/// Returns NVTX's domain for Strait; null if no profiler is attached.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t handle = nvtxDomainCreateA("Strait");
  return handle;
}

}  // namespace

bool ProfilerRange::is_watched() { return domain() != nullptr; }

void ProfilerRange::begin(const std::string& text, std::uint64_t bytes) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = text.c_str();
  attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  attributes.payload.ullValue = bytes;
  nvtxDomainRangePushEx(domain(), &attributes);
  is_open_ = true;
}

void ProfilerRange::end() { nvtxDomainRangePop(domain()); }

}  // namespace strait
#endif
