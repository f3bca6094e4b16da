#include "perf/host_rates.hpp"

#include <algorithm>
#include <chrono>

#include "base/deadline.hpp"
#include "perf/link_copies.hpp"
#include "topo/cuda_driver.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;

class Links {
 public:
  static Result<Links> open(Gpu& gpu) {
    Links links(gpu);
    topo::CudaDriver& driver = gpu.driver();
    for (topo::CudaStream* stream : {&links.up_, &links.down_}) {
      STRAIT_ASSIGN(*stream, driver.stream(gpu.device()));
    }
    for (topo::CudaMemory* memory : {&links.source_, &links.sink_}) {
      STRAIT_ASSIGN(*memory, gpu.memory(link_copies::piece_bytes));
    }
    for (topo::CudaMemory* memory : {&links.uploads_, &links.downloads_}) {
      STRAIT_ASSIGN(*memory, gpu.staging(link_copies::piece_bytes));
    }
    return links;
  }

  /// GB/s of each direction that is asked for, the slower one's; all ranks begin together.
  Result<double> rate(bool up, bool down, const std::function<Status()>& barrier) {
    STRAIT_TRY(copy(up, down, 1));  // the first touch
    STRAIT_TRY(barrier());
    const auto began = Clock::now();
    STRAIT_TRY(copy(up, down, link_copies::pieces));
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    return static_cast<double>(link_copies::piece_bytes) * link_copies::pieces / std::max(us, 1e-3) * 1e-3;
  }

 private:
  explicit Links(Gpu& gpu) : gpu_(&gpu) {}

  Status copy(bool up, bool down, int times) {
    topo::CudaDriver& driver = gpu_->driver();
    for (int i = 0; i < times; ++i) {
      if (up) STRAIT_TRY(driver.to_host(up_, uploads_, source_, link_copies::piece_bytes));
      if (down) STRAIT_TRY(driver.to_gpu(down_, sink_, downloads_, link_copies::piece_bytes));
    }
    for (const topo::CudaStream* stream : {&up_, &down_})
      STRAIT_TRY(driver.wait(*stream, Deadline::after_ms(link_copies::longest_ms)));
    return {};
  }

  Gpu* gpu_;
  topo::CudaStream up_, down_;
  topo::CudaMemory source_, sink_;        ///< on the GPU
  topo::CudaMemory uploads_, downloads_;  ///< pinned, on the host
};

}  // namespace

Result<HostLinkRates> measure_host_rates(Gpu& gpu, const std::function<Status()>& barrier) {
  STRAIT_ASSIGN(Links links, Links::open(gpu));
  HostLinkRates rates;
  STRAIT_ASSIGN(rates.up_gbps, links.rate(true, false, barrier));
  STRAIT_ASSIGN(rates.down_gbps, links.rate(false, true, barrier));
  STRAIT_ASSIGN(rates.duplex_gbps, links.rate(true, true, barrier));
  STRAIT_TRY(barrier());  // nobody's collectives run beside others' copies
  return rates;
}

}  // namespace strait::perf
