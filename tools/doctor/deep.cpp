#include "doctor/deep.hpp"

#include <fmt/format.h>
#include <strait/strait.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "doctor/judge.hpp"
#include "doctor/team.hpp"

namespace strait::doctor {
namespace {

constexpr std::size_t count = 1 << 20;  // number of elements of a collective
constexpr int rounds = 40;

struct Report {
  std::mutex mutex;
  std::string failure;
  std::atomic<std::uint64_t> wrong{0};
  std::vector<double> own_us;  ///< by rank: time of its own work, which waits for nobody
};

/// Does work that depends on no other rank, and returns its time. It shows cores that are slow or that others use.
double work_us(std::vector<float>& values, int rank, int round) {
  const double began = now_us();
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i + static_cast<std::size_t>(rank + round)) % 64);
  return now_us() - began;
}

std::uint64_t wrong_sums(const std::vector<float>& sums, int ranks, int round) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float expected = 0;  // whole numbers, so sums are exact in any order
    for (int rank = 0; rank < ranks; ++rank)
      expected += static_cast<float>((i + static_cast<std::size_t>(rank + round)) % 64);
    wrong += sums[i] == expected ? 0 : 1;
  }
  return wrong;
}

void run_rank(const straitUniqueId& id, int rank, int ranks, Report& report) {
  straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
  config.init_timeout_ms = config.timeout_ms = 30'000;
  straitComm_t comm = nullptr;
  straitResult_t result = straitCommInitRank(&comm, ranks, &id, rank, &config);
  std::vector<float> values(count), sums(count);
  std::vector<double> times;
  for (int round = 0; round < rounds && result == straitSuccess; ++round) {
    times.push_back(work_us(values, rank, round));
    result = straitAllReduce(values.data(), sums.data(), count, straitFloat32, straitSum, comm, nullptr);
    if (result == straitSuccess && round % 4 == 0) report.wrong += wrong_sums(sums, ranks, round);
  }
  {
    const std::lock_guard lock(report.mutex);
    if (result != straitSuccess && report.failure.empty()) report.failure = straitGetLastError(comm);
    if (!times.empty()) report.own_us[static_cast<std::size_t>(rank)] = quick_quarter(times);
  }
  straitCommDestroy(comm);
}

}  // namespace

Findings check_under_load() {
  std::vector<int> cores = usable_cores();
  if (cores.size() < 2) cores.push_back(cores.front());
  constexpr std::size_t most_ranks = 64;
  cores.resize(std::min(cores.size(), most_ranks));
  const int ranks = static_cast<int>(cores.size());
  Report report;
  report.own_us.resize(cores.size());
  straitUniqueId id;
  if (straitGetUniqueId(&id) != straitSuccess)
    return {{Severity::error, "deep", std::string("ranks cannot meet: ") + straitGetLastError(nullptr), "nothing runs",
             "see the message"}};
  Team(cores).run([&](int rank) { run_rank(id, rank, ranks, report); });

  Findings found;
  if (!report.failure.empty())
    found.push_back({Severity::error, "deep", report.failure, "collectives fail", "see the message"});
  if (report.wrong > 0)
    found.push_back({Severity::error, "deep", fmt::format("{} elements of sums are wrong", report.wrong.load()),
                     "results cannot be trusted", "test the memory (memtest86+), and report it if that finds nothing"});
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < cores.size(); ++rank)
    names.push_back(fmt::format("rank {} on core {}", rank, cores[rank]));
  const Findings slow =
      judge_work("slow_rank", names, report.own_us, "look at what else runs on that core, and at its clock");
  found.insert(found.end(), slow.begin(), slow.end());
  if (found.empty())
    found.push_back({Severity::ok, "deep",
                     fmt::format("{} verified all-reduces on {} ranks; no rank is slow", rounds, ranks), "", ""});
  return found;
}

}  // namespace strait::doctor
