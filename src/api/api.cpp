// The C interface: the library itself, its errors and its memory.
#include "api/api.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "api/group.hpp"
#include "base/environment.hpp"
#include "base/own_thread.hpp"
#include "base/thread_text.hpp"
#include "bootstrap/bootstrap.hpp"
#include "device/memory/device_memory.hpp"
#include "transports/shm/shared_heap.hpp"

namespace strait::api {
namespace {

static_assert(int(Code::success) == straitSuccess && int(Code::invalid_argument) == straitInvalidArgument &&
              int(Code::invalid_usage) == straitInvalidUsage && int(Code::system_error) == straitSystemError &&
              int(Code::cuda_error) == straitCudaError && int(Code::internal_error) == straitInternalError &&
              int(Code::remote_error) == straitRemoteError && int(Code::mismatch) == straitMismatch &&
              int(Code::timeout) == straitTimeout && int(Code::aborted) == straitAborted &&
              int(Code::unsupported) == straitUnsupported && int(Code::out_of_memory) == straitOutOfMemory &&
              int(Code::in_progress) == straitInProgress);
static_assert(straitWireOff + int(WireFormat::off) == straitWireOff &&
              straitWireOff + int(WireFormat::int8) == straitWireInt8 &&
              straitWireOff + int(WireFormat::fp8) == straitWireFp8 &&
              straitWireOff + int(WireFormat::int4) == straitWireInt4);
static_assert(unique_id_bytes == STRAIT_UNIQUE_ID_BYTES);

std::string& last_error() { return thread_text<struct LastError>(); }

}  // namespace

straitResult_t result_of(const Error& error) {
  last_error() = error.message;
  return static_cast<straitResult_t>(error.code);
}

straitResult_t result_of(const Status& status) { return status ? straitSuccess : result_of(status.error()); }

straitResult_t invalid(std::string message) { return result_of(Error{Code::invalid_argument, std::move(message)}); }

straitResult_t out_of_memory() noexcept {
  last_error() = "out of memory";  // fits into std::string's internal buffer: no allocation
  return straitOutOfMemory;
}

straitResult_t result_in_group(const Status& status) {
  if (!status && Group::of_this_thread().is_open()) Group::of_this_thread().refuse(status.error());
  return result_of(status);
}

Result<Comm*> comm_of(straitComm_t handle) {
  if (handle == nullptr) return fail(Code::invalid_argument, "the communicator is NULL");
  if (handle->mark == straitComm::live && handle->is_inherited()) return fail_inherited("communicator");
  if (handle->mark != straitComm::live || !handle->is_ready)
    return fail(Code::invalid_argument,
                "this is not a communicator, or it was destroyed, or the group that makes it has not ended well");
  return handle->comm.get();
}

Result<std::uint32_t> sms_of(int max_sms) {
  if (max_sms == STRAIT_NO_SMS) return no_sms;
  if (max_sms < 0) return fail(Code::invalid_argument, "must not be negative (but for STRAIT_NO_SMS)");
  return std::min(static_cast<std::uint32_t>(max_sms), most_sms);
}

Result<std::optional<WireFormat>> wire_of(int format) {
  if (format == straitWireDefault) return std::optional<WireFormat>();
  if (format < 0 || format > straitWireInt4)
    return fail(Code::invalid_argument, std::to_string(format) + " is no wire format (straitWireFormat_t)");
  return static_cast<WireFormat>(format - straitWireOff);
}

Result<Deadline> init_deadline(const CommOptions& options) {
  std::int64_t timeout_ms = options.init_timeout_ms;
  if (timeout_ms == 0) {
    STRAIT_ASSIGN(timeout_ms, Environment().integer("STRAIT_INIT_TIMEOUT_MS"));
  }
  return Deadline::after_ms(timeout_ms);
}

}  // namespace strait::api

using strait::Status;
using namespace strait::api;

void straitAdoptThread(void) { strait::is_own_thread = true; }

straitResult_t straitGetVersion(int* version) {
  if (version == nullptr) return invalid("straitGetVersion: the pointer is NULL");
  *version = STRAIT_VERSION;
  return straitSuccess;
}

const char* straitGetErrorString(straitResult_t result) {
  static constexpr std::array<const char*, 13> texts = {
      "success",        "invalid argument", "invalid usage",        "system error", "CUDA error",
      "internal error", "remote error",     "mismatched calls",     "timeout",      "aborted",
      "unsupported",    "out of memory",    "operation in progress"};
  const auto index = static_cast<std::size_t>(result);
  return index < texts.size() ? texts[index] : "unknown result";
}

const char* straitGetLastError(straitComm_t handle) {
  (void)guarded([&] {
    if (auto comm = comm_of(handle); handle != nullptr && comm)
      if (const Status sticky = (*comm)->sticky(); !sticky) last_error() = sticky.error().message;
    return straitSuccess;
  });
  return last_error().empty() ? "no error" : last_error().c_str();
}

straitResult_t straitGetSetting(const char* name, const char** value) {
  return guarded([&] {
    if (name == nullptr || value == nullptr) return invalid("straitGetSetting: a pointer is NULL");
    auto text = strait::Environment().value(name);
    if (!text) return result_of(text.error());
    std::string& kept = strait::thread_text<struct Setting>();
    kept = std::move(*text);
    *value = kept.c_str();
    return straitSuccess;
  });
}

straitResult_t straitSetDefault(const char* name, const char* value) {
  return guarded([&] {
    if (name == nullptr || value == nullptr) return invalid("straitSetDefault: a pointer is NULL");
    return result_of(strait::Environment::set_default(name, value));
  });
}

straitResult_t straitMemAlloc(void** pointer, size_t size_bytes) {
  return guarded([&] {
    if (pointer == nullptr) return invalid("straitMemAlloc: the pointer is NULL");
    auto heap = strait::shm::SharedHeap::instance();
    if (!heap) return result_of(heap.error());
    auto block = (*heap)->allocate(size_bytes);
    if (!block) return result_of(block.error());
    *pointer = *block;
    return straitSuccess;
  });
}

straitResult_t straitMemAllocDevice(void** pointer, size_t size_bytes, int device) {
  return guarded([&] {
    if (pointer == nullptr) return invalid("straitMemAllocDevice: the pointer is NULL");
    const auto block = strait::allocate_device_memory(device, size_bytes);
    if (!block) return result_of(block.error());
    *pointer = *block;
    return straitSuccess;
  });
}

straitResult_t straitMemFree(void* pointer) {
  return guarded([&] {
    if (pointer == nullptr || strait::free_device_memory(pointer)) return straitSuccess;
    auto heap = strait::shm::SharedHeap::instance();
    if (!heap) return result_of(heap.error());
    return result_of((*heap)->release(pointer));
  });
}

straitResult_t straitGetUniqueId(straitUniqueId* id) {
  return guarded([&] {
    if (id == nullptr) return invalid("straitGetUniqueId: the pointer is NULL");
    // The root's own limit is generous: how long a rank waits is set by its configuration, and counts from when it
    // joins.
    constexpr std::int64_t day_ms = 86'400'000;
    strait::RootOptions root;
    root.deadline = strait::Deadline::after_ms(day_ms);
    auto made = strait::create_unique_id(strait::Environment(), std::move(root));
    if (!made) return result_of(made.error());
    const auto packed = made->pack();
    std::memcpy(id->internal, packed.data(), packed.size());
    return straitSuccess;
  });
}
