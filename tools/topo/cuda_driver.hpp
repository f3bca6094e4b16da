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

/// The part of the CUDA driver that measuring links needs, loaded at run time: this works in builds without CUDA, and
/// says what is missing where there is no GPU.
namespace strait::topo {

class CudaDriver;

/// By which another process of this host opens memory of a GPU.
struct CudaIpcHandle {
  std::array<char, 64> bytes{};
};

/// Memory of a GPU, or pinned memory of the host that all GPUs reach. Freed with it, unless it is another's.
class CudaMemory {
 public:
  CudaMemory() = default;
  /// Of another owner, whom it must not outlive.
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

/// An order of copies on a GPU. Destroyed with it.
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

/// Kernels on a GPU. Given back with it.
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

/// One of a module, which must outlive it.
struct CudaKernel {
  void* function = nullptr;
  std::string name{};
};

/// What a stream was given while it recorded, to be run any number of times. Destroyed with it.
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

/// Calls from one thread only. Every error names the call, the GPU, and CUDA's reason.
class CudaDriver : public std::enable_shared_from_this<CudaDriver> {
 public:
  /// Loads the driver and counts the GPUs, each of which is opened when first used. An error says what is missing:
  /// driver, GPUs, or permission.
  static Result<std::shared_ptr<CudaDriver>> open(const std::string& library = "libcuda.so.1");
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  int gpus() const { return static_cast<int>(contexts_.size()); }
  Result<std::string> name(int gpu);
  Result<std::string> bus_id(int gpu);  ///< "0000:1b:00.0", as sysfs writes it

  /// Whether the driver lets `from` write to `to`; asks for it then.
  Result<bool> enable_peer(int from, int to);
  Result<std::size_t> free_bytes(int gpu);
  Result<CudaMemory> gpu_memory(int gpu, std::size_t bytes);
  /// Pinned through `gpu`, and within reach of all; on the NUMA node of the calling thread.
  Result<CudaMemory> host_memory(std::size_t bytes, int gpu = 0);
  /// For another process. Of this one's, `memory` must outlive what is opened there.
  Result<CudaIpcHandle> ipc_handle(const CudaMemory& memory);
  /// Another process's, as if it were of `gpu`: copies go directly.
  Result<CudaMemory> open(int gpu, const CudaIpcHandle& handle);
  Result<CudaStream> stream(int gpu);
  /// Compiles for the GPU at hand. Code::unsupported: the driver cannot.
  Result<CudaModule> module(int gpu, const char* ptx);
  Result<CudaKernel> kernel(const CudaModule& module, const std::string& name);
  /// `arguments`: addresses and numbers, in the order of the kernel's, which takes the lower bytes of each.
  Status launch(const CudaStream& stream, const CudaKernel& kernel, unsigned blocks, unsigned threads,
                std::vector<std::uint64_t> arguments);
  /// Makes it the current GPU of the calling thread, by which CUDA's runtime goes.
  Status use(int gpu);

  /// What `enqueue` puts on the stream, in a graph instead: nothing runs. Other threads' calls are not recorded.
  Result<CudaGraph> record(const CudaStream& stream, const std::function<Status()>& enqueue);
  Status launch(const CudaGraph& graph, const CudaStream& stream);

  Status to_host(const CudaStream& stream, const CudaMemory& host, const CudaMemory& gpu, std::size_t bytes);
  Status to_gpu(const CudaStream& stream, const CudaMemory& gpu, const CudaMemory& host, std::size_t bytes);
  /// Directly where P2P is enabled, else as the driver sees fit, through host memory. The stream is the source's.
  Status to_peer(const CudaStream& stream, const CudaMemory& to, const CudaMemory& from, std::size_t bytes);

  /// Whether all that was put on the stream is done.
  Result<bool> is_done(const CudaStream& stream);
  /// Until all that was put on the stream is done. After a timeout the GPUs' memory is given up, not freed: freeing
  /// waits.
  Status wait(const CudaStream& stream, const Deadline& deadline);

 private:
  friend class CudaMemory;
  friend class CudaModule;
  friend class CudaStream;
  friend class CudaGraph;
  struct Calls;
  struct CloseLibrary {
    void operator()(void* library) const;
  };
  CudaDriver();
  Status load(const std::string& library);
  Status count_gpus();
  Result<void*> context(int gpu);
  Status check(int status, const std::string& what) const;

  std::unique_ptr<void, CloseLibrary> library_;
  std::unique_ptr<Calls> calls_;
  std::vector<void*> contexts_;  ///< the primary one of every GPU; null: not in use yet
  bool stuck_ = false;
};

}  // namespace strait::topo
