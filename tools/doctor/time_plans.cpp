#include "doctor/time_plans.hpp"

#include <strait/strait.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/cpus.hpp"
#include "doctor/for_now.hpp"
#include "doctor/team.hpp"
#include "select/select.hpp"

namespace strait::doctor {
namespace {

/// Few, because where the memory of a communicator lies can make the same plan 10% slower: a plan needs many
/// communicators.
constexpr std::size_t windows_of_pass = 2;
constexpr std::size_t windows_of_half = 24;
constexpr std::size_t most_passes_of_half = 60;
/// If signal times differ by a smaller factor, the processors are taken to be in the same state.
constexpr double same_state = 1.6;
constexpr double block_us = 1500;
constexpr std::size_t element_bytes = 4;

/// Starts at a cache line, like slots and the buffers of most programs.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;
Buffer buffer_of(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  const std::size_t whole = (bytes + alignment) / alignment * alignment;
  Buffer buffer(std::aligned_alloc(alignment, whole));
  if (buffer) std::memset(buffer.get(), 0, whole);
  return buffer;
}

bool is_same_call(const PlanTime& a, const PlanTime& b) {
  return a.collective == b.collective && a.ranks == b.ranks && a.bytes == b.bytes;
}

/// Checks whether the processors are in the state in which a signal between them took `latency_us`.
class StateCheck {
 public:
  explicit StateCheck(double latency_us) : latency_us_(usable_cores().size() > 1 ? latency_us : 0) {}
  bool is_same() {
    if (latency_us_ == 0) return true;
    const double ratio = handover_us(pair_, false, 2) / latency_us_;
    return ratio < same_state && ratio > 1 / same_state;
  }

 private:
  double latency_us_;
  Team pair_{{usable_cores().front(), usable_cores().back()}};
};

/// Some windows of all plans for one number of ranks, on one communicator, so that all plans use the same memory. If
/// threads fail, the first error is kept.
class Pass {
 public:
  Pass(std::vector<PlanTime*> plans, std::size_t half, std::size_t number, double latency_us)
      : plans_(std::move(plans)), half_(half), number_(number), state_(latency_us) {
    for (const PlanTime* plan : plans_) most_bytes_ = std::max(most_bytes_, plan->bytes);
    communicators_.resize(ranks());
  }

  Status run() {
    STRAIT_TRY(make_communicators());
    on_all_ranks([this](std::uint32_t rank) { measure_all(rank); });
    if (!error_.empty()) return fail(Code::system_error, "plans cannot be timed: " + error_);
    for (std::size_t i = 0; i < plans_.size(); ++i)
      for (std::size_t window = 0; window < times_us_.front()[i].size(); ++window) {
        double slowest_us = 0;
        for (const auto& own : times_us_) slowest_us = std::max(slowest_us, own[i][window]);
        plans_[i]->blocks_us[half_].push_back(slowest_us);
      }
    return {};
  }
  PlanTiming timing() const { return timing_; }

 private:
  std::uint32_t ranks() const { return plans_.front()->ranks; }
  bool good(straitResult_t result) { return result == straitSuccess || give_up(straitGetLastError(nullptr)); }
  bool give_up(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = why;
    return false;
  }

  void on_all_ranks(const std::function<void(std::uint32_t)>& body) const {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) threads.emplace_back([&body, rank] { body(rank); });
  }

  Status make_communicators() {
    straitUniqueId id{};
    if (straitGetUniqueId(&id) != straitSuccess) return fail(Code::system_error, straitGetLastError(nullptr));
    on_all_ranks([&](std::uint32_t rank) {
      good(straitCommInitRank(&communicators_[rank], static_cast<int>(ranks()), &id, static_cast<int>(rank), nullptr));
    });
    return error_.empty() ? Status{} : fail(Code::system_error, "plans cannot be timed: " + error_);
  }

  void measure_all(std::uint32_t rank) {
    const Buffer send = buffer_of(most_bytes_), receive = buffer_of(most_bytes_);
    bool going_on = (send && receive) || give_up("rank " + std::to_string(rank) + " has no memory for two buffers of " +
                                                 std::to_string(most_bytes_) + " bytes. Measure fewer ranks (--ranks)");
    for (std::size_t window = 0; window < windows_of_pass; ++window)
      for (std::size_t begin = 0, end = 0; going_on && begin < plans_.size(); begin = end) {
        while (end < plans_.size() && is_same_call(*plans_[begin], *plans_[end])) ++end;
        const std::size_t turn = number_ * windows_of_pass + window;
        going_on = measure_window({begin, end, turn % (end - begin)}, send.get(), receive.get(), rank);
      }
    together_.arrive_and_drop();
    if (going_on) good(straitBarrier(communicators_[rank], nullptr));
    straitCommDestroy(communicators_[rank]);
  }

  /// The plans of a call in plans_, and the one with which a window begins.
  struct Turn {
    std::size_t begin, end, first;
    std::size_t plan(std::size_t i) const { return begin + (first + i) % size(); }
    std::size_t size() const { return end - begin; }
  };
  /// Times all plans of a call. Drops the window if the state of the processors is wrong before or after it.
  bool measure_window(const Turn& turn, const void* send, void* receive, std::uint32_t rank) {
    if (rank == 0) ++timing_.windows;
    together_.arrive_and_wait();
    bool going_on = true, counts = is_same_state_;
    auto& times_us = times_us_[rank];
    if (counts) {
      for (std::size_t i = 0; going_on && i < turn.size(); ++i) {
        const std::size_t plan = turn.plan(i);
        going_on = measure(*plans_[plan], send, receive, rank, times_us[plan].emplace_back());
      }
      if (going_on) together_.arrive_and_wait();
      counts = is_same_state_;
      for (std::size_t i = turn.begin; going_on && !counts && i < turn.end; ++i) times_us[i].pop_back();
    }
    if (rank == 0 && !counts) ++timing_.strange_windows;
    return going_on;
  }

  bool measure(const PlanTime& plan, const void* send, void* receive, std::uint32_t rank, double& time_us) {
    const straitComm_t comm = communicators_[rank];
    const int calls = std::clamp(static_cast<int>(block_us / plan.predicted_us), 1, 400);
    bool going_on = good(call(plan, send, receive, comm)) && good(straitBarrier(comm, nullptr));
    const double began_us = now_us();
    for (int i = 0; going_on && i < calls; ++i) going_on = good(call(plan, send, receive, comm));
    time_us = (now_us() - began_us) / calls;
    return going_on;
  }

  static straitResult_t call(const PlanTime& plan, const void* send, void* receive, straitComm_t comm) {
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.algorithm = plan.algorithm.c_str();
    const std::size_t count = plan.count();
    switch (plan.collective) {
      case Collective::all_reduce:
        return straitAllReduceWithOptions(send, receive, count, straitInt32, straitSum, comm, nullptr, &options);
      case Collective::all_gather:
        return straitAllGatherWithOptions(send, receive, count, straitInt32, comm, nullptr, &options);
      case Collective::reduce_scatter:
        return straitReduceScatterWithOptions(send, receive, count, straitInt32, straitSum, comm, nullptr, &options);
      default:
        return straitAllToAllWithOptions(send, receive, count, straitInt32, comm, nullptr, &options);
    }
  }

  std::vector<PlanTime*> plans_;  ///< for one number of ranks; plans of the same call are adjacent
  std::size_t half_, number_;
  std::size_t most_bytes_ = 0;
  std::vector<straitComm_t> communicators_;  ///< by rank
  std::vector<std::vector<std::vector<double>>> times_us_{
      ranks(), std::vector<std::vector<double>>(plans_.size())};  ///< by rank, plan and window
  PlanTiming timing_;
  StateCheck state_;
  bool is_same_state_ = false;
  struct Look {
    Pass* pass;
    void operator()() const noexcept { pass->is_same_state_ = pass->state_.is_same(); }
  };
  /// The last thread to arrive checks the state.
  std::barrier<Look> together_{static_cast<std::ptrdiff_t>(ranks()), Look{this}};
  std::mutex mutex_;
  std::string error_;
};

double quick_time(const std::vector<double>& blocks_us) {
  return blocks_us.empty() ? std::numeric_limits<double>::infinity() : quick_quarter(blocks_us);
}

std::vector<double> all_blocks_us(const PlanTime& plan) {
  std::vector<double> all = plan.blocks_us[0];
  all.insert(all.end(), plan.blocks_us[1].begin(), plan.blocks_us[1].end());
  return all;
}

/// Returns whether a plan is so far behind that it needs no more windows. The more windows it has, the less that takes.
bool is_far_behind(const PlanTime& plan, const std::vector<PlanTime>& plans) {
  const std::vector<double> own_us = all_blocks_us(plan);
  if (own_us.size() < windows_of_pass) return false;
  const double far = own_us.size() < windows_of_half / 3 ? 2 : 1.3;
  return std::any_of(plans.begin(), plans.end(), [&](const PlanTime& other) {
    return other.rank_order && is_same_call(plan, other) && quick_time(own_us) > far * quick_time(all_blocks_us(other));
  });
}

/// Returns the largest number of windows among the plans of the same call.
std::size_t most_windows(const PlanTime& plan, const std::vector<PlanTime>& plans, std::size_t half) {
  std::size_t most = 0;
  for (const PlanTime& other : plans)
    if (is_same_call(plan, other)) most = std::max(most, other.blocks_us[half].size());
  return most;
}

/// Returns the plans that need more windows in this half, by number of ranks. Plans that cannot be the choice need few
/// windows. A plan that was left out once gets no more windows, so that all other plans of its call are measured in the
/// same ones.
std::map<std::uint32_t, std::vector<PlanTime*>> left_to_measure(std::vector<PlanTime>& plans, std::size_t half) {
  std::map<std::uint32_t, std::vector<PlanTime*>> left;
  for (PlanTime& plan : plans) {
    const std::size_t windows = plan.blocks_us[half].size();
    const bool enough = windows >= windows_of_half || windows < most_windows(plan, plans, half) ||
                        (windows >= windows_of_pass && is_far_behind(plan, plans));
    if (!enough) left[plan.ranks].push_back(&plan);
  }
  return left;
}

double middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// Returns the times of the plans of one call, from their blocks in all windows (see compare_plans()).
std::vector<double> compared_us(const std::vector<std::vector<double>>& blocks_us) {
  std::size_t windows = 0;
  for (const auto& own : blocks_us) windows = std::max(windows, own.size());
  std::vector<double> levels_us;
  for (std::size_t window = 0; window < windows; ++window) {
    double logarithms = 0;
    int plans = 0;
    for (const auto& own : blocks_us)
      if (own.size() == windows) logarithms += std::log(own[window]), ++plans;
    levels_us.push_back(std::exp(logarithms / plans));
  }
  std::vector<double> times_us;
  for (const auto& own : blocks_us) {
    if (own.empty() || own.size() < windows) {
      times_us.push_back(quick_time(own));
      continue;
    }
    std::vector<double> multiples;
    for (std::size_t window = 0; window < windows; ++window) multiples.push_back(own[window] / levels_us[window]);
    times_us.push_back(middle(std::move(multiples)) * quick_time(levels_us));
  }
  return times_us;
}

}  // namespace

void compare_plans(std::vector<PlanTime>& plans) {
  for (std::size_t begin = 0, end = 0; begin < plans.size(); begin = end) {
    while (end < plans.size() && is_same_call(plans[begin], plans[end])) ++end;
    for (const std::size_t part : {0U, 1U, 2U}) {
      std::vector<std::vector<double>> blocks_us;
      for (std::size_t i = begin; i < end; ++i)
        blocks_us.push_back(part < 2 ? plans[i].blocks_us[part] : all_blocks_us(plans[i]));
      const std::vector<double> times_us = compared_us(blocks_us);
      for (std::size_t i = begin; i < end; ++i) plans[i].times_us[part] = times_us[i - begin];
    }
  }
}

std::size_t PlanTime::count() const {
  const std::size_t blocks_in_buffer = larger_buffer_count(collective, 1, ranks);
  return std::max<std::size_t>(1, bytes / element_bytes / blocks_in_buffer);
}

double PlanTime::spread() const {
  const auto [less, more] = std::minmax({measured_us(0), measured_us(1)});
  return more / less - 1;
}

PlanRequest plan_request(const PlanTime& plan, const std::string& transport) {
  PlanRequest request;
  request.collective = plan.collective;
  request.ranks = plan.ranks;
  request.peer_memory = transport == "loopback";  // threads access one another's buffers
  return request;
}

ClockModel plan_clock(std::uint32_t ranks, const HostRates& rates) {
  return host_model(ranks, within_quota(usable_cores().size(), cpu_quota()), rates);  // as communicators count them
}

Result<std::vector<PlanTime>> plans_to_time(const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
                                            const std::vector<std::size_t>& sizes_bytes, const HostRates& rates) {
  std::vector<PlanTime> plans;
  for (const std::uint32_t ranks : rank_counts)
    for (const Collective collective :
         {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
      for (const std::size_t bytes : sizes_bytes)
        for (const Algorithm& algorithm : catalogue()) {
          PlanTime plan{
              .collective = collective, .ranks = ranks, .bytes = bytes, .algorithm = std::string(algorithm.name)};
          const PlanRequest request = plan_request(plan, transport);
          if (!algorithm.supports(request)) continue;
          STRAIT_ASSIGN(const Choice choice,
                        choose(request, DataType::int32, ReduceOp::sum, plan.count(), plan_clock(ranks, rates),
                               {.algorithm = plan.algorithm, .slice_bytes = 0, .max_slice_bytes = plan_slice_bytes}));
          plan.predicted_us = choice.predicted_us;
          plan.rank_order = !is_reduction(collective) || algorithm.sums == Numerics::rank_order;
          plans.push_back(std::move(plan));
        }
  return plans;
}

Result<PlanTiming> time_plans(std::vector<PlanTime>& plans, const std::string& transport, double latency_us,
                              const std::function<void(std::size_t done, std::size_t all)>& progress) {
  const ForNow through("STRAIT_TRANSPORT", transport);
  const ForNow quiet("STRAIT_DEBUG", "off");  // no warnings about slow forced plans, which are intended here
  PlanTiming timing;
  for (const std::size_t half : {0U, 1U})
    for (std::size_t pass = 0;; ++pass) {
      const auto left = left_to_measure(plans, half);
      std::size_t plans_left = 0;
      for (const auto& [ranks, some] : left) plans_left += some.size();
      progress(half * plans.size() + plans.size() - plans_left, 2 * plans.size());
      if (plans_left == 0) break;
      const bool patient = pass < most_passes_of_half;
      for (const auto& [ranks, some] : left) {
        Pass windows(some, half, pass, patient ? latency_us : 0);
        STRAIT_TRY(windows.run());
        timing.windows += windows.timing().windows;
        timing.strange_windows += windows.timing().strange_windows;
      }
      timing.strange |= !patient;
      if (!patient) break;
    }
  compare_plans(plans);
  return timing;
}

}  // namespace strait::doctor
