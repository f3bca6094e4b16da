// Compares Strait's GPU ranks with NCCL: one process with a thread for each rank, in turn on the same buffers and
// streams, with eager calls and with CUDA graphs. Prints a table of times and ratios. `strait perf --baseline` measures
// as nccl-tests would, verifies every call, and supports several processes. This program measures both modes of several
// collectives, and the time of the calling thread, in one run. With --check it verifies one result of Strait before it
// times a size.
#include <cuda_runtime.h>

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
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "perf/call.hpp"
#include "perf/nccl.hpp"
#include "perf/options.hpp"
#include "perf/provenance.hpp"
#include "strait/strait.h"
#include "words.hpp"

namespace strait::perf {
namespace {

struct Settings {
  std::string baseline_path;
  std::string json_path;
  std::vector<std::string> collectives = {"all-reduce", "all-gather", "reduce-scatter",
                                          "all-to-all", "broadcast",  "reduce"};
  std::string min_bytes = "1K", max_bytes = "256M";
  std::size_t factor = 4;
  std::size_t odd_elements = 0;  ///< added to every count
  std::string type = "bfloat16";
  std::string wire = "off";
  int gpus = 0;
  int ranks_per_gpu = 1;  ///< ranks of the same GPU share its PCIe link, like GPUs behind the same port
  int rounds = 3;
  int max_sms = 0;
  bool in_place = false;
  bool check = false;
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

/// Returns the value of a Result, or ends the program with its error.
template <class T>
T good(Result<T> result) {
  if (!result) stop(result.error().message);
  return std::move(*result);
}
void good(const Status& status) {
  if (!status) stop(status.error().message);
}

struct Rank {
  int rank = 0;
  cudaStream_t stream = nullptr;
  char *send = nullptr, *receive = nullptr;
  straitComm_t strait = nullptr;
  Nccl::Comm nccl = nullptr;
};

/// The times of one size, in microseconds.
struct Row {
  std::string collective;
  std::size_t bytes = 0;
  double strait_eager = 0, nccl_eager = 0, strait_graph = 0, nccl_graph = 0;
  double strait_host = 0, nccl_host = 0;  ///< time until an eager call returns
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
    const int gpus = settings_.gpus > 0 ? settings_.gpus : devices;
    if (gpus > devices) stop("fewer GPUs here than --gpus");
    ranks_ = gpus * settings_.ranks_per_gpu;
    if (ranks_ > gpus && !settings_.baseline_path.empty()) stop("NCCL joins one rank of a GPU: --ranks-per-gpu 1");
    min_bytes_ = tools::parse_size(settings_.min_bytes).value();
    max_bytes_ = tools::parse_size(settings_.max_bytes).value();
    type_ = tools::parse_types(settings_.type).value().front();
    wire_ = *tools::parse_wire(settings_.wire).value();
    setup();
    std::printf("# %d GPUs, %d ranks, %s, wire format %s, NCCL %d; times in us, %s\n", gpus, ranks_,
                settings_.type.c_str(), settings_.wire.c_str(), nccl_version_,
                settings_.in_place ? "in place" : "out of place");
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
      config.device = device_of(r);
      config.max_sms = settings_.max_sms;
      check(straitCommInitRank(&rank.strait, ranks_, &id, r, &config));
      check(cudaSetDevice(config.device), "cudaSetDevice");
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
    setenv("NCCL_NVLS_ENABLE", "0", 0);  // NVLink multicast only if the user enables it
    nccl_ = good(Nccl::load(settings_.baseline_path));
    std::vector<int> devices(all_.size());
    for (int r = 0; r < ranks_; ++r) devices[static_cast<std::size_t>(r)] = r;
    const std::vector<Nccl::Comm> comms = good(nccl_->join_all(devices));
    nccl_version_ = nccl_->version();
    for (std::size_t r = 0; r < all_.size(); ++r) all_[r].nccl = comms[r];
  }

  int device_of(int rank) const { return rank / settings_.ranks_per_gpu; }

  Operation operation(const Rank& r, Collective c, std::size_t bytes) const {
    const bool has_in_place = c != Collective::all_to_all && c != Collective::send_recv;
    const WireFormat format = ranks_ > 1 && wire::is_wire_collective(c) ? wire_ : WireFormat::off;
    return {.collective = c,
            .type = type_,
            .ranks = static_cast<std::uint32_t>(ranks_),
            .rank = static_cast<std::uint32_t>(r.rank),
            .in_place = settings_.in_place && has_in_place,
            .wire = format,
            .exact = format == WireFormat::off,  // islands add up in another order
            .bytes = bytes,
            .extra_elements = settings_.odd_elements};
  }

  /// Makes one call on inputs that all ranks know, and verifies its result.
  void verify(Rank& r, std::barrier<>& barrier, const Operation& o, const std::function<void()>& call) {
    const auto fill = [&](char* buffer, const Contents& contents) {
      std::vector<char> data(extent_bytes(o, contents));
      write(o, contents, data.data());
      check(cudaMemcpy(buffer, data.data(), data.size(), cudaMemcpyHostToDevice), "inputs");
    };
    if (!o.in_place) fill(r.send, send_contents(o));
    fill(r.receive, receive_contents_before(o));
    check(cudaDeviceSynchronize(), "inputs");
    // Every rank's inputs are there before any rank launches: cudaMemcpy and cudaDeviceSynchronize would wait for
    // kernels of ranks on the same GPU, which would wait for this rank.
    barrier.arrive_and_wait();
    call();
    check(cudaStreamSynchronize(r.stream), "the call that is checked");
    barrier.arrive_and_wait();
    const Contents expected = receive_contents_after(o);
    std::vector<char> got(extent_bytes(o, expected));
    check(cudaMemcpy(got.data(), r.receive, got.size(), cudaMemcpyDeviceToHost), "a result");
    if (const std::size_t wrong = count_wrong(o, expected, got.data()); wrong != 0)
      stop(std::string(name(o.collective)) + " of " + std::to_string(o.bytes) + " bytes: " + std::to_string(wrong) +
           " elements are wrong on rank " + std::to_string(r.rank));
    // Restores ordinary numbers for the timed calls: a NaN makes a wire format encode its block on a shorter path.
    check(cudaMemset(r.send, 0x11, extent_bytes(o, send_contents(o))), "memset");
    check(cudaMemset(r.receive, 0x22, got.size()), "memset");
    check(cudaDeviceSynchronize(), "memset");
    barrier.arrive_and_wait();
  }

  /// Returns the time of one call on the slowest rank, in microseconds. `launch` enqueues `calls` calls.
  double time_us(Rank& r, std::barrier<>& barrier, int launches, int calls, const std::function<void()>& launch) {
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    // Creating and destroying graphs may wait for kernels of ranks on the same GPU, so all ranks are done with it here.
    barrier.arrive_and_wait();
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
    // Launching a graph while it still runs blocks the GPU's context, and with it other ranks on this GPU.
    const bool shared = settings_.ranks_per_gpu > 1;
    const int launches = shared ? 1 : bytes <= (1 << 20) ? 10 : 3;
    const Operation o = operation(r, c, bytes);
    const Arguments what = arguments_of(o, r.send, r.receive);
    const Call strait_call(what, o.wire, r.strait, r.stream);
    const auto call_strait = [&] { check(strait_call()); };
    if (settings_.check) verify(r, barrier, o, call_strait);
    const auto call_nccl = [&] { good(nccl_->call(what, r.nccl, r.stream)); };
    Row row{std::string(name(c)), bytes + settings_.odd_elements * size_bytes(type_)};
    std::vector<double> us[4];
    for (int round = 0; round < settings_.rounds; ++round) {
      us[0].push_back(time_us(r, barrier, calls * launches, 1, call_strait));
      row.strait_host = host_us_;
      if (r.nccl) us[1].push_back(time_us(r, barrier, calls * launches, 1, call_nccl));
      row.nccl_host = host_us_;
      us[2].push_back(graph_us(r, barrier, launches, calls, call_strait));
      if (r.nccl) us[3].push_back(graph_us(r, barrier, launches, calls, call_nccl));
    }
    if (!r.nccl) us[1] = us[3] = {0};
    row.strait_eager = median(us[0]);
    row.nccl_eager = median(us[1]);
    row.strait_graph = median(us[2]);
    row.nccl_graph = median(us[3]);
    return row;
  }

  void measure_all(Rank& r, std::barrier<>& barrier) {
    check(cudaSetDevice(device_of(r.rank)), "cudaSetDevice");
    for (const std::string& text : settings_.collectives)
      for (std::size_t bytes = min_bytes_; bytes <= max_bytes_; bytes *= settings_.factor) {
        const Row row = measure(r, barrier, tools::parse_collective(text).value(), bytes);
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
    report["gpus"] = ranks_ / settings_.ranks_per_gpu;
    report["ranks"] = ranks_;
    report["gpu"] = properties.name;
    report["nccl_version"] = nccl_version_;
    report["type"] = settings_.type;
    report["in_place"] = settings_.in_place;
    report["wire"] = settings_.wire;
    report["checked"] = settings_.check;
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
  WireFormat wire_ = WireFormat::off;  ///< for those of Strait's calls that can have a wire format
  std::shared_ptr<const Nccl> nccl_;
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
  app.add_option("--odd", s.odd_elements, "elements added to every count");
  app.add_option("-d,--type", s.type);
  app.add_option("--wire", s.wire, "Strait's wire format")->check(CLI::IsMember({"off", "int8", "fp8", "int4"}));
  app.add_option("-g,--gpus", s.gpus, "0: all");
  app.add_option("--ranks-per-gpu", s.ranks_per_gpu, "of Strait alone")->check(CLI::Range(1, 16));
  app.add_option("-r,--rounds", s.rounds)->check(CLI::Range(1, 100));
  app.add_option("--max-sms", s.max_sms);
  app.add_flag("-p,--in-place", s.in_place);
  app.add_flag("-c,--check", s.check, "looks at a result of Strait's, bit by bit, before a size is timed");
  CLI11_PARSE(app, argc, argv);
  return strait::perf::Comparison(std::move(s)).run();
}
