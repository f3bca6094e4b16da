#include <sched.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "doctor/team.hpp"
#include "topo/cuda_driver.hpp"
#include "topo/measurements.hpp"
#include "topology/sysfs_files.hpp"

namespace strait::topo {
namespace {

using doctor::now_us;

constexpr std::size_t buffer_bytes = std::size_t{64} << 20;
constexpr std::size_t small_bytes = 8;
constexpr double target_us = 60'000;  // duration of a measurement
// Streams that share a link take turns, so one may end one copy earlier than another: 1/8 of the time.
constexpr int least_repeats = 8;
constexpr int most_repeats = 64;
constexpr int small_repeats = 200;

/// Moves this thread to the CPUs beside a GPU, so that memory which it pins is there. The destructor moves it back.
class NearGpu {
 public:
  NearGpu(const Topology& topology, const std::string& bus_id) {
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    for (const DeviceId gpu : topology.all(DeviceKind::gpu)) {
      const DeviceId numa = topology.numa_of(gpu);
      if (topology.device(gpu).bus_id != bus_id || numa == no_device) continue;
      cpu_set_t near;
      CPU_ZERO(&near);
      for (const std::uint32_t cpu : parse_cpu_list(topology.device(numa).cpus))
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &near);
      if (CPU_COUNT(&near) > 0) moved_ = sched_setaffinity(0, sizeof near, &near) == 0;
    }
  }
  ~NearGpu() {
    if (moved_) sched_setaffinity(0, sizeof before_, &before_);
  }
  NearGpu(const NearGpu&) = delete;
  NearGpu& operator=(const NearGpu&) = delete;

 private:
  cpu_set_t before_{};
  bool moved_ = false;
};

struct Gpu {
  CudaStream up, down;            ///< one for each direction, so that their copies run at the same time
  CudaMemory source, sink;        ///< on the GPU
  CudaMemory uploads, downloads;  ///< pinned host memory
};

/// A copy that is made repeatedly on a stream of its own, at the same time as other transfers.
struct Transfer {
  const CudaStream* stream;
  std::function<Status(std::size_t bytes)> copy;
};

class Bench {
 public:
  Bench(std::shared_ptr<CudaDriver> driver, const Topology& topology, int longest_ms)
      : driver_(std::move(driver)), topology_(topology), longest_ms_(longest_ms) {}

  Result<GpuMeasurements> run() {
    STRAIT_TRY(prepare());
    STRAIT_TRY(host_links());
    STRAIT_TRY(pairs());
    return std::move(found_);
  }

 private:
  std::size_t count() const { return gpus_.size(); }

  Status prepare() {
    for (int gpu = 0; gpu < driver_->gpus(); ++gpu) {
      STRAIT_ASSIGN(const std::string name, driver_->name(gpu));
      STRAIT_ASSIGN(const std::string bus_id, driver_->bus_id(gpu));
      found_.names.push_back(name);
      found_.bus_ids.push_back(bus_id);
      Gpu& mine = gpus_.emplace_back();
      STRAIT_ASSIGN(mine.up, driver_->stream(gpu));
      STRAIT_ASSIGN(mine.down, driver_->stream(gpu));
      STRAIT_ASSIGN(mine.source, driver_->gpu_memory(gpu, buffer_bytes));
      STRAIT_ASSIGN(mine.sink, driver_->gpu_memory(gpu, buffer_bytes));
      const NearGpu near(topology_, bus_id);
      STRAIT_ASSIGN(mine.uploads, driver_->host_memory(buffer_bytes));
      STRAIT_ASSIGN(mine.downloads, driver_->host_memory(buffer_bytes));
    }
    return {};
  }

  Transfer upload(Gpu& gpu) {
    return {&gpu.up, [&](std::size_t bytes) { return driver_->to_host(gpu.up, gpu.uploads, gpu.source, bytes); }};
  }
  Transfer download(Gpu& gpu) {
    return {&gpu.down, [&](std::size_t bytes) { return driver_->to_gpu(gpu.down, gpu.sink, gpu.downloads, bytes); }};
  }
  Transfer push(Gpu& from, Gpu& to) {
    return {&from.up, [&](std::size_t bytes) { return driver_->to_peer(from.up, to.sink, from.source, bytes); }};
  }

  Status wait(const Transfer& transfer) { return driver_->wait(*transfer.stream, Deadline::after_ms(longest_ms_)); }

  /// Returns the rate of each transfer in GB/s while all of them run.
  Result<std::vector<double>> rates(const std::vector<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) STRAIT_TRY(transfer.copy(buffer_bytes));  // not timed: the first touch
    for (const Transfer& transfer : transfers) STRAIT_TRY(wait(transfer));
    double began = now_us();
    for (const Transfer& transfer : transfers) STRAIT_TRY(transfer.copy(buffer_bytes));
    for (const Transfer& transfer : transfers) STRAIT_TRY(wait(transfer));
    const double once_us = std::max(1.0, now_us() - began);
    const int repeats = std::clamp(static_cast<int>(std::ceil(target_us / once_us)), least_repeats, most_repeats);
    began = now_us();
    for (int i = 0; i < repeats; ++i)
      for (const Transfer& transfer : transfers) STRAIT_TRY(transfer.copy(buffer_bytes));
    // Streams are waited for one after the other. A stream that ends before an earlier one in this order seems to end
    // with it, so rates of unequal links may come out too low, but never too high.
    std::vector<double> gbps;
    for (const Transfer& transfer : transfers) {
      STRAIT_TRY(wait(transfer));
      gbps.push_back(static_cast<double>(buffer_bytes) * repeats / (now_us() - began) * 1e-3);
    }
    return gbps;
  }

  Result<double> small_us(const Transfer& transfer) {
    std::vector<double> times;
    for (int i = 0; i < small_repeats; ++i) {
      const double began = now_us();
      STRAIT_TRY(transfer.copy(small_bytes));
      STRAIT_TRY(wait(transfer));
      times.push_back(now_us() - began);
    }
    return doctor::quick_quarter(std::move(times));
  }

  Status host_links() {
    std::vector<Transfer> ups, downs, both;
    for (Gpu& gpu : gpus_) {
      ups.push_back(upload(gpu));
      downs.push_back(download(gpu));
      both.insert(both.end(), {ups.back(), downs.back()});
    }
    found_.host_links.resize(count());
    for (std::size_t i = 0; i < count(); ++i) {
      HostLink& link = found_.host_links[i];
      STRAIT_ASSIGN(const auto up, rates({ups[i]}));
      STRAIT_ASSIGN(const auto down, rates({downs[i]}));
      STRAIT_ASSIGN(link.up_us, small_us(ups[i]));
      STRAIT_ASSIGN(link.down_us, small_us(downs[i]));
      link.up_gbps = up.front();
      link.down_gbps = down.front();
    }
    STRAIT_ASSIGN(const auto all_up, rates(ups));
    STRAIT_ASSIGN(const auto all_down, rates(downs));
    STRAIT_ASSIGN(const auto duplex, rates(both));
    for (std::size_t i = 0; i < count(); ++i) {
      found_.host_links[i].up_all_gbps = all_up[i];
      found_.host_links[i].down_all_gbps = all_down[i];
      found_.host_links[i].duplex_up_gbps = duplex[2 * i];
      found_.host_links[i].duplex_down_gbps = duplex[2 * i + 1];
    }
    return {};
  }

  Status pairs() {
    found_.pair_gbps.assign(count(), std::vector<double>(count()));
    found_.pair_us = found_.pair_gbps;
    found_.p2p.assign(count(), std::vector<bool>(count()));
    std::vector<Transfer> ring;
    for (std::size_t from = 0; from < count(); ++from)
      for (std::size_t to = 0; to < count(); ++to) {
        if (from == to) continue;
        STRAIT_ASSIGN(const bool granted, driver_->enable_peer(static_cast<int>(from), static_cast<int>(to)));
        const Transfer transfer = push(gpus_[from], gpus_[to]);
        STRAIT_ASSIGN(const auto alone, rates({transfer}));
        STRAIT_ASSIGN(found_.pair_us[from][to], small_us(transfer));
        found_.p2p[from][to] = granted;
        found_.pair_gbps[from][to] = alone.front();
        if (to == (from + 1) % count()) ring.push_back(transfer);
      }
    if (!ring.empty()) {
      STRAIT_ASSIGN(found_.ring_gbps, rates(ring));
    }
    return {};
  }

  std::shared_ptr<CudaDriver> driver_;
  const Topology& topology_;
  int longest_ms_;
  std::vector<Gpu> gpus_;
  GpuMeasurements found_;
};

}  // namespace

Result<GpuMeasurements> measure_gpus(const Topology& topology, const std::string& library, int longest_ms) {
  STRAIT_ASSIGN(auto driver, CudaDriver::open(library));
  return Bench(std::move(driver), topology, longest_ms).run();
}

}  // namespace strait::topo
