#include "perf/host_rates.hpp"

#include <algorithm>
#include <chrono>

#include "base/deadline.hpp"
#include "topo/cuda_driver.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t copy_bytes = std::size_t{32} << 20;
constexpr int copies = 24;
constexpr int longest_ms = 120'000;  // a tenth of a GB/s

class Links {
 public:
  static Result<Links> open(Gpu& gpu) {
    Links links(gpu);
    topo::CudaDriver& driver = gpu.driver();
    for (topo::CudaStream* stream : {&links.up_, &links.down_}) {
      STRAIT_ASSIGN(*stream, driver.stream(gpu.device()));
    }
    for (topo::CudaMemory* memory : {&links.source_, &links.sink_}) {
      STRAIT_ASSIGN(*memory, gpu.memory(copy_bytes));
    }
    for (topo::CudaMemory* memory : {&links.uploads_, &links.downloads_}) {
      STRAIT_ASSIGN(*memory, gpu.staging(copy_bytes));
    }
    return links;
  }

  /// GB/s of each direction that is asked for, the slower one's; all ranks begin together.
  Result<double> rate(bool up, bool down, const std::function<Status()>& barrier) {
    STRAIT_TRY(copy(up, down, 1));  // the first touch
    STRAIT_TRY(barrier());
    const auto began = Clock::now();
    STRAIT_TRY(copy(up, down, copies));
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
    return static_cast<double>(copy_bytes) * copies / std::max(us, 1e-3) * 1e-3;
  }

 private:
  explicit Links(Gpu& gpu) : gpu_(&gpu) {}

  Status copy(bool up, bool down, int times) {
    topo::CudaDriver& driver = gpu_->driver();
    for (int i = 0; i < times; ++i) {
      if (up) STRAIT_TRY(driver.to_host(up_, uploads_, source_, copy_bytes));
      if (down) STRAIT_TRY(driver.to_gpu(down_, sink_, downloads_, copy_bytes));
    }
    for (const topo::CudaStream* stream : {&up_, &down_})
      STRAIT_TRY(driver.wait(*stream, Deadline::after_ms(longest_ms)));
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
