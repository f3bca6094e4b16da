// Measures how long it takes to make communicators of GPU ranks, and how much GPU memory they keep. There is a process
// for each GPU, whose CUDA context exists before the clock starts; each try has processes of its own. Strait and NCCL
// take turns.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "perf/call.hpp"
#include "perf/nccl.hpp"
#include "perf/provenance.hpp"

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int max_ranks = 16;
constexpr std::size_t large_bytes = std::size_t{64} << 20;

struct Settings {
  std::string baseline_path;
  std::string json_path;
  int gpus = 0;
  int tries = 5;
};

/// The times that one process measures for a communicator.
struct Times {
  double init_ms;        ///< until the communicator is made
  double first_call_ms;  ///< from then until its first all-reduce, of one element, has ended
};
struct Measured {
  Times first, second;        ///< of the process's first communicator, and of another one beside it
  double first_mb, large_mb;  ///< GPU memory in use after the first call, and after one of 64 MB
  int nccl_version, driver, runtime;
  char gpu[64];
  char error[512];
  bool done;
};

/// Memory that the processes of a try share.
struct Shared {
  std::atomic<int> arrived{0};
  std::atomic<bool> failed{false};
  straitUniqueId strait_id;
  Nccl::UniqueId nccl_id;
  Measured measured[max_ranks];
};

double ms_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

/// One of the two libraries, as one process uses it.
class Library {
 public:
  virtual ~Library() = default;
  virtual Status make_id(Shared& shared) = 0;
  virtual Status join(const Shared& shared, int ranks, int rank) = 0;
  /// Enqueues a sum of floats, in place, on the communicator joined last.
  virtual Status all_reduce(void* data, std::size_t count, cudaStream_t stream) = 0;
  virtual int version() const { return 0; }
};

class StraitLibrary final : public Library {
 public:
  Status make_id(Shared& shared) override {
    return checked(straitGetUniqueId(&shared.strait_id), nullptr, "straitGetUniqueId");
  }
  Status join(const Shared& shared, int ranks, int rank) override {
    straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
    config.device = rank;
    comms_.push_back(nullptr);
    return checked(straitCommInitRank(&comms_.back(), ranks, &shared.strait_id, rank, &config), nullptr,
                   "straitCommInitRank");
  }
  Status all_reduce(void* data, std::size_t count, cudaStream_t stream) override {
    return checked(straitAllReduce(data, data, count, straitFloat32, straitSum, comms_.back(), stream), comms_.back(),
                   "straitAllReduce");
  }
  ~StraitLibrary() override {
    for (straitComm_t comm : comms_) straitCommDestroy(comm);
  }

 private:
  std::vector<straitComm_t> comms_;
};

class NcclLibrary final : public Library {
 public:
  explicit NcclLibrary(std::shared_ptr<const Nccl> nccl) : nccl_(std::move(nccl)) {}
  Status make_id(Shared& shared) override {
    STRAIT_ASSIGN(shared.nccl_id, nccl_->unique_id());
    return {};
  }
  Status join(const Shared& shared, int ranks, int rank) override {
    STRAIT_ASSIGN(Nccl::Comm comm, nccl_->join(ranks, shared.nccl_id, rank));
    comms_.push_back(comm);
    return {};
  }
  Status all_reduce(void* data, std::size_t count, cudaStream_t stream) override {
    return nccl_->call({.type = DataType::float32, .count = count, .send = data, .receive = data}, comms_.back(),
                       stream);
  }
  int version() const override { return nccl_->version(); }
  ~NcclLibrary() override {
    for (Nccl::Comm comm : comms_) nccl_->destroy(comm);
  }

 private:
  std::shared_ptr<const Nccl> nccl_;
  std::vector<Nccl::Comm> comms_;
};

Status check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return {};
  return fail(Code::cuda_error, std::string(what) + ": " + cudaGetErrorString(result));
}

/// One process of a try, which is one rank.
class Process {
 public:
  Process(Shared& shared, int ranks, int rank)
      : shared_(shared), ranks_(ranks), rank_(rank), measured_(shared.measured[rank]) {}

  Status run(const std::string& baseline_path) {
    STRAIT_TRY(prepare());
    std::unique_ptr<Library> library;
    if (baseline_path.empty()) {
      library = std::make_unique<StraitLibrary>();
    } else {
      STRAIT_ASSIGN(auto nccl, Nccl::load(baseline_path));
      library = std::make_unique<NcclLibrary>(std::move(nccl));
    }
    measured_.nccl_version = library->version();
    STRAIT_ASSIGN(const double before_mb, used_mb());
    STRAIT_ASSIGN(measured_.first, make(*library));
    STRAIT_TRY(meet());
    STRAIT_ASSIGN(const double after_mb, used_mb());
    STRAIT_TRY(library->all_reduce(data_, large_bytes / sizeof(float), stream_));
    STRAIT_TRY(check(cudaStreamSynchronize(stream_), "the large all-reduce"));
    STRAIT_TRY(meet());
    STRAIT_ASSIGN(const double large_mb, used_mb());
    measured_.first_mb = after_mb - before_mb;
    measured_.large_mb = large_mb - before_mb;
    STRAIT_ASSIGN(measured_.second, make(*library));
    return meet();  // no rank destroys what a peer still uses
  }

 private:
  Status prepare() {
    STRAIT_TRY(check(cudaSetDevice(rank_), "cannot use a GPU"));
    STRAIT_TRY(check(cudaFree(nullptr), "cannot make a context"));
    STRAIT_TRY(check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot make a stream"));
    STRAIT_TRY(check(cudaMalloc(&data_, large_bytes), "cannot allocate"));
    STRAIT_TRY(check(cudaMemsetAsync(data_, 0, large_bytes, stream_), "cannot clear"));
    STRAIT_TRY(check(cudaStreamSynchronize(stream_), "cannot clear"));
    cudaDeviceProp properties;
    STRAIT_TRY(check(cudaGetDeviceProperties(&properties, rank_), "cannot query a GPU"));
    std::string(properties.name).copy(measured_.gpu, sizeof measured_.gpu - 1);
    cudaDriverGetVersion(&measured_.driver);
    return check(cudaRuntimeGetVersion(&measured_.runtime), "cannot ask for the version of CUDA");
  }

  Result<Times> make(Library& library) {
    if (rank_ == 0) STRAIT_TRY(library.make_id(shared_));
    STRAIT_TRY(meet());
    const auto began = Clock::now();
    STRAIT_TRY(library.join(shared_, ranks_, rank_));
    const double init_ms = ms_since(began);
    STRAIT_TRY(library.all_reduce(data_, 1, stream_));
    STRAIT_TRY(check(cudaStreamSynchronize(stream_), "the first all-reduce"));
    return Times{init_ms, ms_since(began) - init_ms};
  }

  /// Waits until every process has called this.
  Status meet() {
    const int all = (shared_.arrived.fetch_add(1) / ranks_ + 1) * ranks_;
    while (shared_.arrived.load() < all) {
      if (shared_.failed) return fail(Code::remote_error, "another rank failed");
      std::this_thread::yield();
    }
    return {};
  }

  Result<double> used_mb() const {
    std::size_t free_bytes = 0, total_bytes = 0;
    STRAIT_TRY(check(cudaMemGetInfo(&free_bytes, &total_bytes), "cannot ask for free memory"));
    return static_cast<double>(total_bytes - free_bytes) / (1 << 20);
  }

  Shared& shared_;
  int ranks_, rank_;
  Measured& measured_;
  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "init_time: %s\n", why.c_str());
  std::exit(1);
}

/// Runs `body` in a child process. A process that has used CUDA must not fork, so all use of CUDA is in children.
pid_t start(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) stop("cannot fork");
  if (child == 0) _exit(body());
  return child;
}

int count_gpus() {
  const pid_t child = start([] {
    int gpus = 0;
    return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
  });
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

/// Waits for a child, for at most two minutes, and kills it if it has not ended. Returns whether it ended with status
/// 0.
bool ended_well(pid_t child) {
  for (const auto began = Clock::now(); Clock::now() - began < std::chrono::minutes(2);) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return false;
}

std::vector<Measured> run_try(int ranks, const std::string& baseline_path) {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) stop("no shared memory");
  auto* const shared = new (memory) Shared{};
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank)
    children.push_back(start([&] {
      const Status status = Process(*shared, ranks, rank).run(baseline_path);
      Measured& measured = shared->measured[rank];
      measured.done = status.has_value();
      if (status) return 0;
      shared->failed = true;
      status.error().message.copy(measured.error, sizeof measured.error - 1);
      return 1;
    }));
  std::vector<Measured> all;
  bool good = true;
  for (int rank = 0; rank < ranks; ++rank) {
    good = ended_well(children[static_cast<std::size_t>(rank)]) && good;
    all.push_back(shared->measured[rank]);
  }
  munmap(memory, sizeof(Shared));
  for (int rank = 0; !good && rank < ranks; ++rank) {
    const Measured& measured = all[static_cast<std::size_t>(rank)];
    std::fprintf(stderr, "rank %d: %s\n", rank,
                 measured.error[0] != 0 ? measured.error
                 : measured.done        ? "well"
                                        : "ended, or hung");
  }
  if (!good) stop("a try of " + (baseline_path.empty() ? std::string("Strait") : baseline_path) + " failed");
  return all;
}

/// The longest times, and the largest amounts of memory, among all ranks of a try.
struct Try {
  Times first{}, second{};
  double first_total_ms = 0, second_total_ms = 0, first_mb = 0, large_mb = 0;
};
Try worst(const std::vector<Measured>& ranks) {
  Try all;
  const auto take = [](double& most, double value) { most = std::max(most, value); };
  for (const Measured& m : ranks) {
    take(all.first.init_ms, m.first.init_ms);
    take(all.first.first_call_ms, m.first.first_call_ms);
    take(all.first_total_ms, m.first.init_ms + m.first.first_call_ms);
    take(all.second.init_ms, m.second.init_ms);
    take(all.second.first_call_ms, m.second.first_call_ms);
    take(all.second_total_ms, m.second.init_ms + m.second.first_call_ms);
    take(all.first_mb, m.first_mb);
    take(all.large_mb, m.large_mb);
  }
  return all;
}

nlohmann::ordered_json summary(const std::vector<Try>& tries, const char* library) {
  nlohmann::ordered_json json;
  const auto add = [&](const char* name, const auto& of) {
    std::vector<double> values;
    for (const Try& each : tries) values.push_back(of(each));
    std::sort(values.begin(), values.end());
    const double median = values[values.size() / 2];
    std::printf("%-7s %-34s %9.1f  (%.1f to %.1f)\n", library, name, median, values.front(), values.back());
    json[name] = {{"median", median}, {"min", values.front()}, {"max", values.back()}};
  };
  add("init_ms", [](const Try& t) { return t.first.init_ms; });
  add("first_call_ms", [](const Try& t) { return t.first.first_call_ms; });
  add("init_and_first_call_ms", [](const Try& t) { return t.first_total_ms; });
  add("next_init_ms", [](const Try& t) { return t.second.init_ms; });
  add("next_first_call_ms", [](const Try& t) { return t.second.first_call_ms; });
  add("next_init_and_first_call_ms", [](const Try& t) { return t.second_total_ms; });
  add("gpu_memory_mb", [](const Try& t) { return t.first_mb; });
  add("gpu_memory_after_64_mb_call_mb", [](const Try& t) { return t.large_mb; });
  return json;
}

int run(int argc, char** argv) {
  Settings s;
  CLI::App app("Time and GPU memory of making communicators, a process a GPU");
  app.add_option("--baseline", s.baseline_path, "libnccl.so.2 to compare with");
  app.add_option("--json", s.json_path, "where to write the results");
  app.add_option("-g,--gpus", s.gpus, "0: all")->check(CLI::Range(0, max_ranks));
  app.add_option("--tries", s.tries)->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  const int gpus = s.gpus > 0 ? s.gpus : std::min(count_gpus(), max_ranks);
  if (gpus == 0) stop("no GPU here");
  setenv("NCCL_NVLS_ENABLE", "0", 0);  // NVLink multicast only if the user enables it
  std::vector<Try> strait_tries, nccl_tries;
  Measured about{};
  int nccl_version = 0;
  for (int i = 0; i < s.tries; ++i) {
    const std::vector<Measured> ranks = run_try(gpus, "");
    about = ranks.front();
    strait_tries.push_back(worst(ranks));
    if (s.baseline_path.empty()) continue;
    const std::vector<Measured> baseline = run_try(gpus, s.baseline_path);
    nccl_version = baseline.front().nccl_version;
    nccl_tries.push_back(worst(baseline));
  }
  std::printf("# %d x %s, a process each, median of %d tries (least to most), slowest rank\n", gpus, about.gpu,
              s.tries);
  nlohmann::ordered_json report = {{"program", "init_time"},
                                   {"provenance", provenance()},
                                   {"gpu", about.gpu},
                                   {"gpus", gpus},
                                   {"cuda_driver", about.driver},
                                   {"cuda_runtime", about.runtime},
                                   {"nccl_version", nccl_version},
                                   {"tries", s.tries}};
  report["strait"] = summary(strait_tries, "Strait");
  if (!nccl_tries.empty()) report["nccl"] = summary(nccl_tries, "NCCL");
  if (!s.json_path.empty()) std::ofstream(s.json_path) << report.dump(1) << '\n';
  return 0;
}

}  // namespace
}  // namespace strait::perf

int main(int argc, char** argv) { return strait::perf::run(argc, argv); }
