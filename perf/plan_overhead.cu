// Measures what it costs to interpret a plan instead of compiling it. Compares the executor of
// src/executor/plan_on_gpu, which runs any plan of the catalogue, with the specialised kernel of the same plan, which
// runs through the public interface. One process with one thread runs both in turn, on the same buffers and streams.
// Results of both are compared bit by bit.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checked_ranks.hpp"
#include "executor/plan_on_gpu/group.hpp"
#include "gpu_timing.hpp"
#include "perf/arguments.hpp"
#include "perf/call.hpp"
#include "perf/options.hpp"
#include "perf/provenance.hpp"
#include "plan/request.hpp"
#include "words.hpp"

namespace strait::perf {
namespace {

using cuda::Group;
using cuda::Protocol;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::string min_bytes = "1K", max_bytes = "256M";
  std::size_t factor = 4;
  std::string type = "bfloat16";
  std::vector<std::string> plans = {"one_hop", "two_hop", "direct"};
  std::vector<std::uint32_t> blocks = {1, 4, 16, 64, 128};
  int ranks = 0;
  int rounds = 3;
  double budget_ms = 10;
  double limit_s = 170;
  std::string json_path;
};

/// A plan and the collective that it carries out.
struct Subject {
  std::string plan;
  Collective collective;
};
/// Packets are not tried for larger calls, where they only waste time.
constexpr std::size_t packets_up_to_bytes = 1 << 20;

/// One configuration in which the interpreter can run a plan.
struct Way {
  Protocol protocol = Protocol::simple;
  std::uint32_t blocks = 1;
};

struct Row {
  Subject subject;
  std::size_t bytes = 0;
  Way best;
  Times interpreter, kernel;
  unsigned long long wrong = 0;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Returns the median of each kind of time.
Times median(const std::vector<Times>& all) {
  std::vector<double> eager, graph;
  for (const Times& times : all) {
    eager.push_back(times.eager_us);
    graph.push_back(times.graph_us);
  }
  return {median(std::move(eager)), median(std::move(graph))};
}

class Comparison {
 public:
  explicit Comparison(Settings settings) : settings_(std::move(settings)), start_(Clock::now()) {}
  ~Comparison() {
    for (const auto& [algorithm, comms] : comms_)
      for (straitComm_t comm : comms) straitCommDestroy(comm);
  }

  Status run() {
    STRAIT_TRY(prepare());
    std::printf("%-8s %-15s %11s %8s | %9s %9s %6s | %9s %9s %6s | wrong\n", "plan", "collective", "bytes", "blocks",
                "plan us", "kernel us", "ratio", "graph us", "kernel us", "ratio");
    for (const Subject& subject : {Subject{"one_hop", Collective::all_reduce},
                                   {"two_hop", Collective::all_reduce},
                                   {"one_hop", Collective::all_gather},
                                   {"direct", Collective::reduce_scatter},
                                   {"direct", Collective::all_to_all}}) {
      if (std::find(settings_.plans.begin(), settings_.plans.end(), subject.plan) == settings_.plans.end()) continue;
      if (subject.plan == "two_hop" && ranks_.size() <= 2) {
        std::printf("two_hop: left out, two ranks always take one hop (--ranks 4 shares GPUs)\n");
        continue;
      }
      STRAIT_TRY(compare(subject));
    }
    summarise();
    return {};
  }
  bool all_right() const { return ranks_.wrong() == 0; }

 private:
  Status prepare() {
    STRAIT_ASSIGN(min_bytes_, tools::parse_size(settings_.min_bytes));
    STRAIT_ASSIGN(max_bytes_, tools::parse_size(settings_.max_bytes));
    STRAIT_ASSIGN(const auto types, tools::parse_types(settings_.type));
    type_ = types.front();
    if (size_bytes(type_) > 4) return fail(Code::invalid_argument, "--type takes types of at most 4 bytes");
    STRAIT_TRY(cuda::check(cudaGetDeviceCount(&gpus_), "cannot find GPUs"));
    const int ranks = settings_.ranks > 0 ? settings_.ranks : std::max(gpus_, 2);
    for (int rank = 0; rank < ranks; ++rank) devices_.push_back(rank % gpus_);
    cudaDeviceProp properties;
    STRAIT_TRY(cuda::check(cudaGetDeviceProperties(&properties, 0), "cannot query GPU 0"));
    gpu_name_ = properties.name;
    sharers_ = (ranks + gpus_ - 1) / gpus_;
    blocks_limit_ = static_cast<std::uint32_t>(properties.multiProcessorCount / sharers_);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::printf("# %d ranks on %d x %s, %s, out of place; medians of %d turns, us of the slowest rank\n", ranks,
                std::min(gpus_, ranks), properties.name, name(type_).data(), settings_.rounds);
    STRAIT_ASSIGN(ranks_, CheckedRanks::create(devices_, type_, max_bytes_));
    STRAIT_TRY(join("one_hop"));
    return ranks > 2 ? join("two_hop") : Status();
  }

  /// Creates communicators that are forced to use an algorithm wherever they have a choice.
  Status join(const std::string& algorithm) {
    setenv("STRAIT_ALGORITHM", algorithm.c_str(), 1);
    std::vector<straitComm_t>& comms = comms_[algorithm];
    comms.resize(devices_.size());
    straitUniqueId id;
    STRAIT_TRY(checked(straitGetUniqueId(&id), nullptr, "straitGetUniqueId"));
    STRAIT_TRY(checked(straitGroupStart(), nullptr, "straitGroupStart"));
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      straitConfig_t config = STRAIT_CONFIG_INITIALIZER;
      config.device = devices_[rank];
      config.timeout_ms = 20'000;
      // All ranks of a GPU must run at the same time, so they share its SMs.
      if (sharers_ > 1) config.max_sms = static_cast<int>(std::min(blocks_limit_, 64u));
      STRAIT_TRY(checked(
          straitCommInitRank(&comms[rank], static_cast<int>(devices_.size()), &id, static_cast<int>(rank), &config),
          nullptr, "straitCommInitRank"));
    }
    const Status joined = checked(straitGroupEnd(), nullptr, "straitGroupEnd");
    unsetenv("STRAIT_ALGORITHM");
    return joined;
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  Operation operation(const Subject& subject, std::size_t bytes, std::size_t rank) const {
    return {.collective = subject.collective,
            .type = type_,
            .ranks = static_cast<std::uint32_t>(devices_.size()),
            .rank = static_cast<std::uint32_t>(rank),
            .bytes = bytes};
  }

  Result<std::unique_ptr<Group>> make_group(const Subject& subject, Protocol protocol) const {
    PlanRequest request;
    request.collective = subject.collective;
    request.ranks = static_cast<std::uint32_t>(devices_.size());
    Group::Options options;
    options.program = {.protocol = protocol,
                       .max_blocks = std::min(blocks_limit_, 128u),
                       .block_slot_bytes = protocol == Protocol::packet ? 16u << 10 : 64u << 10};
    options.devices = devices_;
    return Group::create(build_all(*find_algorithm(subject.plan), request), options);
  }

  Enqueue interpreted(Group& group, const Subject& subject, std::size_t bytes, std::uint32_t blocks) const {
    std::vector<cuda::RankBuffers> buffers;
    for (std::size_t r = 0; r < ranks_.size(); ++r) buffers.push_back({ranks_.input(r), ranks_.output(r)});
    const Group::Operation call{
        .type = type_, .count = operation(subject, bytes, 0).geometry(0).count, .blocks = blocks};
    return [&group, call, buffers, streams = ranks_.gpus().streams()] { return group.enqueue(call, buffers, streams); };
  }

  Enqueue compiled(const Subject& subject, std::size_t bytes) {
    const std::vector<straitComm_t>& comms = comms_.at(subject.plan == "two_hop" ? "two_hop" : "one_hop");
    std::vector<Call> calls;
    for (std::size_t r = 0; r < devices_.size(); ++r)
      calls.emplace_back(arguments_of(operation(subject, bytes, r), ranks_.input(r), ranks_.output(r)), WireFormat::off,
                         comms[r], ranks_.gpus().ranks[r].stream);
    return [calls]() -> Status {
      for (const Call& call : calls) STRAIT_TRY(checked(call(), nullptr, "a call"));
      return {};
    };
  }

  /// Makes a call and checks every output. Adds the number of wrong elements to `wrong`.
  Status check(const Subject& subject, std::size_t bytes, const Enqueue& enqueue, unsigned long long& wrong) {
    STRAIT_TRY(enqueue());
    STRAIT_ASSIGN(const auto found, ranks_.check(operation(subject, bytes, 0)));
    wrong += found;
    return {};
  }

  Status compare(const Subject& subject) {
    std::map<Protocol, std::unique_ptr<Group>> groups;
    for (const Protocol protocol : {Protocol::simple, Protocol::packet}) {
      STRAIT_ASSIGN(groups[protocol], make_group(subject, protocol));
    }
    for (std::size_t bytes = min_bytes_; bytes <= max_bytes_; bytes *= settings_.factor) {
      if (elapsed_s() > settings_.limit_s) {
        std::printf("%s: the rest is skipped for time (--limit)\n", subject.plan.c_str());
        break;
      }
      Row row;
      row.subject = subject;
      row.bytes = bytes;
      STRAIT_TRY(choose_way(groups, row));
      Group& group = *groups.at(row.best.protocol);
      const Enqueue plan = interpreted(group, subject, bytes, row.best.blocks), kernel = compiled(subject, bytes);
      STRAIT_TRY(check(subject, bytes, plan, row.wrong));
      STRAIT_TRY(check(subject, bytes, kernel, row.wrong));
      std::vector<Times> of_plan, of_kernel;
      for (int round = 0; round < settings_.rounds; ++round) {
        STRAIT_ASSIGN(const Times one, time_operation(ranks_.gpus(), plan, settings_.budget_ms, true));
        STRAIT_ASSIGN(const Times other, time_operation(ranks_.gpus(), kernel, settings_.budget_ms, true));
        of_plan.push_back(one);
        of_kernel.push_back(other);
      }
      STRAIT_TRY(group.error());
      row.interpreter = median(of_plan);
      row.kernel = median(of_kernel);
      STRAIT_TRY(check(subject, bytes, plan, row.wrong));
      STRAIT_TRY(check(subject, bytes, kernel, row.wrong));
      report(row);
    }
    return {};
  }

  /// Finds the fastest protocol and number of blocks for the interpreter.
  Status choose_way(const std::map<Protocol, std::unique_ptr<Group>>& groups, Row& row) {
    double best_us = 0;
    PlanRequest request;
    request.collective = row.subject.collective;
    request.ranks = static_cast<std::uint32_t>(devices_.size());
    const auto lanes = static_cast<std::uint32_t>(find_algorithm(row.subject.plan)->build(request, 0).lanes.size());
    for (const auto& [protocol, group] : groups)
      for (const std::uint32_t blocks : settings_.blocks) {
        if (blocks * lanes > blocks_limit_ || (protocol == Protocol::packet && row.bytes > packets_up_to_bytes))
          continue;
        if (blocks == 1 && row.bytes > packets_up_to_bytes) continue;
        const Enqueue enqueue = interpreted(*group, row.subject, row.bytes, blocks);
        STRAIT_TRY(enqueue());
        STRAIT_TRY(ranks_.gpus().synchronize());
        STRAIT_ASSIGN(const double us, median_us(ranks_.gpus(), 5, 1, enqueue));
        if (best_us != 0 && us >= best_us) continue;
        best_us = us;
        row.best = {protocol, blocks};
      }
    return best_us == 0 ? fail(Code::invalid_argument, "no number of --blocks fits these GPUs") : Status();
  }

  static double ratio(double plan_us, double kernel_us) { return kernel_us > 0 ? plan_us / kernel_us : 0; }

  void report(const Row& row) {
    rows_.push_back(row);
    char way[16];
    std::snprintf(way, sizeof way, "%c %u", row.best.protocol == Protocol::packet ? 'p' : 's', row.best.blocks);
    std::printf("%-8s %-15s %11zu %8s | %9.1f %9.1f %6.2f | %9.1f %9.1f %6.2f | %llu\n", row.subject.plan.c_str(),
                name(row.subject.collective).data(), row.bytes, way, row.interpreter.eager_us, row.kernel.eager_us,
                ratio(row.interpreter.eager_us, row.kernel.eager_us), row.interpreter.graph_us, row.kernel.graph_us,
                ratio(row.interpreter.graph_us, row.kernel.graph_us), row.wrong);
  }

  void summarise() const {
    std::map<std::string, std::vector<double>> ratios;
    nlohmann::ordered_json rows = nlohmann::json::array(), means;
    for (const Row& row : rows_) {
      const std::string what = row.subject.plan + " " + std::string(name(row.subject.collective));
      if (row.kernel.graph_us > 0 && row.interpreter.graph_us > 0)
        ratios[what].push_back(std::log(row.interpreter.graph_us / row.kernel.graph_us));
      rows.push_back({{"plan", row.subject.plan},
                      {"collective", name(row.subject.collective)},
                      {"bytes", row.bytes},
                      {"interpreter_protocol", row.best.protocol == Protocol::packet ? "packet" : "simple"},
                      {"interpreter_blocks", row.best.blocks},
                      {"interpreter_eager_us", row.interpreter.eager_us},
                      {"kernel_eager_us", row.kernel.eager_us},
                      {"interpreter_graph_us", row.interpreter.graph_us},
                      {"kernel_graph_us", row.kernel.graph_us},
                      {"wrong", row.wrong}});
    }
    for (const auto& [what, logs] : ratios) {
      double sum = 0;
      for (const double each : logs) sum += each;
      means[what] = std::exp(sum / static_cast<double>(logs.size()));
      std::printf("# %s: interpreted over compiled, geometric mean in graphs: %.2f\n", what.c_str(),
                  means[what].get<double>());
    }
    std::printf("# %llu wrong elements; %.1f s\n", ranks_.wrong(), elapsed_s());
    if (settings_.json_path.empty()) return;
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    const nlohmann::ordered_json report = {{"program", "plan_overhead"},
                                           {"provenance", provenance()},
                                           {"gpu", gpu_name_},
                                           {"gpus", gpus_},
                                           {"cuda_driver", driver},
                                           {"cuda_runtime", runtime},
                                           {"ranks", devices_.size()},
                                           {"type", name(type_)},
                                           {"rounds", settings_.rounds},
                                           {"graph_ratio_means", means},
                                           {"rows", rows}};
    std::ofstream(settings_.json_path) << report.dump(1) << '\n';
  }

  Settings settings_;
  Clock::time_point start_;
  std::size_t min_bytes_ = 0, max_bytes_ = 0;
  DataType type_ = DataType::bfloat16;
  int gpus_ = 0, sharers_ = 1;
  std::string gpu_name_;
  std::vector<int> devices_;
  std::uint32_t blocks_limit_ = 1;
  CheckedRanks ranks_;
  std::map<std::string, std::vector<straitComm_t>> comms_;  ///< by the algorithm that is forced
  std::vector<Row> rows_;
};

int run(int argc, char** argv) {
  Settings s;
  CLI::App app("The interpreter of plans against the kernels of the same plans");
  app.add_option("-b,--minbytes", s.min_bytes);
  app.add_option("-e,--maxbytes", s.max_bytes);
  app.add_option("-f,--factor", s.factor)->check(CLI::Range(2, 1024));
  app.add_option("-d,--type", s.type);
  app.add_option("--plans", s.plans, "one_hop, two_hop, direct")->delimiter(',');
  app.add_option("--blocks", s.blocks, "blocks of a lane that the interpreter may take; the fastest counts")
      ->delimiter(',');
  app.add_option("--ranks", s.ranks, "as many as GPUs if absent; more share them");
  app.add_option("-r,--rounds", s.rounds, "turns")->check(CLI::Range(1, 100));
  app.add_option("--budget-ms", s.budget_ms, "GPU time of each measurement");
  app.add_option("--limit", s.limit_s, "seconds after which what remains is skipped");
  app.add_option("--json", s.json_path, "file for all rows");
  CLI11_PARSE(app, argc, argv);
  // With lazy loading, the first launch of a kernel would wait for running kernels, which wait for that kernel.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  Comparison comparison(std::move(s));
  if (const Status status = comparison.run(); !status) {
    std::fflush(stdout);
    std::fprintf(stderr, "plan_overhead: %s\n", status.error().message.c_str());
    std::_Exit(2);  // skips destructors, because a GPU may still be busy
  }
  return comparison.all_right() ? 0 : 1;
}

}  // namespace
}  // namespace strait::perf

int main(int argc, char** argv) { return strait::perf::run(argc, argv); }
