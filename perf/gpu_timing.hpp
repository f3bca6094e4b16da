#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "gpu_ranks.cuh"

/// Times an operation in which the streams of all ranks take part.
namespace strait::perf {

/// Enqueues the operation once on every rank's stream.
using Enqueue = std::function<Status()>;

struct Times {
  double eager_us = 0;  ///< time of an operation when launches follow one another
  double graph_us = 0;  ///< time of an operation in replays of a graph of many; 0: not measured
};

/// Returns the longest time of any rank between its two events, divided by `divisor`.
inline Result<double> slowest_us(GpuRanks& ranks, double divisor) {
  float slowest_ms = 0;
  for (GpuRank& rank : ranks.ranks) {
    float ms = 0;
    STRAIT_TRY(cuda::check(cudaEventSynchronize(rank.stop), "a GPU failed"));
    STRAIT_TRY(cuda::check(cudaEventElapsedTime(&ms, rank.start, rank.stop), "cannot read a time"));
    slowest_ms = std::max(slowest_ms, ms);
  }
  return slowest_ms * 1000.0 / divisor;
}

/// Measures `enqueue_all` `rounds` times. It enqueues `divisor` operations on all streams. Returns the median time of
/// one operation.
inline Result<double> median_us(GpuRanks& ranks, int rounds, double divisor, const Enqueue& enqueue_all) {
  std::vector<double> times_us;
  for (int round = 0; round < rounds; ++round) {
    for (GpuRank& rank : ranks.ranks) {
      cuda::DeviceGuard guard(rank.device);
      STRAIT_TRY(cuda::check(cudaEventRecord(rank.start, rank.stream), "cannot time"));
    }
    STRAIT_TRY(enqueue_all());
    for (GpuRank& rank : ranks.ranks) {
      cuda::DeviceGuard guard(rank.device);
      STRAIT_TRY(cuda::check(cudaEventRecord(rank.stop, rank.stream), "cannot time"));
    }
    STRAIT_ASSIGN(const double us, slowest_us(ranks, divisor));
    times_us.push_back(us);
  }
  std::nth_element(times_us.begin(), times_us.begin() + rounds / 2, times_us.end());
  return times_us[static_cast<std::size_t>(rounds / 2)];
}

/// Graphs of `repeats` operations, one graph for each rank. Each is linear, so the work of a rank waits only for
/// signals of other ranks.
class RankGraphs {
 public:
  ~RankGraphs() {
    for (cudaGraphExec_t graph : graphs_) cudaGraphExecDestroy(graph);
  }
  Status capture(GpuRanks& ranks, int repeats, const Enqueue& enqueue) {
    for (GpuRank& rank : ranks.ranks) {
      cuda::DeviceGuard guard(rank.device);
      STRAIT_TRY(cuda::check(cudaStreamBeginCapture(rank.stream, cudaStreamCaptureModeRelaxed), "cannot capture"));
    }
    Status enqueued;
    for (int i = 0; i < repeats && enqueued; ++i) enqueued = enqueue();
    for (GpuRank& rank : ranks.ranks) {
      cuda::DeviceGuard guard(rank.device);
      cudaGraph_t graph = nullptr;
      const cudaError_t ended = cudaStreamEndCapture(rank.stream, &graph);
      cudaGraphExec_t executable = nullptr;
      if (ended == cudaSuccess && graph != nullptr && cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess)
        graphs_.push_back(executable);
      cudaGraphDestroy(graph);
      if (enqueued) enqueued = cuda::check(ended, "cannot capture");
    }
    cudaGetLastError();  // clears the error of a failed capture's graph
    STRAIT_TRY(std::move(enqueued));
    if (graphs_.size() != ranks.ranks.size()) return fail(Code::cuda_error, "cannot instantiate a captured graph");
    for (std::size_t r = 0; r < graphs_.size(); ++r)
      STRAIT_TRY(cuda::check(cudaGraphUpload(graphs_[r], ranks.ranks[r].stream), "cannot upload a graph"));
    return ranks.synchronize();
  }
  Status launch(GpuRanks& ranks) {
    for (std::size_t r = 0; r < graphs_.size(); ++r) {
      cuda::DeviceGuard guard(ranks.ranks[r].device);
      STRAIT_TRY(cuda::check(cudaGraphLaunch(graphs_[r], ranks.ranks[r].stream), "cannot launch a graph"));
    }
    return {};
  }

 private:
  std::vector<cudaGraphExec_t> graphs_;
};

/// Measures an operation for about `budget_ms` of GPU time.
inline Result<Times> time_operation(GpuRanks& ranks, const Enqueue& enqueue, double budget_ms, bool with_graph) {
  constexpr int rounds = 7;
  STRAIT_TRY(enqueue());
  STRAIT_TRY(ranks.synchronize());
  STRAIT_ASSIGN(const double first_us, median_us(ranks, 1, 1, enqueue));
  const int repeats = std::clamp(static_cast<int>(budget_ms * 1000 / rounds / std::max(first_us, 1.0)), 1, 20);
  const bool slow = first_us > 30'000;  // an operation this long needs neither a median nor a graph
  const auto many = [&]() -> Status {
    for (int i = 0; i < repeats; ++i) STRAIT_TRY(enqueue());
    return {};
  };
  Times times;
  STRAIT_ASSIGN(times.eager_us, median_us(ranks, slow ? 1 : rounds, repeats, many));
  if (!with_graph || slow) return times;
  RankGraphs graphs;
  STRAIT_TRY(graphs.capture(ranks, repeats, enqueue));
  const int replays = repeats == 20 ? 5 : 1;
  const auto replay = [&]() -> Status {
    for (int i = 0; i < replays; ++i) STRAIT_TRY(graphs.launch(ranks));
    return {};
  };
  STRAIT_TRY(replay());
  STRAIT_TRY(ranks.synchronize());
  STRAIT_ASSIGN(times.graph_us, median_us(ranks, rounds, double(repeats) * replays, replay));
  return times;
}

}  // namespace strait::perf
