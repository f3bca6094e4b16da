#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "executor/plan_on_gpu/group.hpp"
#include "gpu_ranks.cuh"
#include "gpu_timing.hpp"
#include "perf/nccl.hpp"
#include "perf/provenance.hpp"
#include "plan/request.hpp"

/// Runs all-reduce plans on the GPUs of this machine. Compares every bit with the result of a plain loop on the CPU,
/// and then times each plan, protocol, number of blocks, size and type. One process with one thread.
namespace strait::perf {
namespace {

using cuda::Group;
using cuda::Protocol;
using Clock = std::chrono::steady_clock;

struct Settings {
  std::vector<std::size_t> sizes_bytes = {1024, std::size_t{256} << 20};
  std::vector<std::string> plans;
  std::vector<std::uint32_t> blocks = {1, 2, 4, 8, 16, 32, 64, 128};
  std::vector<std::string> protocols = {"simple", "packet"};
  std::vector<std::string> types = {"float32", "bfloat16"};
  int ranks = 0;
  std::uint32_t slot_bytes = 64 * 1024;
  std::uint32_t packet_slot_bytes = 16 * 1024;
  std::size_t peer_slice_bytes = 0;
  std::uint32_t depth = 4;
  bool no_rotate = false;
  bool no_check = false;
  double budget_ms = 40;
  double limit_s = 170;
  std::string json_path;
  std::string baseline_path;
};

struct Row {
  std::string plan, protocol, type;
  std::size_t bytes = 0;
  std::uint32_t blocks = 0;
  Times times;
  unsigned long long wrong = 0;

  double best_us() const { return times.graph_us > 0 ? std::min(times.graph_us, times.eager_us) : times.eager_us; }
};

/// Returns the bandwidth that nccl-tests calls busbw, in GB/s.
double bus_gbps(const Row& row, std::size_t ranks) {
  const double n = static_cast<double>(ranks);
  return static_cast<double>(row.bytes) / row.best_us() / 1000 * 2 * (n - 1) / n;
}

class Sweep {
 public:
  explicit Sweep(Settings settings) : settings_(std::move(settings)), start_(Clock::now()) {}

  Status run() {
    STRAIT_TRY(find_devices());
    const std::size_t most = *std::max_element(settings_.sizes_bytes.begin(), settings_.sizes_bytes.end());
    STRAIT_ASSIGN(ranks_, GpuRanks::create(devices_, std::max<std::size_t>(most, 1 << 20) + 4096));
    for (const std::string& type : settings_.types) {
      if (type == "float32") STRAIT_TRY(run_type<DataType::float32>());
      if (type == "bfloat16") STRAIT_TRY(run_type<DataType::bfloat16>());
      if (type == "float16") STRAIT_TRY(run_type<DataType::float16>());
    }
    print_best();
    return write_json();
  }

  bool all_right() const { return wrong_ == 0; }

 private:
  Status find_devices() {
    int visible = 0;
    STRAIT_TRY(cuda::check(cudaGetDeviceCount(&visible), "cannot find GPUs"));
    const int ranks = settings_.ranks > 0 ? settings_.ranks : std::max(visible == 1 ? 4 : visible, 1);
    if (ranks > static_cast<int>(cuda::max_ranks))
      return fail(Code::invalid_argument, "at most " + std::to_string(cuda::max_ranks) + " ranks: use --ranks");
    for (int rank = 0; rank < ranks; ++rank) devices_.push_back(rank % visible);
    cudaDeviceProp properties;
    STRAIT_TRY(cuda::check(cudaGetDeviceProperties(&properties, 0), "cannot query GPU 0"));
    const auto sharers = static_cast<std::uint32_t>((ranks + visible - 1) / visible);
    blocks_limit_ = static_cast<std::uint32_t>(properties.multiProcessorCount) / sharers;
    std::printf("%d ranks on %d x %s, %u blocks a rank at most\n", ranks, std::min(ranks, visible), properties.name,
                blocks_limit_);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    return {};
  }

  double elapsed_s() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  bool wanted(std::string_view plan) const {
    return settings_.plans.empty() ||
           std::find(settings_.plans.begin(), settings_.plans.end(), plan) != settings_.plans.end();
  }

  template <DataType type>
  Status run_type() {
    std::printf("[%5.1f s] %s: making inputs and the sums that they must give\n", elapsed_s(), name(type).data());
    STRAIT_TRY(ranks_->fill<type>());
    PlanRequest request;
    request.ranks = static_cast<std::uint32_t>(devices_.size());
    request.peer_memory = true;
    for (const Algorithm& algorithm : catalogue()) {
      if (!wanted(algorithm.name) || !algorithm.supports(request) || algorithm.sums != Numerics::rank_order) continue;
      for (const std::string& protocol : settings_.protocols) {
        const bool has_links = !algorithm.build(request, 0).links.empty();
        if (!has_links && protocol == "packet") continue;
        STRAIT_TRY(run_plan<type>(algorithm, request, protocol));
      }
    }
    if (!settings_.baseline_path.empty()) STRAIT_TRY(run_baseline<type>());
    return {};
  }

  Result<std::unique_ptr<Group>> make_group(const Algorithm& algorithm, const PlanRequest& request, bool packet) {
    Group::Options options;
    options.program = {.protocol = packet ? Protocol::packet : Protocol::simple,
                       .max_blocks = std::min(blocks_limit_, 128U),
                       .block_slot_bytes = packet ? settings_.packet_slot_bytes : settings_.slot_bytes,
                       .depth = settings_.depth,
                       .rotate = !settings_.no_rotate};
    options.devices = devices_;
    return Group::create(build_all(algorithm, request), options);
  }

  template <DataType type>
  Status run_plan(const Algorithm& algorithm, PlanRequest request, const std::string& protocol) {
    auto group = make_group(algorithm, request, protocol == "packet");
    if (!group) {
      std::printf("%s: %s\n", algorithm.name.data(), group.error().message.c_str());
      return {};
    }
    lanes_ = static_cast<std::uint32_t>(algorithm.build(request, 0).lanes.size());
    request.in_place = true;
    STRAIT_ASSIGN(const auto in_place, make_group(algorithm, request, protocol == "packet"));
    Row row;
    row.plan = algorithm.name;
    row.protocol = protocol;
    row.type = name(type);
    if (!settings_.no_check) STRAIT_TRY(check_corners<type>(row, **group, *in_place));
    for (const std::size_t bytes : settings_.sizes_bytes)
      for (const std::uint32_t blocks : settings_.blocks) {
        if (blocks * lanes_ > blocks_limit_) continue;
        if (elapsed_s() > settings_.limit_s) {
          ++skipped_;
          continue;
        }
        row.bytes = bytes;
        row.blocks = blocks;
        STRAIT_TRY(measure<type>(row, **group, *in_place));
      }
    return {};
  }

  struct Place {
    std::size_t input_offset = 0, output_offset = 0;  ///< in bytes
    bool in_place = false;
  };

  /// Returns a function that enqueues one all-reduce on all streams.
  template <DataType type>
  Enqueue operation(Group& group, std::size_t count, std::uint32_t blocks, const Place& place) {
    std::vector<cuda::RankBuffers> buffers;
    for (const GpuRank& rank : ranks_->ranks) {
      std::byte* output = rank.output.data() + place.output_offset;
      buffers.push_back({place.in_place ? output : rank.input.data() + place.input_offset, output});
    }
    const Group::Operation call{.type = type,
                                .op = ReduceOp::sum,
                                .count = count,
                                .blocks = blocks,
                                .block_slice_bytes = settings_.peer_slice_bytes};
    return [&group, call, buffers, streams = ranks_->streams()] { return group.enqueue(call, buffers, streams); };
  }

  template <DataType type>
  Status check_once(Row& row, Group& group, std::size_t count, std::uint32_t blocks, const Place& place, int times) {
    const std::size_t bytes = count * size_bytes(type);
    STRAIT_TRY(ranks_->prepare(place.in_place, bytes, place.input_offset, place.output_offset));
    const Enqueue enqueue = operation<type>(group, count, blocks, place);
    for (int i = 0; i < times; ++i) STRAIT_TRY(enqueue());
    STRAIT_TRY(ranks_->synchronize());
    STRAIT_TRY(group.error());
    STRAIT_ASSIGN(const unsigned long long wrong, differences<type>(count, place));
    if (wrong != 0)
      std::printf("WRONG: %s %s %s, %zu elements, %u blocks, offsets %zu and %zu, %s: %llu elements differ\n",
                  row.plan.c_str(), row.protocol.c_str(), row.type.c_str(), count, blocks, place.input_offset,
                  place.output_offset, place.in_place ? "in place" : "out of place", wrong);
    row.wrong += wrong;
    wrong_ += wrong;
    return {};
  }

  template <DataType type>
  Result<unsigned long long> differences(std::size_t count, const Place& place) {
    if constexpr (size_bytes(type) == 4)
      return ranks_->differences<std::uint32_t>(count, place.input_offset, place.output_offset);
    else
      return ranks_->differences<std::uint16_t>(count, place.input_offset, place.output_offset);
  }

  /// Checks odd counts and unaligned buffers, with several calls back to back.
  template <DataType type>
  Status check_corners(Row& row, Group& group, Group& in_place) {
    constexpr std::size_t element = size_bytes(type);
    for (const std::size_t count : {1, 3, 7, 63, 257, 1000, 4097, 100003})
      for (const std::uint32_t blocks : {1U, 7U}) {
        if (blocks * lanes_ > blocks_limit_) continue;
        STRAIT_TRY(check_once<type>(row, group, count, blocks, {}, 3));
        STRAIT_TRY(check_once<type>(row, group, count, blocks, {element, 3 * element}, 3));
        STRAIT_TRY(check_once<type>(row, in_place, count, blocks, {0, 0, true}, 1));
        STRAIT_TRY(check_once<type>(row, in_place, count, blocks, {2 * element, 5 * element, true}, 1));
      }
    return {};
  }

  template <DataType type>
  Status measure(Row row, Group& group, Group& in_place) {
    const std::size_t count = row.bytes / size_bytes(type);
    if (!settings_.no_check) STRAIT_TRY(check_once<type>(row, in_place, count, row.blocks, {0, 0, true}, 1));
    STRAIT_TRY(ranks_->prepare(false, row.bytes, 0, 0));
    STRAIT_ASSIGN(row.times,
                  time_operation(*ranks_, operation<type>(group, count, row.blocks, {}), settings_.budget_ms, true));
    STRAIT_TRY(group.error());
    STRAIT_ASSIGN(const unsigned long long wrong, differences<type>(count, {}));
    row.wrong += wrong;
    wrong_ += wrong;
    report(row);
    return {};
  }

  template <DataType type>
  Status run_baseline() {
    if (!baseline_) {
      setenv("NCCL_NVLS_ENABLE", "0", 0);  // NVLink multicast only if the user enables it
      STRAIT_ASSIGN(baseline_, Nccl::load(settings_.baseline_path));
      STRAIT_ASSIGN(baseline_comms_, baseline_->join_all(devices_));
    }
    for (const std::size_t bytes : settings_.sizes_bytes) {
      const Enqueue enqueue = [&]() -> Status {
        STRAIT_TRY(baseline_->group_start());
        for (std::size_t r = 0; r < ranks_->ranks.size(); ++r) {
          const GpuRank& rank = ranks_->ranks[r];
          STRAIT_TRY(baseline_->call({.type = type,
                                      .count = bytes / size_bytes(type),
                                      .send = rank.input.data(),
                                      .receive = rank.output.data()},
                                     baseline_comms_[r], rank.stream));
        }
        return baseline_->group_end();
      };
      Row row;
      row.plan = "nccl";
      row.protocol = "-";
      row.type = name(type);
      row.bytes = bytes;
      auto times = time_operation(*ranks_, enqueue, settings_.budget_ms, true);
      if (!times) {
        std::printf("the baseline without a graph, because: %s\n", times.error().message.c_str());
        times = time_operation(*ranks_, enqueue, settings_.budget_ms, false);
      }
      STRAIT_ASSIGN(row.times, std::move(times));
      report(row);
    }
    return {};
  }

  void report(const Row& row) {
    rows_.push_back(row);
    std::printf("[%5.1f s] ", elapsed_s());
    print(row);
  }

  void print(const Row& row) const {
    std::printf("%-13s %-6s %-8s %10zu B %4u blocks  eager %10.2f us  graph %10.2f us  %8.2f GB/s bus  %llu wrong\n",
                row.plan.c_str(), row.protocol.c_str(), row.type.c_str(), row.bytes, row.blocks, row.times.eager_us,
                row.times.graph_us, bus_gbps(row, devices_.size()), row.wrong);
  }

  void print_best() const {
    std::map<std::string, const Row*> best;
    for (const Row& row : rows_) {
      char key[160];
      std::snprintf(key, sizeof(key), "%s %14zu %s %s", row.type.c_str(), row.bytes, row.plan.c_str(),
                    row.protocol.c_str());
      const Row*& place = best[key];
      if (place == nullptr || row.best_us() < place->best_us()) place = &row;
    }
    std::printf("\nThe best number of blocks of each, %zu ranks, median of the slowest rank:\n", devices_.size());
    for (const auto& [key, row] : best) print(*row);
    std::printf("%llu wrong elements in all", wrong_);
    if (skipped_ > 0) std::printf("; %d measurements skipped for time (--limit)", skipped_);
    std::printf("; %.1f s\n", elapsed_s());
  }

  Status write_json() const {
    if (settings_.json_path.empty()) return {};
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(settings_.json_path.c_str(), "w"),
                                                               &std::fclose);
    if (!file) return fail_errno("cannot write " + settings_.json_path, errno, "Choose another --json path.");
    std::fprintf(file.get(), "{\"program\": \"plan_on_gpu\", \"provenance\": %s,\n", perf::provenance().dump().c_str());
    cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    STRAIT_TRY(cuda::check(cudaGetDeviceProperties(&properties, 0), "cannot query GPU 0"));
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    std::fprintf(file.get(),
                 "\"gpu\": \"%s\", \"cuda_driver\": %d, \"cuda_runtime\": %d, \"nccl\": %d, \"ranks\": %zu, "
                 "\"rows\": [",
                 properties.name, driver, runtime, baseline_ ? baseline_->version() : 0, devices_.size());
    const char* separator = "\n";
    for (const Row& row : rows_) {
      std::fprintf(file.get(),
                   "%s{\"plan\": \"%s\", \"protocol\": \"%s\", \"type\": \"%s\", \"bytes\": %zu, \"blocks\": %u, "
                   "\"eager_us\": %.3f, \"graph_us\": %.3f, \"bus_gbps\": %.3f, \"wrong\": %llu}",
                   separator, row.plan.c_str(), row.protocol.c_str(), row.type.c_str(), row.bytes, row.blocks,
                   row.times.eager_us, row.times.graph_us, bus_gbps(row, devices_.size()), row.wrong);
      separator = ",\n";
    }
    std::fprintf(file.get(), "\n]}\n");
    return {};
  }

  Settings settings_;
  Clock::time_point start_;
  std::vector<int> devices_;
  std::uint32_t blocks_limit_ = 1;
  std::uint32_t lanes_ = 1;
  std::unique_ptr<GpuRanks> ranks_;
  std::shared_ptr<const Nccl> baseline_;
  std::vector<Nccl::Comm> baseline_comms_;
  std::vector<Row> rows_;
  unsigned long long wrong_ = 0;
  int skipped_ = 0;
};

int run(int argc, char** argv) {
  Settings s;
  CLI::App app("Checks and times all-reduce plans on the GPUs of this machine");
  app.add_option("--bytes", s.sizes_bytes, "sizes")->delimiter(',')->transform(CLI::AsSizeValue(false));
  app.add_option("--plans", s.plans, "names from the catalogue; all rank-order ones if absent")->delimiter(',');
  app.add_option("--protocols", s.protocols, "simple, packet")->delimiter(',');
  app.add_option("--blocks", s.blocks, "blocks of a lane")->delimiter(',');
  app.add_option("--types", s.types, "float32, bfloat16, float16")->delimiter(',');
  app.add_option("--ranks", s.ranks, "ranks; as many as GPUs if absent, 4 on a single one");
  app.add_option("--slot-bytes", s.slot_bytes, "a block's part of a slot, simple protocol");
  app.add_option("--packet-slot-bytes", s.packet_slot_bytes, "the same of data in packets");
  app.add_option("--peer-slice-bytes", s.peer_slice_bytes, "a block's part of a slice of peer plans; 0: whole chunks");
  app.add_option("--depth", s.depth, "slots of a link");
  app.add_flag("--no-rotate", s.no_rotate, "write to all peers in the same order on all ranks");
  app.add_flag("--no-check", s.no_check, "check the timed results only");
  app.add_option("--budget-ms", s.budget_ms, "GPU time of each measurement");
  app.add_option("--limit", s.limit_s, "seconds after which what remains is skipped");
  app.add_option("--json", s.json_path, "file for all rows");
  app.add_option("--baseline", s.baseline_path, "path of a libnccl.so.2 to compare with");
  CLI11_PARSE(app, argc, argv);
  // With lazy loading, the first launch of a kernel would wait for running kernels, which wait for that kernel.
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  Sweep sweep(std::move(s));
  if (const Status status = sweep.run(); !status) {
    std::fprintf(stderr, "plan_on_gpu: %s\n", status.error().message.c_str());
    std::fflush(stdout);
    std::_Exit(2);  // skips destructors, because a GPU may still be busy
  }
  return sweep.all_right() ? 0 : 1;
}

}  // namespace
}  // namespace strait::perf

int main(int argc, char** argv) { return strait::perf::run(argc, argv); }
