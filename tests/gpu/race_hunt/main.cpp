// Hunts for races: calls of all kinds, sizes and types at random moments, eager and in graphs, on all GPUs; each result
// is compared bit by bit on the GPU. All choices follow from --seed and the number of the batch.
#include <CLI/CLI.hpp>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "gpu/race_hunt/rank.hpp"
#include "perf/call.hpp"
#include "perf/options.hpp"
#include "perf/provenance.hpp"
#include "words.hpp"

namespace strait::race {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int skipped_status = 77;
constexpr std::uint64_t batches_between_meetings = 8;

struct Settings {
  std::uint64_t calls = 0;  ///< 0: as many as the time allows
  double seconds = 0;
  std::uint64_t seed = 1;
  std::uint64_t first_batch = 0;
  int ranks = 0;
  std::uint32_t streams = 3;
  std::string max_bytes = "1M";
  bool no_waits = false;
  std::string json_path;
};

[[noreturn]] void stop(const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "race_hunt: %s\n", why.c_str());
  std::_Exit(2);  // other ranks may be inside calls, so destructors must not run
}
[[noreturn]] void skip(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  std::fflush(stdout);
  std::_Exit(skipped_status);
}
template <class T>
T good(Result<T> result) {
  if (!result) stop(result.error().message);
  return std::move(*result);
}
void good(const Status& status) {
  if (!status) stop(status.error().message);
}

class Hunt {
 public:
  explicit Hunt(Settings settings) : settings_(std::move(settings)) {}

  int run() {
    if (cudaGetDeviceCount(&gpus_) != cudaSuccess || gpus_ == 0) skip("no GPU here");
    limits_.ranks = static_cast<std::uint32_t>(settings_.ranks > 0 ? settings_.ranks : std::max(gpus_, 2));
    limits_.streams = settings_.streams;
    // To launch a graph that is still running, the driver waits for it and locks the GPU's context, so a rank that
    // shares the GPU could never launch what the graph waits for.
    limits_.graphs = gpus_ >= static_cast<int>(limits_.ranks);
    if (!limits_.graphs) std::printf("# ranks share a GPU: no graphs\n");
    limits_.max_bytes = good(tools::parse_size(settings_.max_bytes));
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("# %u ranks on %d GPUs, seed %llu, from batch %llu on\n", limits_.ranks, gpus_,
                static_cast<unsigned long long>(settings_.seed),
                static_cast<unsigned long long>(settings_.first_batch));
    host_tables_ = std::make_unique<HostTables>(limits_, settings_.seed, named_islands());
    for (int gpu = 0; gpu < std::min(gpus_, static_cast<int>(limits_.ranks)); ++gpu)
      tables_.push_back(good(DeviceTables::upload(*host_tables_, gpu)));
    findings_.resize(limits_.ranks);
    straitUniqueId id;
    good(perf::checked(straitGetUniqueId(&id), nullptr, "straitGetUniqueId"));
    hunting_began_ = Clock::now();
    std::latch prepared(static_cast<std::ptrdiff_t>(limits_.ranks));
    std::barrier meeting(static_cast<std::ptrdiff_t>(limits_.ranks), [this]() noexcept { look(); });
    {
      std::vector<std::jthread> threads;
      for (std::uint32_t rank = 0; rank < limits_.ranks; ++rank)
        threads.emplace_back([&, rank] { hunt(id, rank, prepared, meeting); });
    }
    return conclude();
  }

 private:
  /// Returns the islands that STRAIT_P2P names, which change the order of sums.
  std::vector<Island> named_islands() const {
    const char* text = std::getenv("STRAIT_P2P");
    const P2pSetting setting = good(parse_p2p(text == nullptr ? "auto" : text));
    good(check_ranks(setting, limits_.ranks));
    if (setting.groups.empty()) return {};
    auto islands = islands_of(allowed_reach(setting, limits_.ranks));
    return islands.size() > 1 ? islands : std::vector<Island>();
  }

  template <class Meeting>
  void hunt(const straitUniqueId& id, std::uint32_t rank, std::latch& prepared, Meeting& meeting) {
    const int device = static_cast<int>(rank) % gpus_;
    good(cuda::check(cudaSetDevice(device), "cannot use a GPU"));
    straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
    config.device = device;
    config.timeout_ms = 30'000;
    if (gpus_ < static_cast<int>(limits_.ranks)) config.max_sms = 8;  // all ranks of a GPU must run at the same time
    straitComm_t comm = nullptr;
    good(perf::checked(straitCommInitRank(&comm, static_cast<int>(limits_.ranks), &id, static_cast<int>(rank), &config),
                       nullptr, "straitCommInitRank"));
    if (rank == 0) {
      const char* transport = "";
      straitCommGetTransport(comm, &transport, nullptr);
      transport_ = transport;
      if (!named_islands().empty() && transport_ == "host_staged") skip("no GPUs reach each other as STRAIT_P2P says");
      if (named_islands().empty() && transport_ == "islands")
        stop("name all islands in STRAIT_P2P, to hunt among them");
    }
    {
      Rank hunter({device, rank, settings_.seed, limits_, !settings_.no_waits}, comm,
                  tables_[static_cast<std::size_t>(device)]);
      good(hunter.prepare());
      prepared.arrive_and_wait();  // allocating waits for kernels on the GPU, which may wait for another rank on it
      std::uint64_t call = 0;
      for (std::uint64_t batch = settings_.first_batch; !done_; ++batch) {
        const Batch what = make_batch(settings_.seed, batch, limits_);
        good(hunter.run(what, batch, call));
        call += what.calls();
        if (rank == 0) count(what);
        if ((batch + 1) % batches_between_meetings != 0) continue;
        good(hunter.finish());
        findings_[rank] = hunter.finding();
        meeting.arrive_and_wait();
      }
      checked_ += hunter.checked_elements();
      good(perf::checked(straitCommDestroy(comm), nullptr, "straitCommDestroy"));  // before its streams are destroyed
    }
  }

  /// Updates the statistics; called by rank 0.
  void count(const Batch& batch) {
    const auto add = [&](const std::vector<Step>& steps, std::uint64_t times) {
      for (const Step& step : steps) {
        groups_ += step.calls.size() > 1 ? times : 0;
        for (const HuntedCall& call : step.calls) {
          by_collective_[std::string(name(call.operation.collective))] += times;
          in_place_ += call.operation.in_place ? times : 0;
        }
      }
    };
    add(batch.captured, batch.launches.size());
    add(batch.eager, 1);
    graph_launches_ += batch.launches.size();
    in_graphs_ += batch.calls();
    for (const Step& step : batch.eager) in_graphs_ -= step.calls.size();
    calls_ += batch.calls();
    ++batches_;
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - hunting_began_).count(); }

  /// Decides whether to stop, and prints progress. Called while all ranks wait in a meeting.
  void look() {
    for (const Finding& finding : findings_)
      if (finding.wrong != 0) done_ = true;
    if (settings_.calls != 0 && calls_ >= settings_.calls) done_ = true;
    if (settings_.seconds > 0 && elapsed_s() >= settings_.seconds) done_ = true;
    if (elapsed_s() - told_s_ < 5 && !done_) return;
    told_s_ = elapsed_s();
    std::printf("%7.1f s  %10llu calls, %6.2f us each; next is batch %llu\n", told_s_, calls_,
                told_s_ * 1e6 / static_cast<double>(calls_),
                static_cast<unsigned long long>(settings_.first_batch + batches_));
  }

  /// Finds the batch and the call that have the finding's number, and prints them.
  void describe_finding(std::uint32_t rank, const Finding& finding) const {
    std::uint64_t first = 0;
    for (std::uint64_t number = settings_.first_batch;; ++number) {
      const Batch batch = make_batch(settings_.seed, number, limits_);
      if (finding.call >= first + batch.calls()) {
        first += batch.calls();
        continue;
      }
      std::vector<HuntedCall> calls;
      for (const auto* steps : {&batch.captured, &batch.eager})
        for (const Step& step : *steps) calls.insert(calls.end(), step.calls.begin(), step.calls.end());
      HuntedCall call = calls.at(finding.call - first);
      call.operation.rank = rank;
      std::printf(
          "WRONG on rank %u: %llu elements; first seen in batch %llu, %s: element %llu of its memory, behind a guard "
          "of %zu, is 0x%llx and should be 0x%llx\n",
          rank, finding.wrong, static_cast<unsigned long long>(number), describe(call).c_str(), finding.element,
          perf::guard_elements, finding.got, finding.expected);
      const std::uint64_t from = number / batches_between_meetings * batches_between_meetings;
      std::printf("again: --seed %llu --first-batch %llu --calls 1 --ranks %u --streams %u --maxbytes %s\n",
                  static_cast<unsigned long long>(settings_.seed), static_cast<unsigned long long>(from), limits_.ranks,
                  limits_.streams, settings_.max_bytes.c_str());
      return;
    }
  }

  int conclude() {
    unsigned long long wrong = 0;
    for (std::uint32_t rank = 0; rank < limits_.ranks; ++rank) {
      if (findings_[rank].wrong != 0) describe_finding(rank, findings_[rank]);
      wrong += findings_[rank].wrong;
    }
    bool intact = true;
    for (const DeviceTables& tables : tables_) intact = good(tables.is_intact(*host_tables_)) && intact;
    if (!intact) std::printf("WRONG: an input was changed\n");
    std::printf(
        "%llu calls (%llu in graphs, %llu in place, %llu groups) through %s, %llu elements checked, %llu wrong\n",
        calls_, in_graphs_, in_place_, groups_, transport_.c_str(), checked_.load(), wrong);
    if (!settings_.json_path.empty()) write_json(wrong, intact);
    return wrong == 0 && intact ? 0 : 1;
  }

  void write_json(unsigned long long wrong, bool intact) const {
    cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    good(cuda::check(cudaGetDeviceProperties(&properties, 0), "cannot query a GPU"));
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const nlohmann::ordered_json report = {{"program", "race_hunt"},
                                           {"provenance", perf::provenance()},
                                           {"gpu", properties.name},
                                           {"gpus", gpus_},
                                           {"cuda_driver", driver},
                                           {"cuda_runtime", runtime},
                                           {"ranks", limits_.ranks},
                                           {"streams", limits_.streams},
                                           {"max_bytes", limits_.max_bytes},
                                           {"transport", transport_},
                                           {"seed", settings_.seed},
                                           {"first_batch", settings_.first_batch},
                                           {"batches", batches_},
                                           {"seconds", elapsed_s()},
                                           {"calls", calls_},
                                           {"calls_in_graphs", in_graphs_},
                                           {"calls_in_place", in_place_},
                                           {"groups", groups_},
                                           {"graph_launches", graph_launches_},
                                           {"calls_by_collective", by_collective_},
                                           {"elements_checked", checked_.load()},
                                           {"elements_wrong", wrong},
                                           {"inputs_intact", intact}};
    std::ofstream(settings_.json_path) << report.dump(1) << '\n';
  }

  Settings settings_;
  Clock::time_point hunting_began_;
  int gpus_ = 0;
  Limits limits_;
  std::unique_ptr<HostTables> host_tables_;
  std::vector<DeviceTables> tables_;  ///< by GPU
  std::vector<Finding> findings_;     ///< by rank
  std::atomic<bool> done_ = false;
  std::atomic<unsigned long long> checked_ = 0;  ///< elements checked by all ranks
  double told_s_ = 0;
  std::string transport_;
  unsigned long long calls_ = 0, in_graphs_ = 0, in_place_ = 0, groups_ = 0, graph_launches_ = 0, batches_ = 0;
  std::map<std::string, unsigned long long> by_collective_;
};

int run(int argc, char** argv) {
  Settings s;
  CLI::App app("Hunts for races between GPU ranks: many calls of all kinds, each checked bit by bit");
  app.add_option("--calls", s.calls, "end after so many");
  app.add_option("--seconds", s.seconds, "end after so long");
  app.add_option("--seed", s.seed, "decides what is called");
  app.add_option("--first-batch", s.first_batch, "go on from this batch of calls, rounded down to a multiple of 8");
  app.add_option("--ranks", s.ranks, "threads; 0: one a GPU, and two at least")->check(CLI::Range(0, 16));
  app.add_option("--streams", s.streams, "of each rank")->check(CLI::Range(1, 16));
  app.add_option("--maxbytes", s.max_bytes, "of a call's buffer");
  app.add_flag("--no-waits", s.no_waits, "no rank is late on purpose");
  app.add_option("--json", s.json_path, "where to write what was done");
  CLI11_PARSE(app, argc, argv);
  if (s.calls == 0 && s.seconds == 0) s.seconds = 30;
  s.first_batch = s.first_batch / batches_between_meetings * batches_between_meetings;
  // A kernel that is loaded at its first launch would wait for kernels that wait for it, and so would a kernel whose
  // stream shares a hardware queue with theirs.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return Hunt(std::move(s)).run();
}

}  // namespace
}  // namespace strait::race

int main(int argc, char** argv) { return strait::race::run(argc, argv); }
