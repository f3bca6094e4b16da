#include "perf/session.hpp"

#include <fmt/core.h>
#include <strait/strait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/environment.hpp"
#include "base/host_name.hpp"
#include "exit_code.hpp"
#include "files.hpp"
#include "owned_comm.hpp"
#include "perf/bookkeeping.hpp"
#include "perf/call.hpp"
#include "perf/gpu.hpp"
#include "perf/rank_run.hpp"
#include "perf/reporter.hpp"
#include "perf/shared_options.hpp"
#include "safe_print.hpp"
#include "select/calibration.hpp"

namespace strait::perf {
namespace {

/// This process among those of the launcher (or alone), and how many ranks it has.
struct Process {
  tools::OwnedComm comm;  ///< one rank a process
  int index = 0;
  int count = 1;
  int threads = 1;
  std::shared_ptr<topo::CudaDriver> driver;  ///< held, so that it is not loaded again for each rank
  int gpus = 0;                              ///< that it sees; 0: not asked for
  int first_gpu = 0;                         ///< of its threads: the next has the next
};

/// The processes of lower index on this host: each takes the GPUs after theirs.
Result<int> processes_before(const Process& process) {
  std::array<char, 64> name{};
  host_name().copy(name.data(), name.size() - 1);
  std::vector<std::array<char, 64>> names(static_cast<std::size_t>(process.count));
  straitComm_t comm = process.comm.get();
  STRAIT_TRY(all_gather(comm, name.data(), names.data(), name.size(), "Learning which processes share this host"));
  return static_cast<int>(std::count(names.begin(), names.begin() + process.index, name));
}

/// A process that sees fewer GPUs than the host has (CUDA_VISIBLE_DEVICES) starts again from its first.
Status find_gpus(Process& process) {
  STRAIT_ASSIGN(const int before, processes_before(process));
  auto driver = topo::CudaDriver::open();
  if (!driver) return fail(driver.error().code, "--ngpus: " + driver.error().message + ". Host ranks need none: -g 0");
  process.driver = std::move(*driver);
  process.gpus = process.driver->gpus();
  const char* shares = nullptr;
  STRAIT_TRY(checked(straitGetSetting("STRAIT_SHARE_GPUS", &shares), nullptr, "straitGetSetting"));
  if (process.threads > process.gpus && std::string_view(shares) != "1")
    return fail(
        Code::unsupported,
        fmt::format("{} GPU ranks were asked for in this process, and it sees {} GPU{}. Lower -t times -g, look "
                    "at CUDA_VISIBLE_DEVICES, or have ranks share GPUs with STRAIT_SHARE_GPUS=1",
                    process.threads, process.gpus, process.gpus == 1 ? "" : "s"));
  process.first_gpu = before * process.threads % process.gpus;
  return {};
}

Result<Process> join_processes(const Options& options) {
  Process process;
  straitComm_t comm = nullptr;
  STRAIT_TRY(checked(straitCommInitEnv(&comm, nullptr), nullptr, "straitCommInitEnv"));
  process.comm.reset(comm);
  STRAIT_TRY(checked(straitCommUserRank(comm, &process.index), comm, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(comm, &process.count), comm, "straitCommCount"));
  const int cores = std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  const bool one = process.count > 1 || options.gpus > 0;
  process.threads = options.threads > 0 ? options.threads : one ? 1 : cores;
  if (options.gpus > 0) process.threads *= options.gpus;
  return process;
}

/// Compares this process's options with those of process 0, and returns whether they are equal in all processes. Where
/// they are not, the first process that differs says how.
Result<bool> have_equal_options(const Options& options, const Process& process) {
  const char* what = "Comparing the processes' options";
  straitComm_t comm = process.comm.get();
  const std::string mine = shared_options(options, process.threads / std::max(options.gpus, 1));
  std::string first = mine;
  std::uint64_t length = first.size();
  STRAIT_TRY(broadcast(comm, &length, sizeof length, what));
  first.resize(length);
  STRAIT_TRY(broadcast(comm, first.data(), first.size(), what));
  const std::string difference = difference_to_first(mine, first);
  const std::uint8_t differs = difference.empty() ? 0 : 1;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(process.count));
  STRAIT_TRY(all_gather(comm, &differs, all.data(), sizeof differs, what));
  const auto first_different = std::find(all.begin(), all.end(), 1) - all.begin();
  if (first_different == process.count) return true;
  if (first_different == process.index)
    tools::print(stderr, "strait perf: process {} on {}: {}\n", process.index, host_name(), difference);
  straitBarrier(comm, nullptr);  // a launcher ends the job when a process has ended: not before that is said
  return false;
}

/// The ticket for all threads of all processes, from process 0.
Result<straitUniqueId> share_ticket(const Process& process) {
  straitUniqueId id{};
  straitComm_t comm = process.comm.get();
  if (process.index == 0) STRAIT_TRY(checked(straitGetUniqueId(&id), comm, "straitGetUniqueId"));
  STRAIT_TRY(broadcast(comm, &id, sizeof id, "Passing on the ticket for all ranks"));
  return id;
}

/// What ranks say of the same: each of its own device.
std::string without_numbers(std::string message) {
  std::erase_if(message, [](char letter) { return letter >= '0' && letter <= '9'; });
  return message;
}

void say(const Error& error) { tools::print(stderr, "strait perf: {}\n", error.message); }

/// What the threads of this process have in common.
class Session {
 public:
  Session(const Options& options, Reporter* reporter, const Process& process)
      : options_(options), reporter_(reporter), process_(process) {}

  void measure(straitComm_t comm, int thread) {
    std::unique_ptr<Gpu> gpu;
    if (process_.gpus > 0) {
      auto opened = Gpu::open(comm, (process_.first_gpu + thread) % process_.gpus, 0, options_.wire);
      if (!opened) {
        report(opened.error());
        straitCommAbort(comm);
        return;
      }
      gpu = std::move(*opened);
    }
    RankRun rank_run(options_, comm, gpu.get(), thread == 0 ? reporter_ : nullptr, process_.threads);
    if (auto status = rank_run.run(); !status) report(status.error());
    if (rank_run.wrong() != 0) failed_ = true;
  }

  void join_and_measure(const straitUniqueId& id, int rank, int ranks, int thread) {
    straitComm_t comm = nullptr;
    if (auto status = checked(straitCommInitRank(&comm, ranks, &id, rank, nullptr), nullptr, "straitCommInitRank");
        !status)
      return report(status.error());
    const tools::OwnedComm owner(comm);
    measure(comm, thread);
  }

  /// What several ranks have to say alike is said once.
  void report(const Error& error) {
    failed_ = true;
    const std::lock_guard lock(mutex_);
    if (error.code == Code::aborted && !said_.empty()) return;  // the consequence of what was said already
    if (said_.insert(without_numbers(error.message)).second) say(error);
  }

  bool failed() const { return failed_; }  ///< an error, or wrong elements
  /// An error: the results are not complete. Once the ranks have ended.
  bool broken() const { return !said_.empty(); }

 private:
  const Options& options_;
  Reporter* reporter_;
  const Process& process_;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::set<std::string> said_;  ///< messages, without numbers
};

Status run_threads(const Process& process, Session& session) {
  STRAIT_ASSIGN(const straitUniqueId id, share_ticket(process));
  std::vector<std::jthread> threads;
  for (int t = 0; t < process.threads; ++t)
    threads.emplace_back([&, t] {
      session.join_and_measure(id, process.index * process.threads + t, process.count * process.threads, t);
    });
  return {};
}

/// What is measured is compared with NCCL, which goes without P2P then. A setting of Strait's own comes first.
void heed_nccl_p2p_disable() {
  const char* disabled = std::getenv("NCCL_P2P_DISABLE");
  if (disabled != nullptr && std::atoi(disabled) != 0) setenv("STRAIT_P2P", "off", 0);
}

/// Only the process that reports may have the folders.
Status check_files(const Options& options, const Process& process) {
  if (process.index != 0) return {};
  for (const std::string& path : {options.json_path, options.plot_path})
    if (!path.empty()) STRAIT_TRY(tools::check_writable(path));
  return {};
}

/// A variable that is not accepted has nothing to do with a launcher.
Result<Process> start(const Options& options) {
  STRAIT_TRY(Environment().validate());
  return join_processes(options);
}

/// What can be known before any rank starts.
Status prepare(const Options& options, Process& process) {
  const int ranks = process.count * process.threads;
  if (options.root >= ranks)
    return fail(Code::invalid_argument,
                fmt::format("--root {} is not a rank: there {} {}", options.root, ranks == 1 ? "is" : "are", ranks));
  if (options.gpus > 0) STRAIT_TRY(find_gpus(process));
  return check_files(options, process);
}

}  // namespace

int run(const Options& options) {
  heed_nccl_p2p_disable();
  auto process = start(options);
  if (!process) {
    say(process.error());
    return tools::failed;
  }
  // First of all: where options differ, what the processes tell one another later does not fit together.
  const auto have_equal = have_equal_options(options, *process);
  if (!have_equal) {
    say(have_equal.error());
    return tools::failed;
  }
  if (!*have_equal) return tools::usage_error;
  const Status ready = prepare(options, *process);
  if (!all_go_on(process->comm.get(), ready, say))
    return !ready && ready.error().code == Code::invalid_argument ? tools::usage_error : tools::failed;
  int version = 0;
  straitGetVersion(&version);
  std::unique_ptr<Reporter> reporter;
  if (process->index == 0) {
    reporter = std::make_unique<Reporter>(options, version);
    if (const KnownRates known = known_rates(Environment()); !known.calibrated && options.gpus == 0)
      tools::print(stderr, "# Algorithms are chosen by {}\n", known.source);
    if (options.gpus > 1)
      reporter->remark(
          fmt::format("-g {}: each GPU has a thread of its own, {} in a process", options.gpus, process->threads));
  }
  Session session(options, reporter.get(), *process);
  if (process->threads == 1)
    session.measure(process->comm.get(), 0);
  else if (auto status = run_threads(*process, session); !status)
    session.report(status.error());
  if (reporter != nullptr && !session.broken())
    if (auto status = reporter->finish(); !status) session.report(status.error());
  return session.failed() ? tools::failed : 0;
}

}  // namespace strait::perf
