#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "perf/arguments.hpp"

namespace strait::perf {

/// A libnccl.so.2 that the user names, loaded beside Strait to be measured on the same buffers. Its public interface is
/// found by name; values of types and operations are Strait's. Every error names the call and the library's reason.
class Nccl {
 public:
  using Comm = void*;    ///< an ncclComm_t
  using Stream = void*;  ///< a cudaStream_t
  struct UniqueId {
    std::array<char, 128> bytes{};
  };

  static Result<std::shared_ptr<const Nccl>> load(const std::string& path);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  const std::string& path() const { return path_; }
  int version() const { return version_; }  ///< 22809 stands for 2.28.9

  Result<UniqueId> unique_id() const;
  /// On the calling thread's current GPU. Collective over all ranks with the same id.
  Result<Comm> join(int ranks, const UniqueId& id, int rank) const;
  /// One communicator a GPU, all in this process.
  Result<std::vector<Comm>> join_all(const std::vector<int>& devices) const;
  void destroy(Comm comm) const;
  void abort(Comm comm) const;
  Status async_error(Comm comm) const;

  struct Registration {
    void* handle = nullptr;
    bool symmetric = false;
  };
  /// By ncclCommRegister, or as a symmetric window (from 2.27 on), which is collective.
  Result<Registration> register_memory(Comm comm, void* data, std::size_t size_bytes, bool symmetric) const;
  void deregister(Comm comm, const Registration& registration) const;

  Status group_start() const;
  Status group_end() const;
  /// Puts a collective on the stream, which without a group all ranks do from threads of their own. What older versions
  /// lack is made of sends and receives. Not barriers: NCCL has none.
  Status call(const Arguments& arguments, Comm comm, Stream stream) const;

 private:
  struct Functions;
  Nccl();
  Status check(int result, const char* what) const;
  Status call(const Arguments& arguments, int op, Comm comm, Stream stream) const;
  Status messages(const Arguments& arguments, Comm comm, Stream stream) const;

  std::string path_;
  int version_ = 0;
  std::unique_ptr<Functions> functions_;
};

}  // namespace strait::perf
