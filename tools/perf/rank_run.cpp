#include "perf/rank_run.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "base/host_name.hpp"
#include "perf/bookkeeping.hpp"
#include "perf/floors.hpp"
#include "perf/host_rates.hpp"
#include "perf/peer_rates.hpp"
#include "perf/table.hpp"
#include "plan/request.hpp"
#include "words.hpp"

namespace strait::perf {
namespace {

constexpr double usable_memory_fraction = 0.8;

/// What the kernel says can be allocated without swapping; 0 where it does not say.
std::int64_t available_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  for (std::string rest; file >> key >> kib; std::getline(file, rest))
    if (key == "MemAvailable:") return kib * 1024;
  return 0;
}

/// A rank's entry in the header, as it travels.
struct PackedRankInfo {
  std::int32_t pid = 0;
  std::int32_t device = -1;
  char host[64] = {};
  char bus_id[16] = {};
  char gpu[64] = {};
};

template <std::size_t n>
void put(char (&field)[n], const std::string& text) {
  text.copy(field, n - 1);
}

template <std::size_t n>
std::string text_of(const char (&field)[n]) {
  return {field, strnlen(field, n)};
}

constexpr std::size_t place_alignment = 256;

std::byte* at(const Memory& memory, std::size_t offset) { return static_cast<std::byte*>(memory.data()) + offset; }

/// One call as it is; several between the start and the end of a group, which comes also if one of them fails.
Enqueue in_a_group(std::vector<Enqueue> calls, Enqueue start, Enqueue end) {
  if (calls.size() == 1) return std::move(calls.front());
  return [calls = std::move(calls), start = std::move(start), end = std::move(end)]() -> Status {
    STRAIT_TRY(start());
    Status first_error;
    for (const Enqueue& call : calls)
      if (Status called = call(); !called && first_error) first_error = std::move(called);
    Status ended = end();
    return first_error ? ended : first_error;
  };
}

}  // namespace

RankRun::RankRun(const Options& options, straitComm_t control, Gpu* gpu, Reporter* reporter, int threads)
    : options_(options),
      control_(control),
      gpu_(gpu),
      comm_(gpu != nullptr ? gpu->comm() : control),
      reporter_(reporter),
      threads_(threads) {}

Status RankRun::run() {
  Status status = measure_all();
  if (!status) {
    // Before the buffers go: kernels of any rank that use them end.
    straitCommAbort(comm_);
    if (baseline_) baseline_->abort();
    straitCommAbort(control_);
  }
  return status;
}

Status RankRun::measure_all() {
  STRAIT_TRY(checked(straitCommUserRank(control_, &rank_), control_, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(control_, &ranks_), control_, "straitCommCount"));
  STRAIT_TRY(find_settings());
  if (!options_.baseline_path.empty()) {
    STRAIT_ASSIGN(baseline_, Baseline::join(options_.baseline_path, control_, *gpu_));
  }
  STRAIT_TRY(learn_ranks());
  for (auto* buffer : {&send_, &receive_}) STRAIT_TRY(allocate(*buffer));
  STRAIT_TRY(barrier());  // allocating may wait for kernels of the process, and those for this rank
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) STRAIT_TRY(run_subjects());
  return barrier();  // nobody leaves while others still need it
}

Status RankRun::find_settings() {
  const auto value_of = [&](const char* name, std::string& value) {
    const char* setting = "";
    const auto found = straitGetSetting(name, &setting);
    value = setting;
    return checked(found, control_, "straitGetSetting");
  };
  std::string wire, wire_calls, algorithm, tuning;
  STRAIT_TRY(value_of("STRAIT_WIRE", wire));
  STRAIT_TRY(value_of("STRAIT_WIRE_CALLS", wire_calls));
  STRAIT_TRY(value_of("STRAIT_ALGORITHM", algorithm));
  STRAIT_TRY(value_of("STRAIT_TUNING_FILE", tuning));
  STRAIT_ASSIGN(const auto of_environment, tools::parse_wire(wire));
  const bool is_exact = wire_calls != "all" && !is_reduction(options_.collective);
  wire_ = options_.wire.value_or(is_exact ? WireFormat::off : *of_environment);
  in_rank_order_ = gpu_ != nullptr || (tuning.empty() && forces_rank_order(algorithm));
  return {};
}

/// Host ranks do as they are told, where the algorithm can do it, and many algorithms add in an order of their own.
bool RankRun::forces_rank_order(const std::string& name) const {
  const Algorithm* const algorithm = find_algorithm(name);
  PlanRequest request;
  request.collective = options_.collective;
  request.ranks = static_cast<std::uint32_t>(ranks_);
  request.peer_memory = options_.registration != 0;
  return algorithm == nullptr || !algorithm->supports(request) || !is_reduction(request.collective) ||
         algorithm->sums == Numerics::rank_order;
}

Status RankRun::allocate(std::optional<Memory>& buffer) {
  const std::size_t beyond = beyond_bytes();
  const std::size_t size = place_bytes(options_.max_bytes) * aggregated();
  const std::size_t staged =
      options_.checks == 0 ? beyond : std::min(options_.max_bytes, options_.check_limit_bytes) + beyond;
  const bool registered = options_.registration != 0;
  const auto on_host = [&] { return registered ? Memory::registered(size, comm_) : Memory::plain(size); };
  const auto on_gpu = [&] {
    return registered ? Memory::registered_on_gpu(size, staged, *gpu_) : Memory::on_gpu(size, staged, *gpu_);
  };
  auto allocated = gpu_ != nullptr ? on_gpu() : on_host();
  if (!allocated) return tl::unexpected(std::move(allocated).error());
  buffer.emplace(std::move(*allocated));
  if (baseline_ && registered) STRAIT_TRY(baseline_->register_memory(buffer->data(), size, options_.registration == 2));
  const std::size_t touched = gpu_ != nullptr ? staged : size;
  std::memset(buffer->host(), 0, touched);
  return buffer->from_host(touched);
}

std::size_t RankRun::beyond_bytes() const {
  const std::size_t elements = guard_elements + options_.extra_elements * static_cast<std::size_t>(ranks_);
  return options_.offset_bytes + elements * sizeof(std::uint64_t);
}

Status RankRun::learn_ranks() {
  PackedRankInfo mine;
  mine.pid = getpid();
  if (gpu_ != nullptr) {
    STRAIT_ASSIGN(const std::string name, gpu_->name());
    STRAIT_ASSIGN(const std::string bus_id, gpu_->bus_id());
    mine.device = gpu_->device();
    put(mine.bus_id, bus_id);
    put(mine.gpu, name);
  }
  put(mine.host, host_name());
  std::vector<PackedRankInfo> packed(static_cast<std::size_t>(ranks_));
  STRAIT_TRY(all_gather(control_, &mine, packed.data(), sizeof mine, "Learning who the ranks are"));
  std::vector<RankInfo> ranks;
  for (int r = 0; r < ranks_; ++r) {
    const PackedRankInfo& info = packed[static_cast<std::size_t>(r)];
    ranks.push_back({r, info.pid, text_of(info.host), info.device, text_of(info.bus_id), text_of(info.gpu)});
  }
  const auto here = std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& r) { return r.host == mine.host; });
  check_threads_ = std::max<std::size_t>(std::thread::hardware_concurrency() / static_cast<std::size_t>(here), 1);
  STRAIT_TRY(limit_sizes(ranks));
  remark_empty_sizes();
  const char *name = "", *why = "";
  STRAIT_TRY(checked(straitCommGetTransport(comm_, &name, &why), comm_, "straitCommGetTransport"));
  in_rank_order_ = in_rank_order_ && !has_levels(name, gpu_ != nullptr);
  if (options_.floors) STRAIT_TRY(measure_links(name));
  if (reporter_ != nullptr)
    reporter_->begin(ranks, threads_, {name, why, wire_}, baseline_ ? std::optional(baseline_->info()) : std::nullopt,
                     links_);
  return {};
}

Status RankRun::measure_links(std::string_view transport) {
  if (ranks_ < 2 || has_levels(transport, gpu_ != nullptr)) {
    const char* why =
        ranks_ < 2 ? "one rank copies to nobody" : "between islands or hosts, several kinds of links bind";
    if (reporter_ != nullptr) reporter_->remark(fmt::format("No floors: {}", why));
    return {};
  }
  if (reporter_ != nullptr) reporter_->progress("measuring the GPUs' links");
  if (transport == "cuda_p2p") {
    STRAIT_ASSIGN(PeerLinkRates rates, measure_peer_rates(*gpu_, control_));
    STRAIT_TRY(all_reduce(control_, rates.out_gbps, Combination::min));
    links_ = rates;
    return {};
  }
  STRAIT_ASSIGN(HostLinkRates rates, measure_host_rates(*gpu_, [&] { return barrier(); }));
  for (double* rate : {&rates.up_gbps, &rates.down_gbps, &rates.duplex_gbps})
    STRAIT_TRY(all_reduce(control_, *rate, Combination::min));
  links_ = rates;
  return {};
}

Status RankRun::limit_sizes(const std::vector<RankInfo>& ranks) {
  const std::string& host = ranks[static_cast<std::size_t>(rank_)].host;
  const auto here = std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& r) { return r.host == host; });
  const double share =
      usable_memory_fraction * static_cast<double>(available_memory_bytes()) / static_cast<double>(here);
  const double buffers = 2 * options_.aggregated;
  auto limit = static_cast<std::int64_t>(share / buffers);
  if (limit == 0) limit = static_cast<std::int64_t>(options_.max_bytes);
  if (gpu_ != nullptr) {
    STRAIT_ASSIGN(const std::size_t free, gpu_->free_bytes());
    limit = std::min(limit, static_cast<std::int64_t>(usable_memory_fraction * static_cast<double>(free) / buffers));
  }
  STRAIT_TRY(all_reduce(control_, limit, Combination::min));
  if (options_.max_bytes <= static_cast<std::size_t>(limit)) return {};
  options_.max_bytes = static_cast<std::size_t>(limit);
  options_.min_bytes = std::min(options_.min_bytes, options_.max_bytes);
  if (reporter_ != nullptr) reporter_->limit_sizes(options_.min_bytes, options_.max_bytes);
  return {};
}

void RankRun::remark_empty_sizes() const {
  if (reporter_ == nullptr || options_.collective == Collective::barrier) return;
  std::size_t largest_bytes = 0;
  for (const DataType type : options_.types)
    for (const std::size_t bytes : sizes_bytes(options_))
      if (geometry(options_.collective, bytes, type, static_cast<std::uint32_t>(ranks_), 0, options_.extra_elements)
              .buffer_count() == 0)
        largest_bytes = std::max(largest_bytes, bytes);
  if (largest_bytes > 0)
    reporter_->remark(fmt::format("Sizes up to {} are too small for {}, and measured as 0 bytes",
                                  counted(largest_bytes, "byte"), counted(static_cast<std::size_t>(ranks_), "rank")));
}

Operation RankRun::operation(const Subject& subject, std::size_t bytes, bool in_place) const {
  return {.collective = options_.collective,
          .type = subject.type,
          .op = subject.op.value_or(ReduceOp::sum),
          .ranks = static_cast<std::uint32_t>(ranks_),
          .root = static_cast<std::uint32_t>(std::max(subject.root, 0)),
          .rank = static_cast<std::uint32_t>(rank_),
          .in_place = in_place,
          .wire = wire_of(subject),
          .exact = baseline_ != nullptr || (!in_rank_order_ && wire_of(subject) == WireFormat::off),
          .seed = verified_calls_,
          .bytes = bytes,
          .extra_elements = options_.extra_elements};
}

/// What the calls are told, so that they do what the check expects. On one rank nothing is on a wire.
WireFormat RankRun::wire_of(const Subject& subject) const {
  const bool can =
      ranks_ > 1 && wire::problem(options_.collective, subject.type, subject.op.value_or(ReduceOp::sum)).empty();
  return can ? wire_ : WireFormat::off;
}

Status RankRun::run_subjects() {
  std::vector<std::optional<ReduceOp>> ops = {std::nullopt};
  if (is_reduction(options_.collective)) ops.assign(options_.ops.begin(), options_.ops.end());
  std::vector<int> roots = {-1};
  if (has_root(options_.collective)) {
    roots = {options_.root};
    if (options_.root < 0) {
      roots.clear();
      for (int r = 0; r < ranks_; ++r) roots.push_back(r);
    }
  }
  for (const DataType type : options_.types)
    for (const auto& op : ops)
      for (const int root : roots) {
        const Subject subject{type, op, root};
        STRAIT_TRY(warm_up(subject));
        for (const std::size_t bytes : sizes_bytes(options_)) STRAIT_TRY(run_size(subject, bytes));
      }
  return {};
}

Status RankRun::warm_up(const Subject& subject) {
  if (options_.warmup_iterations == 0) return barrier();
  for (const std::size_t bytes : sizes_bytes(options_)) {
    const Operation o = operation(subject, bytes, false);
    std::vector<Enqueue> calls = {strait_call(o)};
    if (baseline_) calls.push_back(baseline_call(o));
    if (reporter_ != nullptr)
      reporter_->progress(fmt::format("{}: warming up, {}", name(subject.type), counted(bytes, "byte")));
    for (const Enqueue& call : calls) {
      for (int i = 0; i < options_.warmup_iterations; ++i) STRAIT_TRY(call());
      STRAIT_TRY(complete());
    }
  }
  return barrier();
}

Status RankRun::run_size(const Subject& subject, std::size_t bytes) {
  const Operation out_of_place = operation(subject, bytes, false);
  const Geometry g = out_of_place.geometry(out_of_place.rank);
  Row row;
  row.bytes = g.buffer_count() * size_bytes(subject.type);
  row.count = g.count;
  row.subject = subject;
  if (links_ && out_of_place.wire == WireFormat::off)
    row.floor = floor_of(options_.collective, row.bytes, out_of_place.ranks, *links_);
  if (reporter_ != nullptr)
    reporter_->progress(fmt::format("{}: {}, out of place", name(subject.type), counted(row.bytes, "byte")));
  STRAIT_ASSIGN(const auto out, measure(out_of_place));
  row.out_of_place = out.front();
  if (baseline_) row.baseline_out_of_place = out.back();
  if (g.has_in_place) {
    if (reporter_ != nullptr)
      reporter_->progress(fmt::format("{}: {}, in place", name(subject.type), counted(row.bytes, "byte")));
    STRAIT_ASSIGN(const auto in, measure(operation(subject, bytes, true)));
    row.in_place = in.front();
    if (baseline_) row.baseline_in_place = in.back();
  }
  if (reporter_ != nullptr) reporter_->add(row);
  return {};
}

std::size_t RankRun::place_bytes(std::size_t bytes) const {
  return (bytes + beyond_bytes() + place_alignment - 1) / place_alignment * place_alignment;
}

std::vector<std::size_t> RankRun::places(const Operation& o) const {
  std::vector<std::size_t> offsets_bytes;
  for (std::size_t call = 0; call < aggregated(); ++call)
    offsets_bytes.push_back(options_.offset_bytes + call * place_bytes(o.bytes));
  return offsets_bytes;
}

Enqueue RankRun::strait_call(const Operation& o) const {
  std::vector<Enqueue> calls;
  for (const std::size_t place : places(o)) {
    const Call call(arguments_of(o, at(*send_, place), at(*receive_, place)), o.wire, comm_,
                    gpu_ != nullptr ? gpu_->stream() : nullptr);
    calls.push_back([call, comm = comm_] { return checked(call(), comm, "A measured call"); });
  }
  return in_a_group(
      std::move(calls), [] { return checked(straitGroupStart(), nullptr, "straitGroupStart"); },
      [comm = comm_] { return checked(straitGroupEnd(), comm, "straitGroupEnd"); });
}

Enqueue RankRun::baseline_call(const Operation& o) const {
  std::vector<Enqueue> calls;
  for (const std::size_t place : places(o))
    calls.push_back([arguments = arguments_of(o, at(*send_, place), at(*receive_, place)), this] {
      return baseline_->call(arguments);
    });
  return in_a_group(
      std::move(calls), [this] { return baseline_->group_start(); }, [this] { return baseline_->group_end(); });
}

Status RankRun::complete() { return gpu_ != nullptr ? gpu_->wait() : Status(); }

Status RankRun::barrier() { return checked(straitBarrier(control_, nullptr), control_, "straitBarrier"); }

Status RankRun::average(double& time_us) {
  switch (options_.average) {
    case Average::rank0:
      return broadcast(control_, &time_us, sizeof time_us, "Passing on rank 0's time");
    case Average::mean:
      return all_reduce(control_, time_us, Combination::mean);
    case Average::min:
      return all_reduce(control_, time_us, Combination::min);
    case Average::max:
      return all_reduce(control_, time_us, Combination::max);
  }
  return {};
}

}  // namespace strait::perf
