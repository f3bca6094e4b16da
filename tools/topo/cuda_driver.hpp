#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/shared_library.hpp"

/// The part of the CUDA driver that measuring links needs. It is loaded at run time, so that this works in builds
/// without CUDA, and can say what is missing on a machine without GPUs.
namespace strait::topo {

class CudaDriver;

/// The handle with which another process of this host opens memory of a GPU.
struct CudaIpcHandle {
  std::array<char, 64> bytes{};
};

/// Owns memory of a GPU, or pinned host memory that all GPUs can access. Frees it in its destructor, unless it is
/// borrowed.
class CudaMemory {
 public:
  CudaMemory() = default;
  /// Refers to memory of another owner, which must outlive the result.
  static CudaMemory borrowed(int gpu, const void* data);
  CudaMemory(CudaMemory&& other) noexcept { *this = std::move(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept;
  ~CudaMemory() { reset(); }
  std::uint64_t address() const { return address_; }

 private:
  friend class CudaDriver;
  void reset();
  std::shared_ptr<CudaDriver> driver_{};
  int gpu_ = 0;
  std::uint64_t address_ = 0;
  enum class Kind : std::uint8_t { gpu, host, opened } kind_ = Kind::gpu;
};

/// Owns a stream of a GPU.
class CudaStream {
 public:
  CudaStream() = default;
  CudaStream(CudaStream&& other) noexcept { *this = std::move(other); }
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream() { reset(); }
  void* handle() const { return stream_; }  ///< a CUstream, which is also a cudaStream_t

 private:
  friend class CudaDriver;
  void reset();
  std::shared_ptr<CudaDriver> driver_{};
  int gpu_ = 0;
  void* stream_ = nullptr;
};

/// Owns a module, that is, kernels loaded on a GPU.
class CudaModule {
 public:
  CudaModule() = default;
  CudaModule(CudaModule&& other) noexcept { *this = std::move(other); }
  CudaModule& operator=(CudaModule&& other) noexcept;
  ~CudaModule() { reset(); }

 private:
  friend class CudaDriver;
  void reset();
  std::shared_ptr<CudaDriver> driver_{};
  int gpu_ = 0;
  void* module_ = nullptr;
};

/// A kernel of a module, which must outlive it.
struct CudaKernel {
  void* function = nullptr;
  std::string name{};
};

/// Owns an executable graph: recorded work that can be launched any number of times.
class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept { *this = std::move(other); }
  CudaGraph& operator=(CudaGraph&& other) noexcept;
  ~CudaGraph() { reset(); }

 private:
  friend class CudaDriver;
  void reset();
  std::shared_ptr<CudaDriver> driver_{};
  int gpu_ = 0;
  void* executable_ = nullptr;
};

/// The CUDA driver. Not thread-safe: all calls must come from the same thread. Every error names the call, the GPU and
/// CUDA's reason. Memory, streams, modules and graphs keep the driver loaded.
class CudaDriver : public std::enable_shared_from_this<CudaDriver> {
 public:
  /// Loads the driver and counts the GPUs. The context of a GPU is created when the GPU is first used. Returns an error
  /// that says what is missing: the driver, GPUs, or permission.
  static Result<std::shared_ptr<CudaDriver>> open(const std::string& library = "libcuda.so.1");
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  int gpus() const { return static_cast<int>(contexts_.size()); }
  Result<std::string> name(int gpu);
  Result<std::string> bus_id(int gpu);  ///< in the form of sysfs: "0000:1b:00.0"

  /// Returns whether the driver lets `from` write to memory of `to`, and enables it if so.
  Result<bool> enable_peer(int from, int to);
  Result<std::size_t> free_bytes(int gpu);
  Result<CudaMemory> gpu_memory(int gpu, std::size_t bytes);
  /// Allocates pinned host memory in the context of `gpu`. All GPUs can access it. It is on the NUMA node of the
  /// calling thread.
  Result<CudaMemory> host_memory(std::size_t bytes, int gpu = 0);
  /// Returns a handle for another process. `memory` must belong to this process and outlive its mappings in other
  /// processes.
  Result<CudaIpcHandle> ipc_handle(const CudaMemory& memory);
  /// Maps memory of another process as memory of `gpu`, so that copies to and from it go directly.
  Result<CudaMemory> open(int gpu, const CudaIpcHandle& handle);
  Result<CudaStream> stream(int gpu);
  /// Compiles PTX for this GPU and loads it. Returns Code::unsupported if the driver cannot.
  Result<CudaModule> module(int gpu, const char* ptx);
  Result<CudaKernel> kernel(const CudaModule& module, const std::string& name);
  /// Launches a kernel. `arguments` are addresses and numbers in the order of the kernel's parameters; a parameter of
  /// less than 8 bytes takes the lower bytes.
  Status launch(const CudaStream& stream, const CudaKernel& kernel, unsigned blocks, unsigned threads,
                std::vector<std::uint64_t> arguments);
  /// Makes `gpu` the current device of the calling thread, which the CUDA runtime uses, too.
  Status use(int gpu);

  /// Captures what `enqueue` puts on the stream into a graph; nothing runs. Calls of other threads are not captured.
  Result<CudaGraph> record(const CudaStream& stream, const std::function<Status()>& enqueue);
  Status launch(const CudaGraph& graph, const CudaStream& stream);

  Status to_host(const CudaStream& stream, const CudaMemory& host, const CudaMemory& gpu, std::size_t bytes);
  Status to_gpu(const CudaStream& stream, const CudaMemory& gpu, const CudaMemory& host, std::size_t bytes);
  /// Copies directly if P2P is enabled; otherwise the driver stages the copy through host memory. `stream` must be of
  /// the source GPU.
  Status to_peer(const CudaStream& stream, const CudaMemory& to, const CudaMemory& from, std::size_t bytes);

  /// Returns whether all work on the stream has ended.
  Result<bool> is_done(const CudaStream& stream);
  /// Waits until all work on the stream has ended. After a timeout the memory of all GPUs is leaked on purpose, because
  /// freeing it would wait for the work.
  Status wait(const CudaStream& stream, const Deadline& deadline);

 private:
  friend class CudaMemory;
  friend class CudaModule;
  friend class CudaStream;
  friend class CudaGraph;
  struct Calls;
  CudaDriver();
  Status load(const std::string& library);
  Status count_gpus();
  Result<void*> context(int gpu);
  Status check(int status, const std::string& what) const;

  SharedLibrary library_;
  std::unique_ptr<Calls> calls_;
  std::vector<void*> contexts_;  ///< primary context of every GPU; null: not in use yet
  bool stuck_ = false;
};

}  // namespace strait::topo
