#include "doctor/time_plans.hpp"

#include <strait/strait.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "doctor/for_now.hpp"
#include "doctor/team.hpp"
#include "select/select.hpp"

namespace strait::doctor {
namespace {

constexpr int blocks = 8;
constexpr double block_us = 500;
constexpr std::size_t element_bytes = 4;
constexpr double settled_spread = 0.05;

/// Starts at a cache line, as slots and the buffers of most programs do.
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

/// The threads of one communicator; keeps the first error of any of them.
class Ranks {
 public:
  Ranks(std::span<PlanTime*> plans, int pass) : plans_(plans), pass_(pass) {
    for (const PlanTime* plan : plans) most_bytes_ = std::max(most_bytes_, plan->bytes);
  }

  Status run() {
    const auto ranks = static_cast<int>(plans_.front()->ranks);
    if (straitGetUniqueId(&id_) != straitSuccess) return fail(Code::system_error, straitGetLastError(nullptr));
    times_us_.assign(static_cast<std::size_t>(ranks), std::vector<double>(plans_.size(), 0));
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([this, rank] { measure_all(rank); });
    }
    if (!error_.empty()) return fail(Code::system_error, "plans cannot be timed: " + error_);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      double slowest_us = 0;
      for (const auto& own : times_us_) slowest_us = std::max(slowest_us, own[i]);
      double& measured_us = plans_[i]->measured_us[static_cast<std::size_t>(pass_ % 2)];
      measured_us = std::min(measured_us, slowest_us);
    }
    return {};
  }

 private:
  bool good(straitResult_t result) { return result == straitSuccess || give_up(straitGetLastError(nullptr)); }
  bool give_up(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (error_.empty()) error_ = why;
    return false;
  }

  void measure_all(int rank) {
    straitComm_t comm = nullptr;
    if (!good(straitCommInitRank(&comm, static_cast<int>(plans_.front()->ranks), &id_, rank, nullptr))) return;
    const Buffer send = buffer_of(most_bytes_), receive = buffer_of(most_bytes_);
    bool going_on = (send && receive) || give_up("rank " + std::to_string(rank) + " has no memory for two buffers of " +
                                                 std::to_string(most_bytes_) + " bytes. Measure fewer ranks (--ranks)");
    going_on = going_on && good(straitBarrier(comm, nullptr));
    for (std::size_t i = 0; going_on && i < plans_.size(); ++i)
      going_on = measure(*plans_[i], send.get(), receive.get(), comm, times_us_[static_cast<std::size_t>(rank)][i]);
    if (going_on) good(straitBarrier(comm, nullptr));
    straitCommDestroy(comm);
  }

  bool measure(const PlanTime& plan, const void* send, void* receive, straitComm_t comm, double& time_us) {
    const int calls = std::clamp(static_cast<int>(block_us / plan.predicted_us), 1, 400);
    std::vector<double> times_us;
    bool going_on = good(call(plan, send, receive, comm));
    for (int block = 0; going_on && block < blocks; ++block) {
      going_on = good(straitBarrier(comm, nullptr));
      const double began_us = now_us();
      for (int i = 0; going_on && i < calls; ++i) going_on = good(call(plan, send, receive, comm));
      times_us.push_back((now_us() - began_us) / calls);
    }
    if (going_on) time_us = quick_quarter(std::move(times_us));
    return going_on;
  }

  static straitResult_t call(const PlanTime& plan, const void* send, void* receive, straitComm_t comm) {
    switch (plan.collective) {
      case Collective::all_reduce:
        return straitAllReduce(send, receive, plan.count(), straitInt32, straitSum, comm, nullptr);
      case Collective::all_gather:
        return straitAllGather(send, receive, plan.count(), straitInt32, comm, nullptr);
      case Collective::reduce_scatter:
        return straitReduceScatter(send, receive, plan.count(), straitInt32, straitSum, comm, nullptr);
      default:
        return straitAllToAll(send, receive, plan.count(), straitInt32, comm, nullptr);
    }
  }

  std::span<PlanTime*> plans_;  ///< of one algorithm and number of ranks
  int pass_;
  straitUniqueId id_{};
  std::size_t most_bytes_ = 0;
  std::vector<std::vector<double>> times_us_;  ///< by rank and plan
  std::mutex mutex_;
  std::string error_;
};

/// Those of one communicator: one algorithm and number of ranks, of all collectives.
std::vector<std::vector<PlanTime*>> by_communicator(std::vector<PlanTime>& plans) {
  std::vector<std::vector<PlanTime*>> groups;
  for (PlanTime& plan : plans) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front()->ranks == plan.ranks && group.front()->algorithm == plan.algorithm;
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(&plan);
  }
  return groups;
}

}  // namespace

std::size_t PlanTime::count() const {
  const std::size_t blocks_in_buffer = larger_buffer_count(collective, 1, ranks);
  return std::max<std::size_t>(1, bytes / element_bytes / blocks_in_buffer);
}

PlanRequest plan_request(const PlanTime& plan, const std::string& transport, bool order_free) {
  PlanRequest request;
  request.collective = plan.collective;
  request.ranks = plan.ranks;
  request.order_free = order_free;
  request.peer_memory = transport == "loopback";  // threads reach one another's buffers
  return request;
}

ClockModel plan_clock(std::uint32_t ranks, const HostRates& rates) {
  return host_model(ranks, static_cast<std::uint32_t>(usable_cores().size()), rates);
}

Result<std::vector<PlanTime>> plans_to_time(const std::string& transport, const std::vector<std::uint32_t>& rank_counts,
                                            const std::vector<std::size_t>& sizes_bytes, const HostRates& rates) {
  std::vector<PlanTime> plans;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    for (const std::uint32_t ranks : rank_counts)
      for (const Algorithm& algorithm : catalogue())
        for (const std::size_t bytes : sizes_bytes) {
          PlanTime plan{
              .collective = collective, .ranks = ranks, .bytes = bytes, .algorithm = std::string(algorithm.name)};
          const PlanRequest request = plan_request(plan, transport, true);
          if (!algorithm.supports(request)) continue;
          STRAIT_ASSIGN(const Choice choice,
                        choose(request, DataType::int32, ReduceOp::sum, plan.count(), plan_clock(ranks, rates),
                               {.algorithm = plan.algorithm, .slice_bytes = 0, .max_slice_bytes = plan_slice_bytes}));
          plan.predicted_us = choice.predicted_us;
          plans.push_back(std::move(plan));
        }
  return plans;
}

Status time_plans(std::vector<PlanTime>& plans, const std::string& transport, int passes, int most_passes,
                  const std::function<void(int pass, std::size_t settled, std::size_t all)>& progress) {
  const ForNow through("STRAIT_TRANSPORT", transport);
  const ForNow quiet("STRAIT_DEBUG", "off");  // that most of what is forced here is slower is the point
  auto groups = by_communicator(plans);
  for (int pass = 0; pass < most_passes; ++pass) {
    std::size_t settled = 0;
    for (auto& group : groups) {
      const bool agree = std::all_of(group.begin(), group.end(),
                                     [](const PlanTime* plan) { return plan->spread() <= settled_spread; });
      if (pass >= passes && agree) {
        settled += group.size();
        continue;
      }
      const ForNow forced("STRAIT_ALGORITHM", group.front()->algorithm);
      STRAIT_TRY(Ranks(group, pass).run());
    }
    progress(pass + 1, settled, plans.size());
    if (settled == plans.size()) break;
  }
  return {};
}

}  // namespace strait::doctor
