#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "perf/gpu.hpp"
#include "perf/nccl.hpp"
#include "perf/results.hpp"

namespace strait::perf {

/// A GPU rank's place in another library's communicator, beside Strait's. Used by one thread.
class Baseline {
 public:
  /// Joins the ranks of `control`. Collective over it. `gpu` must outlive it.
  static Result<std::unique_ptr<Baseline>> join(const std::string& path, straitComm_t control, Gpu& gpu);
  ~Baseline();
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;

  BaselineInfo info() const { return {nccl_->path(), nccl_->version()}; }
  Status call(const Arguments& arguments) const { return nccl_->call(arguments, comm_, gpu_.stream()); }
  Status group_start() const { return nccl_->group_start(); }
  Status group_end() const { return nccl_->group_end(); }
  /// Declares a buffer to it, until it is left: as its users do (-R 1), or as a symmetric window (-R 2). Collective.
  Status register_memory(void* data, std::size_t size_bytes, bool symmetric);
  /// Its kernels end, and it need not be left in order.
  void abort();

 private:
  Baseline(std::shared_ptr<const Nccl> nccl, Gpu& gpu) : nccl_(std::move(nccl)), gpu_(gpu) {}

  std::shared_ptr<const Nccl> nccl_;
  Gpu& gpu_;
  Nccl::Comm comm_ = nullptr;
  std::vector<Nccl::Registration> registrations_;
};

}  // namespace strait::perf
