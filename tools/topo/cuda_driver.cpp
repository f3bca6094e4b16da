#include "topo/cuda_driver.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "topo/cuda_calls.hpp"

namespace strait::topo {
namespace {

constexpr int cuda_success = 0;
constexpr int cuda_no_device = 100;
constexpr int cuda_not_ready = 600;
constexpr int cuda_peer_already_enabled = 704;
constexpr unsigned host_portable = 1;
constexpr unsigned stream_non_blocking = 1;
constexpr int capture_thread_local = 1;
constexpr unsigned ipc_enable_peer = 1;

}  // namespace

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(gpu_, other.gpu_);
  std::swap(address_, other.address_);
  std::swap(kind_, other.kind_);
  return *this;
}

CudaMemory CudaMemory::borrowed(int gpu, const void* data) {
  CudaMemory memory;
  memory.gpu_ = gpu;
  memory.address_ = reinterpret_cast<std::uint64_t>(data);
  return memory;
}

void CudaMemory::reset() {
  if (!driver_ || driver_->stuck_ || !driver_->use(gpu_)) return;
  switch (kind_) {
    case Kind::gpu:
      driver_->calls_->gpu_free(address_);
      break;
    case Kind::host:
      driver_->calls_->host_free(reinterpret_cast<void*>(address_));
      break;
    case Kind::opened:
      driver_->calls_->ipc_close(address_);
      break;
  }
}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(gpu_, other.gpu_);
  std::swap(stream_, other.stream_);
  return *this;
}

void CudaStream::reset() {
  if (driver_ && !driver_->stuck_ && driver_->use(gpu_)) driver_->calls_->stream_destroy(stream_);
}

CudaModule& CudaModule::operator=(CudaModule&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(gpu_, other.gpu_);
  std::swap(module_, other.module_);
  return *this;
}

void CudaModule::reset() {
  if (driver_ && !driver_->stuck_ && driver_->use(gpu_)) driver_->calls_->module_unload(module_);
}

CudaGraph& CudaGraph::operator=(CudaGraph&& other) noexcept {
  std::swap(driver_, other.driver_);
  std::swap(gpu_, other.gpu_);
  std::swap(executable_, other.executable_);
  return *this;
}

void CudaGraph::reset() {
  if (driver_ && !driver_->stuck_ && driver_->use(gpu_)) driver_->calls_->executable_destroy(executable_);
}

CudaDriver::CudaDriver() : calls_(std::make_unique<Calls>()) {}

CudaDriver::~CudaDriver() {
  if (stuck_) return;
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    int device = 0;
    if (contexts_[static_cast<std::size_t>(gpu)] != nullptr && calls_->device(&device, gpu) == cuda_success)
      calls_->release(device);
  }
}

Result<std::shared_ptr<CudaDriver>> CudaDriver::open(const std::string& library) {
  std::shared_ptr<CudaDriver> driver(new CudaDriver);
  STRAIT_TRY(driver->load(library));
  STRAIT_TRY(driver->count_gpus());
  return driver;
}

Status CudaDriver::load(const std::string& library) {
  library_ = SharedLibrary(library);
  if (!library_.is_loaded())
    return fail(Code::unsupported, "the CUDA driver cannot be loaded: " + library_.problem() +
                                       ". Install the NVIDIA driver, or start the container with the NVIDIA runtime");
  return calls_->bind(library_, library);
}

Status CudaDriver::count_gpus() {
  const int started = calls_->init(0);
  int count = 0;
  if (started == cuda_no_device ||
      (started == cuda_success && calls_->device_count(&count) == cuda_success && count == 0))
    return fail(Code::unsupported,
                "the CUDA driver sees no GPU. Look at CUDA_VISIBLE_DEVICES, and at /dev/nvidia* in a container");
  STRAIT_TRY(check(started, "cuInit"));
  contexts_.resize(static_cast<std::size_t>(count));
  return {};
}

Result<void*> CudaDriver::context(int gpu) {
  void*& context = contexts_[static_cast<std::size_t>(gpu)];
  if (context != nullptr) return context;
  int device = 0;
  STRAIT_TRY(check(calls_->device(&device, gpu), "opening GPU " + std::to_string(gpu)));
  STRAIT_TRY(check(calls_->retain(&context, device), "starting a context on GPU " + std::to_string(gpu)));
  return context;
}

Status CudaDriver::check(int status, const std::string& what) const {
  if (status == cuda_success) return {};
  const char* text = nullptr;
  if (calls_->error_string(status, &text) != cuda_success || text == nullptr) text = "unknown to the driver";
  return fail(Code::cuda_error, what + " failed: " + text + " (CUDA error " + std::to_string(status) +
                                    "). `strait doctor` and `dmesg` may say why");
}

Status CudaDriver::use(int gpu) {
  STRAIT_ASSIGN(void* const opened, context(gpu));
  return check(calls_->set_current(opened), "turning to GPU " + std::to_string(gpu));
}

Result<std::string> CudaDriver::name(int gpu) {
  int device = 0;
  std::array<char, 256> text{};
  STRAIT_TRY(check(calls_->device(&device, gpu), "opening GPU " + std::to_string(gpu)));
  STRAIT_TRY(check(calls_->device_name(text.data(), text.size() - 1, device), "asking for the name of a GPU"));
  return std::string(text.data());
}

Result<std::string> CudaDriver::bus_id(int gpu) {
  int device = 0;
  std::array<char, 32> text{};
  STRAIT_TRY(check(calls_->device(&device, gpu), "opening GPU " + std::to_string(gpu)));
  STRAIT_TRY(check(calls_->bus_id(text.data(), text.size() - 1, device), "asking for the PCI address of a GPU"));
  std::string id(text.data());
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

Result<bool> CudaDriver::enable_peer(int from, int to) {
  const std::string pair = "GPU " + std::to_string(from) + " to GPU " + std::to_string(to);
  int device = 0, peer = 0, can = 0;
  STRAIT_TRY(check(calls_->device(&device, from), "opening " + pair));
  STRAIT_TRY(check(calls_->device(&peer, to), "opening " + pair));
  STRAIT_TRY(check(calls_->can_access(&can, device, peer), "asking for P2P from " + pair));
  if (can == 0) return false;
  STRAIT_ASSIGN(void* const peer_context, context(to));
  STRAIT_TRY(use(from));
  const int status = calls_->enable_peer(peer_context, 0);
  if (status != cuda_peer_already_enabled) STRAIT_TRY(check(status, "enabling P2P from " + pair));
  return true;
}

Result<std::size_t> CudaDriver::free_bytes(int gpu) {
  STRAIT_TRY(use(gpu));
  std::size_t free = 0, total = 0;
  STRAIT_TRY(check(calls_->memory_info(&free, &total), "asking for the free memory of GPU " + std::to_string(gpu)));
  return free;
}

Result<CudaMemory> CudaDriver::gpu_memory(int gpu, std::size_t bytes) {
  STRAIT_TRY(use(gpu));
  std::uint64_t address = 0;
  STRAIT_TRY(check(calls_->gpu_alloc(&address, bytes),
                   "allocating " + std::to_string(bytes >> 20) + " MB on GPU " + std::to_string(gpu)));
  CudaMemory memory;
  memory.driver_ = shared_from_this();
  memory.gpu_ = gpu;
  memory.address_ = address;
  return memory;
}

Result<CudaMemory> CudaDriver::host_memory(std::size_t bytes, int gpu) {
  STRAIT_TRY(use(gpu));
  void* address = nullptr;
  STRAIT_TRY(check(calls_->host_alloc(&address, bytes, host_portable),
                   "pinning " + std::to_string(bytes >> 20) + " MB of host memory"));
  CudaMemory memory;
  memory.driver_ = shared_from_this();
  memory.gpu_ = gpu;
  memory.address_ = reinterpret_cast<std::uint64_t>(address);
  memory.kind_ = CudaMemory::Kind::host;
  return memory;
}

Result<CudaIpcHandle> CudaDriver::ipc_handle(const CudaMemory& memory) {
  STRAIT_TRY(use(memory.gpu_));
  CudaIpcHandle handle;
  STRAIT_TRY(check(calls_->ipc_handle(&handle, memory.address_),
                   "showing memory of GPU " + std::to_string(memory.gpu_) + " to other processes"));
  return handle;
}

Result<CudaMemory> CudaDriver::open(int gpu, const CudaIpcHandle& handle) {
  STRAIT_TRY(use(gpu));
  std::uint64_t address = 0;
  STRAIT_TRY(check(calls_->ipc_open(&address, handle, ipc_enable_peer),
                   "opening memory of another process on GPU " + std::to_string(gpu)));
  CudaMemory memory;
  memory.driver_ = shared_from_this();
  memory.gpu_ = gpu;
  memory.address_ = address;
  memory.kind_ = CudaMemory::Kind::opened;
  return memory;
}

Result<CudaStream> CudaDriver::stream(int gpu) {
  STRAIT_TRY(use(gpu));
  CudaStream stream;
  STRAIT_TRY(check(calls_->stream_create(&stream.stream_, stream_non_blocking),
                   "creating a stream on GPU " + std::to_string(gpu)));
  stream.driver_ = shared_from_this();
  stream.gpu_ = gpu;
  return stream;
}

Result<CudaModule> CudaDriver::module(int gpu, const char* ptx) {
  STRAIT_TRY(use(gpu));
  CudaModule module;
  if (const auto status =
          check(calls_->module_load(&module.module_, ptx), "compiling kernels for GPU " + std::to_string(gpu));
      !status)  // The GPU is too old, or the driver has no compiler.
    return fail(Code::unsupported, status.error().message);
  module.driver_ = shared_from_this();
  module.gpu_ = gpu;
  return module;
}

Result<CudaKernel> CudaDriver::kernel(const CudaModule& module, const std::string& name) {
  STRAIT_TRY(use(module.gpu_));
  CudaKernel kernel{nullptr, name};
  STRAIT_TRY(check(calls_->module_kernel(&kernel.function, module.module_, name.c_str()),
                   "looking for the kernel '" + name + "' on GPU " + std::to_string(module.gpu_)));
  return kernel;
}

Status CudaDriver::launch(const CudaStream& stream, const CudaKernel& kernel, unsigned blocks, unsigned threads,
                          std::vector<std::uint64_t> arguments) {
  STRAIT_TRY(use(stream.gpu_));
  std::vector<void*> pointers;
  // Little-endian, so the lower bytes are first.
  for (std::uint64_t& argument : arguments) pointers.push_back(&argument);
  const int status =
      calls_->launch(kernel.function, blocks, 1, 1, threads, 1, 1, 0, stream.stream_, pointers.data(), nullptr);
  if (status == cuda_success) return {};
  return check(status, "launching '" + kernel.name + "' on GPU " + std::to_string(stream.gpu_));
}

Result<CudaGraph> CudaDriver::record(const CudaStream& stream, const std::function<Status()>& enqueue) {
  STRAIT_TRY(use(stream.gpu_));
  const std::string what = " on GPU " + std::to_string(stream.gpu_);
  STRAIT_TRY(check(calls_->begin_capture(stream.stream_, capture_thread_local), "beginning a graph" + what));
  Status enqueued = enqueue();
  void* graph = nullptr;
  STRAIT_TRY(use(stream.gpu_));
  Status ended = check(calls_->end_capture(stream.stream_, &graph), "recording a graph" + what);
  CudaGraph recorded;
  if (enqueued && ended) {
    ended = check(calls_->graph_instantiate(&recorded.executable_, graph, 0), "preparing a graph" + what);
    if (ended) recorded.driver_ = shared_from_this();
    recorded.gpu_ = stream.gpu_;
  }
  if (graph != nullptr) calls_->graph_destroy(graph);
  STRAIT_TRY(std::move(enqueued));  // this error says more than that of the spoilt capture
  STRAIT_TRY(std::move(ended));
  return recorded;
}

Status CudaDriver::launch(const CudaGraph& graph, const CudaStream& stream) {
  STRAIT_TRY(use(stream.gpu_));
  return check(calls_->graph_launch(graph.executable_, stream.stream_),
               "launching a graph on GPU " + std::to_string(stream.gpu_));
}

Status CudaDriver::to_host(const CudaStream& stream, const CudaMemory& host, const CudaMemory& gpu, std::size_t bytes) {
  STRAIT_TRY(use(stream.gpu_));
  return check(calls_->copy_to_host(reinterpret_cast<void*>(host.address_), gpu.address_, bytes, stream.stream_),
               "a copy from GPU " + std::to_string(gpu.gpu_) + " to the host");
}

Status CudaDriver::to_gpu(const CudaStream& stream, const CudaMemory& gpu, const CudaMemory& host, std::size_t bytes) {
  STRAIT_TRY(use(stream.gpu_));
  return check(calls_->copy_to_gpu(gpu.address_, reinterpret_cast<const void*>(host.address_), bytes, stream.stream_),
               "a copy from the host to GPU " + std::to_string(gpu.gpu_));
}

Status CudaDriver::to_peer(const CudaStream& stream, const CudaMemory& to, const CudaMemory& from, std::size_t bytes) {
  STRAIT_ASSIGN(void* const to_context, context(to.gpu_));
  STRAIT_ASSIGN(void* const from_context, context(from.gpu_));
  STRAIT_TRY(use(stream.gpu_));
  return check(calls_->copy_to_peer(to.address_, to_context, from.address_, from_context, bytes, stream.stream_),
               "a copy from GPU " + std::to_string(from.gpu_) + " to GPU " + std::to_string(to.gpu_));
}

Result<bool> CudaDriver::is_done(const CudaStream& stream) {
  STRAIT_TRY(use(stream.gpu_));
  const int status = calls_->stream_query(stream.stream_);
  if (status == cuda_not_ready) return false;
  STRAIT_TRY(check(status, "work of GPU " + std::to_string(stream.gpu_)));
  return true;
}

Status CudaDriver::wait(const CudaStream& stream, const Deadline& deadline) {
  for (unsigned polls = 0;; ++polls) {
    STRAIT_ASSIGN(const bool done, is_done(stream));
    if (done) return {};
    if (polls % 1024 != 1023) continue;
    if (deadline.expired()) {
      stuck_ = true;
      return fail(Code::timeout,
                  "work of GPU " + std::to_string(stream.gpu_) +
                      " does not end. Look for Xid errors with `strait doctor`; the GPU may need a reset");
    }
    sched_yield();
  }
}

}  // namespace strait::topo
