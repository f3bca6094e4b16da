// Strait's GPU ranks and NCCL in turn: one process, a thread a GPU, the same buffers and streams, eager and as CUDA
// graphs. Prints a table of times and ratios.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "perf/options.hpp"
#include "perf/provenance.hpp"
#include "strait/strait.h"

namespace strait::perf {
namespace {

struct Settings {
  std::string baseline_path;
  std::string json_path;
  std::vector<std::string> collectives = {"all-reduce", "all-gather", "reduce-scatter",
                                          "all-to-all", "broadcast",  "reduce"};
  std::string min_bytes = "1K", max_bytes = "256M";
  std::size_t factor = 4;
  std::size_t odd_elements = 0;  ///< added to every size
  std::string type = "bfloat16";
  int gpus = 0;
  int rounds = 3;
  int max_sms = 0;
  bool in_place = false;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "gpu_vs_nccl: %s\n", why.c_str());
  std::_Exit(1);
}
void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) stop(std::string(what) + ": " + cudaGetErrorString(result));
}
void check(straitResult_t result) {
  if (result != straitSuccess) stop(straitGetLastError(nullptr));
}

/// What the baseline exports, by its public names. Values of types and operations are the same as Strait's.
class Nccl {
 public:
  void load(const std::string& path) {
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) stop(dlerror());
    find(init_all, "ncclCommInitAll");
    find(all_reduce, "ncclAllReduce");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    find(broadcast, "ncclBroadcast");
    find(reduce, "ncclReduce");
    find(send, "ncclSend");
    find(recv, "ncclRecv");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(get_version, "ncclGetVersion");
    all_to_all = reinterpret_cast<decltype(all_to_all)>(dlsym(library_, "ncclAlltoAll"));
  }
  static void check(int result) {
    if (result != 0) stop("the baseline failed with result " + std::to_string(result));
  }

  using Comm = void*;
  int (*init_all)(Comm*, int, const int*);
  int (*get_version)(int*);
  int (*all_reduce)(const void*, void*, std::size_t, int, int, Comm, cudaStream_t);
  int (*all_gather)(const void*, void*, std::size_t, int, Comm, cudaStream_t);
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, Comm, cudaStream_t);
  int (*broadcast)(const void*, void*, std::size_t, int, int, Comm, cudaStream_t);
  int (*reduce)(const void*, void*, std::size_t, int, int, int, Comm, cudaStream_t);
  int (*all_to_all)(const void*, void*, std::size_t, int, Comm, cudaStream_t);
  int (*send)(const void*, std::size_t, int, int, Comm, cudaStream_t);
  int (*recv)(void*, std::size_t, int, int, Comm, cudaStream_t);
  int (*group_start)();
  int (*group_end)();

 private:
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (function == nullptr) stop(std::string("the baseline lacks ") + name);
  }
  void* library_ = nullptr;
};

struct Rank {
  int rank = 0;
  cudaStream_t stream = nullptr;
  char *send = nullptr, *receive = nullptr;
  straitComm_t strait = nullptr;
  Nccl::Comm nccl = nullptr;
};

/// Times in microseconds of one size.
struct Row {
  std::string collective;
  std::size_t bytes = 0;
  double strait_eager = 0, nccl_eager = 0, strait_graph = 0, nccl_graph = 0;
  double strait_host = 0, nccl_host = 0;  ///< of an eager call, until it returns
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Comparison {
 public:
  explicit Comparison(Settings settings) : settings_(std::move(settings)) {}

  int run() {
    int devices = 0;
    check(cudaGetDeviceCount(&devices), "no GPU");
    ranks_ = settings_.gpus > 0 ? settings_.gpus : devices;
    if (ranks_ > devices) stop("fewer GPUs here than --gpus");
    min_bytes_ = parse_bytes(settings_.min_bytes).value();
    max_bytes_ = parse_bytes(settings_.max_bytes).value();
    type_ = parse_types(settings_.type).value().front();
    setup();
    std::printf("# %d GPUs, %s, NCCL %d; times in us, out of place%s\n", ranks_, settings_.type.c_str(), nccl_version_,
                settings_.in_place ? " (in place)" : "");
    std::printf("%-15s %12s %9s %9s %7s %9s %9s %7s\n", "", "bytes", "eager", "NCCL", "ratio", "graph", "NCCL",
                "ratio");
    std::barrier<> barrier(ranks_);
    std::vector<std::jthread> threads;
    elapsed_.resize(static_cast<std::size_t>(ranks_));
    for (Rank& rank : all_) threads.emplace_back([&] { measure_all(rank, barrier); });
    threads.clear();
    summarise();
    for (Rank& rank : all_) straitCommDestroy(rank.strait);
    return 0;
  }

 private:
  void setup() {
    all_.resize(static_cast<std::size_t>(ranks_));
    straitUniqueId id;
    check(straitGetUniqueId(&id));
    check(straitGroupStart());
    for (int r = 0; r < ranks_; ++r) {
      Rank& rank = all_[static_cast<std::size_t>(r)];
      rank.rank = r;
      straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
      config.device = r;
      config.max_sms = settings_.max_sms;
      check(straitCommInitRank(&rank.strait, ranks_, &id, r, &config));
      check(cudaSetDevice(r), "cudaSetDevice");
      check(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), "a stream");
      const std::size_t size = max_bytes_ + 8 * (settings_.odd_elements + 64) * static_cast<std::size_t>(ranks_);
      check(cudaMalloc(&rank.send, size), "memory");
      check(cudaMalloc(&rank.receive, size), "memory");
      check(cudaMemset(rank.send, 0x11, size), "memset");
      check(cudaMemset(rank.receive, 0x22, size), "memset");
      check(cudaDeviceSynchronize(), "memset");
    }
    check(straitGroupEnd());
    if (settings_.baseline_path.empty()) return;
    nccl_.load(settings_.baseline_path);
    std::vector<Nccl::Comm> comms(all_.size());
    std::vector<int> devices(all_.size());
    for (int r = 0; r < ranks_; ++r) devices[static_cast<std::size_t>(r)] = r;
    Nccl::check(nccl_.init_all(comms.data(), ranks_, devices.data()));
    nccl_.get_version(&nccl_version_);
    for (std::size_t r = 0; r < all_.size(); ++r) all_[r].nccl = comms[r];
  }

  void call_strait(const Rank& r, Collective c, std::size_t bytes) const {
    const auto type = static_cast<straitDataType_t>(type_);
    const std::size_t count = bytes / size_bytes(type_), block = count / static_cast<std::size_t>(ranks_);
    char* const in = settings_.in_place ? r.receive : r.send;
    const std::size_t own = settings_.in_place ? block * static_cast<std::size_t>(r.rank) * size_bytes(type_) : 0;
    switch (c) {
      case Collective::all_reduce:
        return check(straitAllReduce(in, r.receive, count, type, straitSum, r.strait, r.stream));
      case Collective::all_gather:
        return check(straitAllGather(in + own, r.receive, block, type, r.strait, r.stream));
      case Collective::reduce_scatter:
        return check(straitReduceScatter(in, r.receive + own, block, type, straitSum, r.strait, r.stream));
      case Collective::all_to_all:
        return check(straitAllToAll(r.send, r.receive, block, type, r.strait, r.stream));
      case Collective::broadcast:
        return check(straitBroadcast(in, r.receive, count, type, 0, r.strait, r.stream));
      case Collective::reduce:
        return check(straitReduce(in, r.receive, count, type, straitSum, 0, r.strait, r.stream));
      default:
        check(straitGroupStart());
        check(straitSend(r.send, count, type, (r.rank + 1) % ranks_, r.strait, r.stream));
        check(straitRecv(r.receive, count, type, (r.rank + ranks_ - 1) % ranks_, r.strait, r.stream));
        return check(straitGroupEnd());
    }
  }
  void call_nccl(const Rank& r, Collective c, std::size_t bytes) const {
    const int type = static_cast<int>(type_), sum = 0;
    const std::size_t count = bytes / size_bytes(type_), block = count / static_cast<std::size_t>(ranks_);
    char* const in = settings_.in_place ? r.receive : r.send;
    const std::size_t own = settings_.in_place ? block * static_cast<std::size_t>(r.rank) * size_bytes(type_) : 0;
    switch (c) {
      case Collective::all_reduce:
        return Nccl::check(nccl_.all_reduce(in, r.receive, count, type, sum, r.nccl, r.stream));
      case Collective::all_gather:
        return Nccl::check(nccl_.all_gather(in + own, r.receive, block, type, r.nccl, r.stream));
      case Collective::reduce_scatter:
        return Nccl::check(nccl_.reduce_scatter(in, r.receive + own, block, type, sum, r.nccl, r.stream));
      case Collective::broadcast:
        return Nccl::check(nccl_.broadcast(in, r.receive, count, type, 0, r.nccl, r.stream));
      case Collective::reduce:
        return Nccl::check(nccl_.reduce(in, r.receive, count, type, sum, 0, r.nccl, r.stream));
      case Collective::all_to_all:
        if (nccl_.all_to_all != nullptr)
          return Nccl::check(nccl_.all_to_all(r.send, r.receive, block, type, r.nccl, r.stream));
        Nccl::check(nccl_.group_start());
        for (int peer = 0; peer < ranks_; ++peer) {
          const std::size_t offset = block * static_cast<std::size_t>(peer) * size_bytes(type_);
          Nccl::check(nccl_.send(r.send + offset, block, type, peer, r.nccl, r.stream));
          Nccl::check(nccl_.recv(r.receive + offset, block, type, peer, r.nccl, r.stream));
        }
        return Nccl::check(nccl_.group_end());
      default:
        Nccl::check(nccl_.group_start());
        Nccl::check(nccl_.send(r.send, count, type, (r.rank + 1) % ranks_, r.nccl, r.stream));
        Nccl::check(nccl_.recv(r.receive, count, type, (r.rank + ranks_ - 1) % ranks_, r.nccl, r.stream));
        return Nccl::check(nccl_.group_end());
    }
  }

  /// Microseconds of one call, of the slowest rank. `launch` enqueues `calls` of them.
  double time_us(Rank& r, std::barrier<>& barrier, int launches, int calls, const std::function<void()>& launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    launch();
    check(cudaStreamSynchronize(r.stream), "warm-up");
    barrier.arrive_and_wait();
    check(cudaEventRecord(begin, r.stream), "event");
    const auto host_begin = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; ++i) launch();
    host_us_ =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - host_begin).count() / launches;
    check(cudaEventRecord(end, r.stream), "event");
    check(cudaStreamSynchronize(r.stream), "the timed calls");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    elapsed_[static_cast<std::size_t>(r.rank)] = double{ms} * 1000 / launches / calls;
    barrier.arrive_and_wait();
    const double slowest = *std::max_element(elapsed_.begin(), elapsed_.end());
    barrier.arrive_and_wait();
    return slowest;
  }
  double graph_us(Rank& r, std::barrier<>& barrier, int launches, int calls, const std::function<void()>& call) {
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) call();
    check(cudaStreamEndCapture(r.stream, &graph), "capture");
    check(cudaGraphInstantiate(&ready, graph, 0), "a graph");
    const double us = time_us(r, barrier, launches, calls, [&] { check(cudaGraphLaunch(ready, r.stream), "a graph"); });
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    return us;
  }

  Row measure(Rank& r, std::barrier<>& barrier, Collective c, std::size_t bytes) {
    const int calls = bytes <= (1 << 20) ? 20 : bytes <= (64 << 20) ? 5 : 2;
    const int launches = bytes <= (1 << 20) ? 10 : 3;
    Row row{std::string(name(c)), bytes};
    std::vector<double> us[4];
    for (int round = 0; round < settings_.rounds; ++round) {
      us[0].push_back(time_us(r, barrier, calls * launches, 1, [&] { call_strait(r, c, bytes); }));
      row.strait_host = host_us_;
      if (r.nccl) us[1].push_back(time_us(r, barrier, calls * launches, 1, [&] { call_nccl(r, c, bytes); }));
      row.nccl_host = host_us_;
      us[2].push_back(graph_us(r, barrier, launches, calls, [&] { call_strait(r, c, bytes); }));
      if (r.nccl) us[3].push_back(graph_us(r, barrier, launches, calls, [&] { call_nccl(r, c, bytes); }));
    }
    if (!r.nccl) us[1] = us[3] = {0};
    row.strait_eager = median(us[0]);
    row.nccl_eager = median(us[1]);
    row.strait_graph = median(us[2]);
    row.nccl_graph = median(us[3]);
    return row;
  }

  void measure_all(Rank& r, std::barrier<>& barrier) {
    check(cudaSetDevice(r.rank), "cudaSetDevice");
    for (const std::string& text : settings_.collectives)
      for (std::size_t bytes = min_bytes_; bytes <= max_bytes_; bytes *= settings_.factor) {
        const Row row =
            measure(r, barrier, parse_collective(text).value(), bytes + settings_.odd_elements * size_bytes(type_));
        if (r.rank != 0) continue;
        std::printf("%-15s %12zu %9.1f %9.1f %6.2fx %9.1f %9.1f %6.2fx %6.1f %6.1f\n", row.collective.c_str(),
                    row.bytes, row.strait_eager, row.nccl_eager, row.nccl_eager / row.strait_eager, row.strait_graph,
                    row.nccl_graph, row.nccl_graph / row.strait_graph, row.strait_host, row.nccl_host);
        std::fflush(stdout);
        rows_.push_back(row);
      }
  }

  void summarise() {
    nlohmann::ordered_json rows = nlohmann::json::array(), means;
    std::map<std::string, std::vector<const Row*>> by_collective;
    for (const Row& row : rows_) by_collective[row.collective].push_back(&row);
    for (const auto& [collective, members] : by_collective) {
      double eager = 0, graph = 0;
      for (const Row* row : members) {
        eager += std::log(row->nccl_eager / row->strait_eager) / static_cast<double>(members.size());
        graph += std::log(row->nccl_graph / row->strait_graph) / static_cast<double>(members.size());
      }
      std::printf("# geometric mean of %s: eager %.2f, graph %.2f\n", collective.c_str(), std::exp(eager),
                  std::exp(graph));
      means[collective] = {{"eager_ratio", std::exp(eager)}, {"graph_ratio", std::exp(graph)}};
    }
    if (settings_.json_path.empty()) return;
    for (const Row& row : rows_)
      rows.push_back({{"collective", row.collective},
                      {"bytes", row.bytes},
                      {"strait_eager_us", row.strait_eager},
                      {"nccl_eager_us", row.nccl_eager},
                      {"strait_host_us", row.strait_host},
                      {"nccl_host_us", row.nccl_host},
                      {"strait_graph_us", row.strait_graph},
                      {"nccl_graph_us", row.nccl_graph}});
    nlohmann::ordered_json report = {{"provenance", provenance()}};
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "GPU 0");
    report["gpus"] = ranks_;
    report["gpu"] = properties.name;
    report["nccl_version"] = nccl_version_;
    report["type"] = settings_.type;
    report["in_place"] = settings_.in_place;
    report["max_sms"] = settings_.max_sms;
    report["geometric_means"] = means;
    report["rows"] = rows;
    std::ofstream(settings_.json_path) << report.dump(1) << '\n';
  }

  Settings settings_;
  int ranks_ = 0;
  int nccl_version_ = 0;
  std::size_t min_bytes_ = 0, max_bytes_ = 0;
  DataType type_ = DataType::bfloat16;
  Nccl nccl_;
  std::vector<Rank> all_;
  std::vector<double> elapsed_;
  static thread_local double host_us_;
  std::vector<Row> rows_;
};

thread_local double Comparison::host_us_ = 0;

}  // namespace
}  // namespace strait::perf

int main(int argc, char** argv) {
  strait::perf::Settings s;
  CLI::App app("Strait's GPU ranks against NCCL, in turn on the same buffers");
  app.add_option("--baseline", s.baseline_path, "libnccl.so.2 to compare with");
  app.add_option("--json", s.json_path, "where to write the results");
  app.add_option("--collectives", s.collectives)->delimiter(',');
  app.add_option("-b,--minbytes", s.min_bytes);
  app.add_option("-e,--maxbytes", s.max_bytes);
  app.add_option("-f,--factor", s.factor)->check(CLI::Range(2, 1024));
  app.add_option("--odd", s.odd_elements, "elements added to every size");
  app.add_option("-d,--type", s.type);
  app.add_option("-g,--gpus", s.gpus, "0: all");
  app.add_option("-r,--rounds", s.rounds)->check(CLI::Range(1, 100));
  app.add_option("--max-sms", s.max_sms);
  app.add_flag("-p,--in-place", s.in_place);
  CLI11_PARSE(app, argc, argv);
  return strait::perf::Comparison(std::move(s)).run();
}
