// One size in one place: times of Strait, and of a baseline in turn with it; then the check of the results.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <utility>

#include "perf/bookkeeping.hpp"
#include "perf/rank_run.hpp"
#include "perf/table.hpp"
#include "safe_print.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Single iterations are timed in a pass of its own, so that reading the clock does not enter the mean.
constexpr double single_pass_us = 200'000;
constexpr int min_single_iterations = 10;
constexpr int max_single_iterations = 1000;

double elapsed_us(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

double thread_cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// Whether another library's results must have the same bits: it may divide where Strait multiplies, and what Strait
/// sends in a wire format it does not.
bool baseline_is_exact(const Operation& o) {
  if (o.wire != WireFormat::off) return false;
  return !is_reduction(o.collective) || o.op != ReduceOp::avg ||
         (is_floating(o.type) && (o.ranks & (o.ranks - 1)) == 0);
}

}  // namespace

std::byte* RankRun::host_contents(const Memory& memory) const {
  return static_cast<std::byte*>(memory.host()) + options_.offset_bytes;
}

Status RankRun::fill(const Operation& o, const Contents& contents, Memory& memory) {
  write(o, contents, host_contents(memory), check_threads_);
  return memory.from_host(options_.offset_bytes + extent_bytes(o, contents));
}

Result<std::size_t> RankRun::wrong_in(const Operation& o, const Contents& contents, Memory& memory) {
  STRAIT_TRY(memory.to_host(options_.offset_bytes + extent_bytes(o, contents)));
  return count_wrong(o, contents, host_contents(memory), check_threads_);
}

/// A library and how one size of it is run: call by call, or by launches of a graph of calls.
struct RankRun::Contender {
  bool is_baseline = false;
  Enqueue call;
  std::optional<topo::CudaGraph> graph{};     ///< of all iterations
  std::optional<topo::CudaGraph> one_call{};  ///< for the check
  bool is_checked = true;
  Enqueue enqueue{};   ///< what is timed: a call, or a launch
  int repeats = 0;     ///< of that
  int calls_each = 1;  ///< calls that it stands for
  std::vector<Measurement> turns{};
};

bool RankRun::is_checked(const Operation& o) const {
  return options_.checks > 0 && o.bytes <= options_.check_limit_bytes;
}

Result<std::vector<Measurement>> RankRun::measure(Operation o) {
  std::vector<Contender> contenders(baseline_ ? 2 : 1);
  contenders.front().call = strait_call(o);
  if (baseline_) {
    contenders.back().is_baseline = true;
    contenders.back().call = baseline_call(o);
    contenders.back().is_checked = baseline_is_exact(o);
  }
  if (is_checked(o)) {  // where nothing is checked, it does not matter what is moved
    if (!o.in_place) STRAIT_TRY(fill(o, send_contents(o), *send_));
    STRAIT_TRY(fill(o, receive_contents_before(o), *receive_));
  }
  for (Contender& contender : contenders) STRAIT_TRY(prepare(o, contender));
  STRAIT_TRY(time_in_turns(contenders));
  std::vector<Measurement> measurements;
  const auto moved = static_cast<double>(algorithm_bytes(o.collective, o.geometry(o.rank), o.type, o.ranks));
  for (Contender& contender : contenders) {
    const auto middle = contender.turns.begin() + static_cast<std::ptrdiff_t>(contender.turns.size() / 2);
    std::nth_element(contender.turns.begin(), middle, contender.turns.end(),
                     [](const Measurement& a, const Measurement& b) { return a.time_us < b.time_us; });
    Measurement m = *middle;
    if (!baseline_) STRAIT_TRY(time_single_iterations(contender, m));
    m.algorithm_gbps = m.time_us > 0 ? moved / m.time_us * 1e-3 : 0;
    m.bus_gbps = m.algorithm_gbps * bus_factor(o.collective, o.ranks);
    for (int i = 0; i < options_.checks && is_checked(o) && contender.is_checked; ++i) {
      STRAIT_ASSIGN(const std::int64_t wrong, verify(o, contender));
      m.wrong = m.wrong.value_or(0) + wrong;
    }
    measurements.push_back(m);
  }
  return measurements;
}

/// The first call of the size, and the graphs.
Status RankRun::prepare(const Operation& o, Contender& c) {
  STRAIT_TRY(c.call());
  STRAIT_TRY(complete());
  c.enqueue = c.call;
  c.repeats = options_.iterations;
  c.calls_each = options_.aggregated;
  if (options_.graph_launches != 0)
    STRAIT_TRY(record_graphs(o, c));
  else if (options_.budget_ms == 0)
    return {};
  STRAIT_TRY(barrier());  // preparing a graph may wait for kernels of the process, and those for this rank
  const auto start = Clock::now();
  STRAIT_TRY(c.enqueue());
  STRAIT_TRY(complete());
  return keep_to_budget(c, elapsed_us(start));
}

Status RankRun::record_graphs(const Operation& o, Contender& c) {
  const auto calls = [&](int count) -> Enqueue {
    return [&c, count]() -> Status {
      for (int i = 0; i < count; ++i) STRAIT_TRY(c.call());
      return {};
    };
  };
  STRAIT_ASSIGN(c.graph, gpu_->record(calls(options_.iterations)));
  if (is_checked(o)) {
    STRAIT_ASSIGN(c.one_call, gpu_->record(calls(1)));
  }
  c.enqueue = [this, &c] { return gpu_->launch(*c.graph); };
  c.repeats = options_.graph_launches;
  c.calls_each = options_.iterations * options_.aggregated;
  return {};
}

/// `time_us`: of what is repeated. As often on all ranks, which wait for one another.
Status RankRun::keep_to_budget(Contender& c, double time_us) {
  if (options_.budget_ms == 0) return {};
  STRAIT_TRY(all_reduce(control_, time_us, Combination::max));
  const double fitting = options_.budget_ms * 1e3 / turns() / std::max(time_us, 1e-3);
  c.repeats = fitting < c.repeats ? std::max(static_cast<int>(fitting), 1) : c.repeats;
  return {};
}

/// Each pass begins with a barrier and ends when its work is complete: no library's kernels meet the other's.
Status RankRun::time_in_turns(std::vector<Contender>& contenders) {
  for (int turn = 0; turn < turns(); ++turn)
    for (Contender& contender : contenders) {
      STRAIT_TRY(time_mean(contender, contender.turns.emplace_back()));
    }
  return {};
}

Status RankRun::time_mean(const Contender& c, Measurement& m) {
  STRAIT_TRY(barrier());
  double timed_us = 0;
  double cpu_us = 0;
  const double cpu_start_us = thread_cpu_us();
  const auto start = Clock::now();
  if (options_.blocking == Blocking::barrier_untimed) {
    for (int i = 0; i < c.repeats; ++i) {
      const auto iteration_start = Clock::now();
      STRAIT_TRY(c.enqueue());
      STRAIT_TRY(complete());
      timed_us += elapsed_us(iteration_start);
      STRAIT_TRY(barrier());
    }
    cpu_us = thread_cpu_us() - cpu_start_us;
  } else {
    for (int i = 0; i < c.repeats; ++i) {
      STRAIT_TRY(c.enqueue());
      if (options_.blocking != Blocking::none) STRAIT_TRY(complete());
      if (options_.blocking == Blocking::barrier_timed) STRAIT_TRY(barrier());
    }
    cpu_us = thread_cpu_us() - cpu_start_us;  // of GPU ranks: what enqueueing takes, without the wait
    STRAIT_TRY(complete());
    timed_us = elapsed_us(start);
  }
  m.time_us = timed_us / c.repeats / c.calls_each;
  m.cpu_time_us = cpu_us / c.repeats / c.calls_each;
  m.calls = std::int64_t{c.repeats} * c.calls_each;
  STRAIT_TRY(average(m.time_us));
  return average(m.cpu_time_us);
}

/// Of a graph: single launches, each for its calls' mean.
Status RankRun::time_single_iterations(const Contender& c, Measurement& m) {
  // time_us is the same on all ranks by now, and so is the number of iterations.
  const double fitting = m.time_us > 0 ? single_pass_us / m.time_us / c.calls_each : max_single_iterations;
  const auto iterations =
      static_cast<std::size_t>(std::clamp(fitting, double{min_single_iterations}, double{max_single_iterations}));
  std::vector<double> times_us(iterations);
  for (double& time_us : times_us) {
    if (options_.blocking == Blocking::barrier_untimed) STRAIT_TRY(barrier());
    const auto start = Clock::now();
    STRAIT_TRY(c.enqueue());
    STRAIT_TRY(complete());
    if (options_.blocking == Blocking::barrier_timed) STRAIT_TRY(barrier());
    time_us = elapsed_us(start) / c.calls_each;
  }
  m.p50_us = percentile(times_us, 50);
  m.p99_us = percentile(times_us, 99);
  STRAIT_TRY(average(m.p50_us));
  return average(m.p99_us);
}

Status RankRun::run_once(const Contender& c) {
  STRAIT_TRY(c.one_call ? gpu_->launch(*c.one_call) : c.call());
  return complete();
}

Result<std::int64_t> RankRun::verify(Operation o, const Contender& c) {
  o.seed = ++verified_calls_;  // ranks verify the same calls in the same order
  if (!o.in_place) STRAIT_TRY(fill(o, send_contents(o), *send_));
  STRAIT_TRY(fill(o, receive_contents_before(o), *receive_));
  STRAIT_TRY(run_once(c));
  STRAIT_ASSIGN(std::size_t wrong_here, wrong_in(o, receive_contents_after(o), *receive_));
  if (!o.in_place) {
    STRAIT_ASSIGN(const std::size_t changed, wrong_in(o, send_contents(o), *send_));
    wrong_here += changed;
  }
  if (wrong_here != 0)  // said here too, because the sum below is the library's own work
    tools::print(stderr, "strait perf: rank {}: {}{}, {} {} of {}, {}, seed {}\n", rank_,
                 counted(wrong_here, "wrong element"), c.is_baseline ? " of the baseline" : "", name(o.collective),
                 name(o.type), counted(o.bytes, "byte"), o.in_place ? "in place" : "out of place", o.seed);
  auto wrong = static_cast<std::int64_t>(wrong_here);
  STRAIT_TRY(all_reduce(control_, wrong, Combination::sum));
  if (!c.is_baseline) wrong_ += std::max(wrong, static_cast<std::int64_t>(wrong_here));
  return wrong;
}

}  // namespace strait::perf
