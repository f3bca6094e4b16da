#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "doctor/team.hpp"
#include "topo/cuda_driver.hpp"
#include "topo/kernels_ptx.hpp"
#include "topo/measurements.hpp"

namespace strait::topo {
namespace {

using doctor::now_us;

constexpr std::size_t buffer_bytes = std::size_t{256} << 20;  // much more than second-level caches hold
constexpr unsigned blocks = 1024, threads = 512;
constexpr int launches = 500;
constexpr int passes = 20;
constexpr int repeats = 5;
constexpr std::uint32_t hand_overs = 1000;
constexpr double longest_flag_us = 500;  // beyond this the kernels have given up

struct Gpu {
  CudaStream stream;
  CudaModule kernels;
  CudaKernel nothing, clear, ping, copy_over, add_up;
  CudaMemory source, sink;
  CudaMemory flag, host_flag;  ///< host_flag is for peers that cannot access `flag`
};

class Bench {
 public:
  Bench(std::shared_ptr<CudaDriver> driver, const Topology& topology, int longest_ms)
      : driver_(std::move(driver)), topology_(topology), longest_ms_(longest_ms) {}

  Result<GpuRates> run() {
    for (int gpu = 0; gpu < driver_->gpus(); ++gpu) {
      Gpu& mine = gpus_.emplace_back();
      STRAIT_ASSIGN(mine.stream, driver_->stream(gpu));
      STRAIT_ASSIGN(mine.kernels, driver_->module(gpu, kernels_ptx));
      STRAIT_ASSIGN(mine.nothing, driver_->kernel(mine.kernels, "nothing"));
      STRAIT_ASSIGN(mine.clear, driver_->kernel(mine.kernels, "clear"));
      STRAIT_ASSIGN(mine.ping, driver_->kernel(mine.kernels, "ping"));
      STRAIT_ASSIGN(mine.copy_over, driver_->kernel(mine.kernels, "copy_over"));
      STRAIT_ASSIGN(mine.add_up, driver_->kernel(mine.kernels, "add_up"));
      STRAIT_ASSIGN(mine.source, driver_->gpu_memory(gpu, buffer_bytes));
      STRAIT_ASSIGN(mine.sink, driver_->gpu_memory(gpu, buffer_bytes));
      STRAIT_ASSIGN(mine.flag, driver_->gpu_memory(gpu, sizeof(std::uint32_t)));
      STRAIT_ASSIGN(mine.host_flag, driver_->host_memory(sizeof(std::uint32_t), gpu));
    }
    GpuRates rates;
    STRAIT_ASSIGN(rates.call_us, slowest([&](Gpu& gpu) { return launch_us(gpu); }));
    STRAIT_ASSIGN(const double copy_us, slowest([&](Gpu& gpu) { return pass_us(gpu, gpu.copy_over); }));
    STRAIT_ASSIGN(const double add_us, slowest([&](Gpu& gpu) { return pass_us(gpu, gpu.add_up); }));
    rates.copy_gbps = buffer_bytes / (copy_us * bytes_per_us);
    rates.reduce_gbps = 2 * buffer_bytes / (add_us * bytes_per_us);
    STRAIT_ASSIGN(const auto step_us, middle_step_us());
    if (step_us) rates.step_us = *step_us;
    return rates;
  }

 private:
  /// Returns the best of a few times of `work` on the slowest GPU, for which every collective waits.
  Result<double> slowest(const std::function<Result<double>(Gpu&)>& work) {
    double slowest_us = 0;
    for (Gpu& gpu : gpus_) {
      STRAIT_ASSIGN(double best_us, work(gpu));
      for (int i = 1; i < repeats; ++i) {
        STRAIT_ASSIGN(const double again_us, work(gpu));
        best_us = std::min(best_us, again_us);
      }
      slowest_us = std::max(slowest_us, best_us);
    }
    return slowest_us;
  }

  Status wait(const Gpu& gpu) { return driver_->wait(gpu.stream, Deadline::after_ms(longest_ms_)); }

  /// Returns the time of a launch of a kernel that does nothing, among many in a row.
  Result<double> launch_us(Gpu& gpu) {
    const double began = now_us();
    for (int i = 0; i < launches; ++i) STRAIT_TRY(driver_->launch(gpu.stream, gpu.nothing, 1, 1, {}));
    STRAIT_TRY(wait(gpu));
    return (now_us() - began) / launches;
  }

  Result<double> pass_us(Gpu& gpu, const CudaKernel& kernel) {
    const double began = now_us();
    for (int i = 0; i < passes; ++i)
      STRAIT_TRY(driver_->launch(gpu.stream, kernel, blocks, threads,
                                 {gpu.sink.address(), gpu.source.address(), buffer_bytes}));
    STRAIT_TRY(wait(gpu));
    return (now_us() - began) / passes;
  }

  Status clear(Gpu& gpu, const CudaMemory& flag) {
    STRAIT_TRY(driver_->launch(gpu.stream, gpu.clear, 1, 1, {flag.address()}));
    return wait(gpu);
  }

  /// Returns half of a round trip, each way of which is a fence and a flag.
  Result<double> flag_us(std::size_t a, std::size_t b) {
    STRAIT_ASSIGN(const bool there, driver_->enable_peer(static_cast<int>(a), static_cast<int>(b)));
    STRAIT_ASSIGN(const bool back, driver_->enable_peer(static_cast<int>(b), static_cast<int>(a)));
    const auto flag = [&](Gpu& gpu) -> const CudaMemory& { return there && back ? gpu.flag : gpu.host_flag; };
    Gpu& first = gpus_[a];
    Gpu& second = gpus_[b];
    const auto play = [&](Gpu& own, Gpu& other, std::uint32_t begins) {
      return driver_->launch(own.stream, own.ping, 1, 1,
                             {flag(own).address(), flag(other).address(), hand_overs, begins});
    };
    STRAIT_TRY(clear(first, flag(first)));
    STRAIT_TRY(clear(second, flag(second)));
    const double began = now_us();
    STRAIT_TRY(play(second, first, 0));
    STRAIT_TRY(play(first, second, 1));
    STRAIT_TRY(wait(first));
    STRAIT_TRY(wait(second));
    const double taken_us = (now_us() - began) / (2.0 * hand_overs);
    if (taken_us > longest_flag_us)
      return fail(Code::cuda_error, "flags between GPU " + std::to_string(a) + " and GPU " + std::to_string(b) +
                                        " do not arrive. `strait doctor` and `strait topo` may say why");
    return taken_us;
  }

  /// Returns the latency that the clock adds for the path itself.
  Result<double> path_us(std::size_t a, std::size_t b) {
    STRAIT_ASSIGN(const std::string from, driver_->bus_id(static_cast<int>(a)));
    STRAIT_ASSIGN(const std::string to, driver_->bus_id(static_cast<int>(b)));
    std::optional<DeviceId> begin, end;
    for (const DeviceId gpu : topology_.all(DeviceKind::gpu)) {
      if (topology_.device(gpu).bus_id == from) begin = gpu;
      if (topology_.device(gpu).bus_id == to) end = gpu;
    }
    return begin && end ? topology_.path(*begin, *end).latency_us : 0;
  }

  /// Returns the median pair's step time; nothing if there is only one GPU.
  Result<std::optional<double>> middle_step_us() {
    constexpr double least_us = 0.05;  // for a topology that assumes more for the path than the flag takes
    std::vector<double> steps;
    for (std::size_t a = 0; a < gpus_.size(); ++a)
      for (std::size_t b = a + 1; b < gpus_.size(); ++b) {
        STRAIT_ASSIGN(double best_us, flag_us(a, b));
        for (int i = 1; i < repeats; ++i) {
          STRAIT_ASSIGN(const double again_us, flag_us(a, b));
          best_us = std::min(best_us, again_us);
        }
        STRAIT_ASSIGN(const double way_us, path_us(a, b));
        steps.push_back(std::max(least_us, best_us - way_us));
      }
    if (steps.empty()) return std::nullopt;
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    return *middle;
  }

  std::shared_ptr<CudaDriver> driver_;
  const Topology& topology_;
  int longest_ms_;
  std::vector<Gpu> gpus_;
};

}  // namespace

Result<GpuRates> measure_kernels(const Topology& topology, const std::string& library, int longest_ms) {
  STRAIT_ASSIGN(auto driver, CudaDriver::open(library));
  return Bench(std::move(driver), topology, longest_ms).run();
}

}  // namespace strait::topo
