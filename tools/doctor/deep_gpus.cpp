#include <fmt/format.h>
#include <strait/strait.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "doctor/deep.hpp"
#include "doctor/judge.hpp"
#include "doctor/team.hpp"
#include "owned_comm.hpp"
#include "perf/call.hpp"
#include "perf/gpu.hpp"
#include "perf/memory.hpp"
#include "topology/detect.hpp"

namespace strait::doctor {
namespace {

constexpr std::size_t count = std::size_t{4} << 20;  // number of elements of a collective
constexpr std::size_t size_bytes = count * sizeof(float);
constexpr int rounds = 5;
constexpr int calls = 40;  // per round, back to back
constexpr int own_times = 10;
constexpr int timeout_ms = 30'000;

struct Report {
  std::mutex mutex;
  Status failure;  ///< the first failure
  std::uint64_t wrong = 0;
  std::vector<double> own_us;  ///< by GPU: time of its own work, which waits for nobody

  void fail(const Error& error) {
    const std::lock_guard lock(mutex);
    if (failure) failure = tl::unexpected(error);
  }
};

float element(std::size_t i, int rank, int round) {
  constexpr std::size_t period = 64;  // of whole numbers, so sums are exact in any order
  return static_cast<float>((i + static_cast<std::size_t>(rank + round)) % period);
}

/// One GPU rank, driven by a thread of its own.
class GpuRank {
 public:
  GpuRank(int rank, int ranks, Report& report) : rank_(rank), ranks_(ranks), report_(report) {}

  Status run(const straitUniqueId& id) {
    straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
    config.init_timeout_ms = config.timeout_ms = timeout_ms;
    straitComm_t joined = nullptr;
    STRAIT_TRY(perf::checked(straitCommInitRank(&joined, ranks_, &id, rank_, &config), nullptr, "straitCommInitRank"));
    const tools::OwnedComm control(joined);
    const Status done = load(control.get());
    if (!done) straitCommAbort(control.get());  // so that the other ranks do not wait for this one
    return done;
  }

 private:
  Status load(straitComm_t control) {
    STRAIT_ASSIGN(const auto gpu, perf::Gpu::open(control, rank_, timeout_ms));
    STRAIT_ASSIGN(perf::Memory values, perf::Memory::on_gpu(size_bytes, size_bytes, *gpu));
    STRAIT_ASSIGN(perf::Memory sums, perf::Memory::on_gpu(size_bytes, size_bytes, *gpu));
    for (int round = 0; round < rounds; ++round) STRAIT_TRY(add_up(*gpu, values, sums, round));
    return work_alone(control, *gpu, values, sums);
  }

  Status add_up(perf::Gpu& gpu, perf::Memory& values, perf::Memory& sums, int round) {
    auto* own = static_cast<float*>(values.host());
    for (std::size_t i = 0; i < count; ++i) own[i] = element(i, rank_, round);
    STRAIT_TRY(values.from_host(size_bytes));
    for (int i = 0; i < calls; ++i)
      STRAIT_TRY(perf::checked(
          straitAllReduce(values.data(), sums.data(), count, straitFloat32, straitSum, gpu.comm(), gpu.stream()),
          gpu.comm(), "straitAllReduce"));
    STRAIT_TRY(gpu.wait());
    STRAIT_TRY(sums.to_host(size_bytes));
    const auto* found = static_cast<const float*>(sums.host());
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (int rank = 0; rank < ranks_; ++rank) expected += element(i, rank, round);
      wrong += found[i] == expected ? 0 : 1;
    }
    const std::lock_guard lock(report_.mutex);
    report_.wrong += wrong;
    return {};
  }

  /// Times work on a communicator of this rank alone, while all other ranks do the same. It shows slow clocks and
  /// memory.
  Status work_alone(straitComm_t control, perf::Gpu& gpu, perf::Memory& values, perf::Memory& sums) {
    straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
    config.device = rank_;
    config.timeout_ms = timeout_ms;
    straitComm_t split = nullptr;
    STRAIT_TRY(perf::checked(straitCommSplit(control, rank_, rank_, &split, &config), control, "straitCommSplit"));
    const tools::OwnedComm alone(split);
    std::vector<double> times;
    for (int i = 0; i < own_times; ++i) {
      STRAIT_TRY(perf::checked(straitBarrier(control, nullptr), control, "straitBarrier"));
      const double began = now_us();
      for (int call = 0; call < calls; ++call)
        STRAIT_TRY(perf::checked(
            straitAllReduce(values.data(), sums.data(), count, straitFloat32, straitSum, split, gpu.stream()), split,
            "straitAllReduce"));
      STRAIT_TRY(gpu.wait());
      times.push_back((now_us() - began) / calls);
    }
    const std::lock_guard lock(report_.mutex);
    report_.own_us[static_cast<std::size_t>(rank_)] = quick_quarter(std::move(times));
    return {};
  }

  int rank_;
  int ranks_;
  Report& report_;
};

/// Returns a note if this machine or build does not support GPU ranks, or an error if they failed.
Finding failed(const Error& error) {
  if (error.code == Code::unsupported)
    return {Severity::note, "deep_gpus", "GPUs were not put under load: " + error.message, "", ""};
  return {Severity::error, "deep_gpus", error.message, "collectives of GPUs fail", "see the message"};
}

Findings check_collectives(const topo::GpuMeasurements& gpus) {
  const int ranks = static_cast<int>(gpus.bus_ids.size());
  Report report;
  report.own_us.resize(gpus.bus_ids.size());
  straitUniqueId id;
  if (straitGetUniqueId(&id) != straitSuccess)
    return {failed({Code::internal_error, std::string("ranks cannot meet: ") + straitGetLastError(nullptr)})};
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        if (const Status done = GpuRank(rank, ranks, report).run(id); !done) report.fail(done.error());
      });
  }
  Findings found;
  if (!report.failure) return {failed(report.failure.error())};
  if (report.wrong > 0)
    found.push_back({Severity::error, "deep_gpus", fmt::format("{} elements of sums on GPUs are wrong", report.wrong),
                     "results cannot be trusted", "look at ECC and Xid errors (`strait doctor`), and report it"});
  std::vector<std::string> names;
  for (int rank = 0; rank < ranks; ++rank)
    names.push_back(fmt::format("GPU {} ({})", rank, gpus.bus_ids[static_cast<std::size_t>(rank)]));
  const Findings slow =
      judge_work("slow_gpu", names, report.own_us,
                 "look at its temperature, power limit and clocks (`strait doctor`, `nvidia-smi -q`), "
                 "and at what else runs on it");
  found.insert(found.end(), slow.begin(), slow.end());
  if (found.empty())
    found.push_back({Severity::ok, "deep_gpus",
                     fmt::format("{} all-reduces on {} GPUs, verified; no GPU is slow", rounds * calls, ranks), "",
                     ""});
  return found;
}

}  // namespace

Findings check_gpus_under_load() {
  const auto topology = detect();
  if (!topology) return {failed(topology.error())};
  const auto gpus = topo::measure_gpus(*topology);
  if (!gpus && gpus.error().code == Code::unsupported && topology->all(DeviceKind::gpu).empty()) return {};
  if (!gpus) return {failed(gpus.error())};
  Findings found = judge_links(*gpus, expected_pairs(*topology, *gpus));
  if (found.empty())
    found.push_back(
        {Severity::ok, "gpu_links",
         fmt::format("host links and pairs of {} GPUs: none is slower than others like it", gpus->bus_ids.size()), "",
         ""});
  const Findings more = check_collectives(*gpus);
  found.insert(found.end(), more.begin(), more.end());
  return found;
}

}  // namespace strait::doctor
