// Memory allocation and registration. Registration is an optimisation: memory that peers cannot access in place is
// still accepted, and every operation on it works.
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "nccl/comm.hpp"
#include "nccl/driver.hpp"
#include "nccl/entry.hpp"
#include "nccl/group.hpp"
#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

constexpr auto longest_wait = std::chrono::seconds(5);
constexpr auto poll_interval = std::chrono::microseconds(100);

enum class Origin { strait, driver };

/// Allocates memory that peers' GPUs can map. Returns false if the device cannot share memory.
bool allocate_shared(void** pointer, std::size_t size_bytes) {
  int device = 0;
  if (!driver::current_device(device).empty()) return false;
  if (straitMemAllocDevice(pointer, size_bytes, device) == straitSuccess) return true;
  log(LogLevel::info,
      "ncclMemAlloc: peers will not reach this memory in place: " + std::string(straitGetLastError(nullptr)));
  return false;
}

/// The allocator of each block, to which it is returned.
struct Blocks {
  std::mutex mutex;
  std::map<void*, Origin> origins;
};

Blocks& blocks() {
  static auto* const all = new Blocks;  // never destroyed: programs free memory while the process exits
  return *all;
}

ncclResult_t allocate(void** pointer, std::size_t size_bytes) {
  Origin origin = Origin::strait;
  if (makes_host_ranks()) {
    if (const ncclResult_t result = checked(straitMemAlloc(pointer, size_bytes)); result != ncclSuccess) return result;
  } else if (!allocate_shared(pointer, size_bytes)) {
    origin = Origin::driver;
    if (const driver::Problem problem = driver::allocate(pointer, size_bytes); !problem.empty())
      return failed(ncclUnhandledCudaError, "ncclMemAlloc: " + problem);
  }
  const std::scoped_lock lock(blocks().mutex);
  blocks().origins[*pointer] = origin;
  return ncclSuccess;
}

ncclResult_t release(void* pointer) {
  std::unique_lock lock(blocks().mutex);
  const auto found = blocks().origins.find(pointer);
  if (found == blocks().origins.end())
    return failed(ncclInvalidArgument, "ncclMemFree: this memory is not from ncclMemAlloc, or was freed");
  const Origin origin = found->second;
  blocks().origins.erase(found);
  lock.unlock();
  if (origin == Origin::strait) return checked(straitMemFree(pointer));
  const driver::Problem problem = driver::free(pointer);
  return problem.empty() ? ncclSuccess : failed(ncclUnhandledCudaError, "ncclMemFree: " + problem);
}

ncclWindow_vidmem* add_window(ncclComm& comm, void* pointer, std::size_t size_bytes) {
  const std::scoped_lock lock(comm.mutex);
  auto window = std::make_unique<ncclWindow_vidmem>();
  window->pointer = pointer;
  window->size_bytes = size_bytes;
  (void)straitCommUserRank(comm.strait, &window->rank);
  (void)straitCommCount(comm.strait, &window->ranks);
  return comm.windows.emplace_back(std::move(window)).get();
}

/// Removes the window from the communicator and passes it to the caller. If two threads try, one gets it.
ncclResult_t take_window(ncclComm& comm, ncclWindow_t handle, std::unique_ptr<ncclWindow_vidmem>& taken) {
  const std::scoped_lock lock(comm.mutex);
  const auto window = find_handle(comm.windows, handle);
  if (window == comm.windows.end())
    return failed(ncclInvalidArgument, "ncclCommWindowDeregister: this is not a window of the communicator");
  if ((*window)->awaits_group)
    return failed(
        ncclInvalidUsage,
        "ncclCommWindowDeregister: the group in which this window was registered is still open. End it first");
  taken = std::move(*window);
  comm.windows.erase(window);
  return ncclSuccess;
}

/// Waits until the GPU has finished the communicator's calls, then deregisters the window. Must be called without the
/// communicator's mutex: an abort by another thread, which may be all that ends the calls, takes it. A program that
/// deregisters its windows before it aborts would wait forever, so this gives up after 5 s: peers can then access the
/// memory until the communicator ends. Only the first window waits that long, because there may be hundreds.
ncclResult_t give_back(ncclComm& comm, const ncclWindow_vidmem& window) {
  if (window.registration == nullptr) return ncclSuccess;
  const auto deadline = std::chrono::steady_clock::now() + longest_wait;
  for (int done = 0; straitCommQuery(comm.strait, &done) == straitSuccess && done == 0;) {
    if (!comm.deregister_timed_out && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(poll_interval);
      continue;
    }
    if (!comm.deregister_timed_out.exchange(true))
      log(LogLevel::warn,
          "a window is given back while calls on its communicator have not ended for 5 s: its memory, and that of "
          "others given back until they have, stays mapped until the communicator ends");
    return ncclSuccess;
  }
  comm.deregister_timed_out = false;
  return checked(straitCommDeregister(comm.strait, window.registration));
}

}  // namespace

ncclResult_t share(ncclComm& comm, ncclWindow_vidmem& window) {
  if (straitCommRegister(comm.strait, window.pointer, window.size_bytes, &window.registration) == straitSuccess)
    return ncclSuccess;
  window.registration = nullptr;
  const std::string reason = straitGetLastError(nullptr);
  straitResult_t sticky = straitSuccess;
  if (straitCommGetAsyncError(comm.strait, &sticky) != straitSuccess || sticky != straitSuccess)
    return failed(to_nccl(sticky), reason);
  log(LogLevel::info, "a window's memory is not read in place: " + reason);
  return ncclSuccess;
}

}  // namespace strait::nccl

using namespace strait::nccl;

STRAIT_NCCL_ENTRY(ncclResult_t, ncclMemAlloc, void** ptr, size_t size) {
  return guarded([&] {
    apply_settings();
    if (ptr == nullptr) return failed(ncclInvalidArgument, "ncclMemAlloc: the pointer is NULL");
    if (size == 0) {  // as in NCCL and cudaMalloc
      *ptr = nullptr;
      return ncclSuccess;
    }
    return allocate(ptr, size);
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclMemFree, void* ptr) {
  return guarded([&] { return ptr == nullptr ? ncclSuccess : release(ptr); });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommRegister, const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return with_comm(comm, "ncclCommRegister", [&](ncclComm& live) {
    if (buff == nullptr || size == 0 || handle == nullptr)
      return failed(ncclInvalidArgument, "ncclCommRegister: a pointer is NULL, or the size 0");
    // Ranks call this individually, but Strait's registration is collective: so only a handle is made.
    const std::scoped_lock lock(live.mutex);
    *handle = live.registrations.emplace_back(std::make_unique<char>()).get();
    return ncclSuccess;
  });
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommDeregister, const ncclComm_t comm, void* handle) {
  const auto remove = [&](ncclComm& live) {
    if (handle == nullptr) return ncclSuccess;  // NCCL returns NULL handles if it registers nothing
    std::unique_ptr<ncclWindow_vidmem> window;
    {
      const std::scoped_lock lock(live.mutex);
      if (const auto found = find_handle(live.registrations, handle); found != live.registrations.end()) {
        live.registrations.erase(found);
        return ncclSuccess;
      }
    }
    // PyTorch deregisters its windows by this function before it aborts.
    if (take_window(live, static_cast<ncclWindow_t>(handle), window) == ncclSuccess) return give_back(live, *window);
    return failed(ncclInvalidArgument, "ncclCommDeregister: this handle is not of ncclCommRegister, or given back");
  };
  return with_comm(comm, "ncclCommDeregister", remove, Use::to_give_back);
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommWindowRegister, ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                  int winFlags) {
  // Only symmetric windows guarantee what Strait needs: that all ranks use them in the same calls. Registering them is
  // collective, and so must not run beside another thread's split.
  const bool is_shared = (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0;
  const auto add = [&](ncclComm& live) {
    if (buff == nullptr || size == 0 || win == nullptr)
      return Group::of_this_thread().note(
          failed(ncclInvalidArgument, "ncclCommWindowRegister: a pointer is NULL, or the size 0"));
    if (size > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(buff))
      return Group::of_this_thread().note(
          failed(ncclInvalidArgument,
                 "ncclCommWindowRegister: " + std::to_string(size) + " bytes are more than memory can hold"));
    ncclWindow_vidmem* const window = add_window(live, buff, size);
    Group& group = Group::of_this_thread();
    if (is_shared)
      if (const ncclResult_t result = group.share(&live, window); result != ncclSuccess) {
        std::unique_ptr<ncclWindow_vidmem> taken;
        (void)take_window(live, window, taken);
        return group.note(result);
      }
    *win = window;
    return ncclSuccess;
  };
  return with_comm(comm, "ncclCommWindowRegister", add, is_shared ? Use::alone : Use::beside_set_up);
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t win) {
  const auto remove = [&](ncclComm& live) {
    if (win == nullptr) return ncclSuccess;  // as in ncclCommDeregister
    std::unique_ptr<ncclWindow_vidmem> taken;
    if (const ncclResult_t result = take_window(live, win, taken); result != ncclSuccess) return result;
    return give_back(live, *taken);
  };
  return with_comm(comm, "ncclCommWindowDeregister", remove, Use::to_give_back);
}

STRAIT_NCCL_ENTRY(ncclResult_t, ncclWinGetUserPtr, ncclComm_t comm, ncclWindow_t win, void** outUserPtr) {
  return with_comm(comm, "ncclWinGetUserPtr", [&](ncclComm& live) {
    const std::scoped_lock lock(live.mutex);
    const auto window = find_handle(live.windows, win);
    if (window == live.windows.end() || outUserPtr == nullptr)
      return failed(ncclInvalidArgument, "ncclWinGetUserPtr: not a window of the communicator, or the pointer is NULL");
    *outUserPtr = (*window)->pointer;
    return ncclSuccess;
  });
}
