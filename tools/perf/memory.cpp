#include "perf/memory.hpp"

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "perf/call.hpp"

namespace strait::perf {
namespace {

constexpr std::size_t page_bytes = 4096;

}  // namespace

Result<Memory> Memory::plain(std::size_t size_bytes) {
  const std::size_t rounded = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* data = std::aligned_alloc(page_bytes, rounded);
  if (data == nullptr)
    return fail_errno("Cannot allocate a buffer of " + std::to_string(rounded) + " bytes", errno, "Lower --maxbytes");
  return Memory(data, nullptr);
}

Result<Memory> Memory::registered(std::size_t size_bytes, straitComm_t comm) {
  void* data = nullptr;
  STRAIT_TRY(checked(straitMemAlloc(&data, size_bytes), comm, "straitMemAlloc"));
  Memory memory(data, comm);
  STRAIT_TRY(memory.enter(size_bytes));
  return memory;
}

Result<Memory> Memory::on_gpu(std::size_t size_bytes, std::size_t staged_bytes, Gpu& gpu) {
  Memory memory(nullptr, nullptr);
  memory.gpu_ = &gpu;
  STRAIT_ASSIGN(memory.device_, gpu.memory(size_bytes));
  STRAIT_ASSIGN(memory.staging_, gpu.staging(staged_bytes));
  return memory;
}

Result<Memory> Memory::registered_on_gpu(std::size_t size_bytes, std::size_t staged_bytes, Gpu& gpu) {
  void* data = nullptr;
  STRAIT_TRY(checked(straitMemAllocDevice(&data, size_bytes, gpu.device()), gpu.comm(), "straitMemAllocDevice"));
  Memory memory(data, gpu.comm());
  memory.gpu_ = &gpu;
  memory.device_ = topo::CudaMemory::borrowed(gpu.device(), data);
  STRAIT_ASSIGN(memory.staging_, gpu.staging(staged_bytes));
  STRAIT_TRY(memory.enter(size_bytes));
  return memory;
}

Status Memory::enter(std::size_t size_bytes) {
  return checked(straitCommRegister(comm_, data_, size_bytes, &handle_), comm_, "straitCommRegister");
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      comm_(other.comm_),
      handle_(std::exchange(other.handle_, nullptr)),
      gpu_(other.gpu_),
      device_(std::move(other.device_)),
      staging_(std::move(other.staging_)) {}

Memory::~Memory() {
  if (handle_ != nullptr) straitCommDeregister(comm_, handle_);
  if (comm_ == nullptr)
    std::free(data_);
  else if (data_ != nullptr)
    straitMemFree(data_);
}

void* Memory::data() const { return gpu_ != nullptr ? reinterpret_cast<void*>(device_.address()) : data_; }
void* Memory::host() const { return gpu_ != nullptr ? reinterpret_cast<void*>(staging_.address()) : data_; }

Status Memory::from_host(std::size_t size_bytes) {
  return gpu_ != nullptr ? gpu_->copy_to_gpu(device_, staging_, size_bytes) : Status();
}

Status Memory::to_host(std::size_t size_bytes) {
  return gpu_ != nullptr ? gpu_->copy_to_host(staging_, device_, size_bytes) : Status();
}

}  // namespace strait::perf
