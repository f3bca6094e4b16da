#include "perf/rank_run.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>

namespace strait::perf {
namespace {

using Clock = std::chrono::steady_clock;

/// Single iterations are timed in a pass of its own, so that reading the clock does not enter the mean.
constexpr double single_pass_us = 200'000;
constexpr int min_single_iterations = 10;
constexpr int max_single_iterations = 1000;
constexpr double usable_memory_fraction = 0.8;

double elapsed_us(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

double thread_cpu_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

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
struct WireInfo {
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

/// Fills a buffer on whatever side it lies.
Status fill(const Operation& o, const Contents& contents, Memory& memory) {
  write(o, contents, memory.host());
  return memory.from_host(extent_bytes(o, contents));
}

/// The elements of a buffer that differ from what it must hold.
Result<std::size_t> wrong_in(const Operation& o, const Contents& contents, Memory& memory) {
  STRAIT_TRY(memory.to_host(extent_bytes(o, contents)));
  return count_wrong(o, contents, memory.host());
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
    straitCommAbort(control_);
  }
  return status;
}

Status RankRun::measure_all() {
  STRAIT_TRY(checked(straitCommUserRank(control_, &rank_), control_, "straitCommUserRank"));
  STRAIT_TRY(checked(straitCommCount(control_, &ranks_), control_, "straitCommCount"));
  if (options_.root >= ranks_)
    return fail(Code::invalid_argument, fmt::format("--root {} is not a rank: there are {}", options_.root, ranks_));
  STRAIT_TRY(find_wire());
  STRAIT_TRY(learn_ranks());
  for (auto* buffer : {&send_, &receive_}) STRAIT_TRY(allocate(*buffer));
  STRAIT_TRY(barrier());  // allocating may wait for kernels of the process, and those for this rank
  for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) STRAIT_TRY(run_subjects());
  return barrier();  // nobody leaves while others still need it
}

Status RankRun::find_wire() {
  const char* setting = nullptr;
  STRAIT_TRY(checked(straitGetSetting("STRAIT_WIRE", &setting), control_, "straitGetSetting"));
  STRAIT_ASSIGN(const auto of_environment, parse_wire(setting));
  wire_ = options_.wire.value_or(*of_environment);
  return {};
}

Status RankRun::allocate(std::optional<Memory>& buffer) {
  const std::size_t size = options_.max_bytes + guard_elements * sizeof(std::uint64_t);
  auto allocated = gpu_ != nullptr            ? Memory::on_gpu(size, *gpu_)
                   : options_.register_memory ? Memory::registered(size, comm_)
                                              : Memory::plain(size);
  if (!allocated) return tl::unexpected(std::move(allocated).error());
  buffer.emplace(std::move(*allocated));
  std::memset(buffer->host(), 0, size);
  return buffer->from_host(size);
}

Status RankRun::learn_ranks() {
  WireInfo mine;
  mine.pid = getpid();
  if (gpu_ != nullptr) {
    STRAIT_ASSIGN(const std::string name, gpu_->name());
    STRAIT_ASSIGN(const std::string bus_id, gpu_->bus_id());
    mine.device = gpu_->device();
    put(mine.bus_id, bus_id);
    put(mine.gpu, name);
  }
  gethostname(mine.host, sizeof mine.host - 1);
  std::vector<WireInfo> wire(static_cast<std::size_t>(ranks_));
  STRAIT_TRY(checked(straitAllGather(&mine, wire.data(), sizeof mine, straitUint8, control_, nullptr), control_,
                     "Learning who the ranks are"));
  std::vector<RankInfo> ranks;
  for (int r = 0; r < ranks_; ++r) {
    const WireInfo& info = wire[static_cast<std::size_t>(r)];
    ranks.push_back({r, info.pid, text_of(info.host), info.device, text_of(info.bus_id), text_of(info.gpu)});
  }
  STRAIT_TRY(limit_sizes(ranks));
  const char *name = "", *why = "";
  STRAIT_TRY(checked(straitCommGetTransport(comm_, &name, &why), comm_, "straitCommGetTransport"));
  if (reporter_ != nullptr) reporter_->begin(ranks, threads_, {name, why});
  return {};
}

Status RankRun::limit_sizes(const std::vector<RankInfo>& ranks) {
  const std::string& host = ranks[static_cast<std::size_t>(rank_)].host;
  const auto here = std::count_if(ranks.begin(), ranks.end(), [&](const RankInfo& r) { return r.host == host; });
  const double share =
      usable_memory_fraction * static_cast<double>(available_memory_bytes()) / static_cast<double>(here);
  auto limit = static_cast<std::int64_t>(share / 2);  // two buffers
  if (limit == 0) limit = static_cast<std::int64_t>(options_.max_bytes);
  if (gpu_ != nullptr) {
    STRAIT_ASSIGN(const std::size_t free, gpu_->free_bytes());
    limit = std::min(limit, static_cast<std::int64_t>(usable_memory_fraction * static_cast<double>(free) / 2));
  }
  STRAIT_TRY(all_reduce(&limit, 1, straitInt64, straitMin));
  if (options_.max_bytes <= static_cast<std::size_t>(limit)) return {};
  options_.max_bytes = static_cast<std::size_t>(limit);
  options_.min_bytes = std::min(options_.min_bytes, options_.max_bytes);
  if (reporter_ != nullptr)
    reporter_->remark(fmt::format("Reducing maxBytes to {} due to memory limitation", options_.max_bytes));
  return {};
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
          .seed = verified_calls_,
          .bytes = bytes};
}

/// What the calls are told, so that they do what the check expects. On one rank nothing is on a wire.
WireFormat RankRun::wire_of(const Subject& subject) const {
  const bool can = gpu_ == nullptr && ranks_ > 1 && wire::is_wire_collective(options_.collective) &&
                   wire::is_wire_type(subject.type) && wire::is_wire_op(subject.op.value_or(ReduceOp::sum));
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
  for (const std::size_t bytes : sizes_bytes(options_)) {
    const Call call = make_call(operation(subject, bytes, false));
    if (reporter_ != nullptr) reporter_->progress(fmt::format("{}: warming up, {} bytes", name(subject.type), bytes));
    for (int i = 0; i < options_.warmup_iterations; ++i) STRAIT_TRY(checked(call(), comm_, "Warming up"));
    STRAIT_TRY(complete());
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
  if (reporter_ != nullptr)
    reporter_->progress(fmt::format("{}: {} bytes, out of place", name(subject.type), row.bytes));
  STRAIT_ASSIGN(row.out_of_place, measure(out_of_place));
  if (g.has_in_place) {
    if (reporter_ != nullptr) reporter_->progress(fmt::format("{}: {} bytes, in place", name(subject.type), row.bytes));
    STRAIT_ASSIGN(row.in_place, measure(operation(subject, bytes, true)));
  }
  if (reporter_ != nullptr) reporter_->add(row);
  return {};
}

Call RankRun::make_call(const Operation& o) const {
  return {o, send_->data(), receive_->data(), comm_, gpu_ != nullptr ? gpu_->stream() : nullptr};
}

Result<Measurement> RankRun::measure(Operation o) {
  if (!o.in_place) STRAIT_TRY(fill(o, send_contents(o), *send_));
  STRAIT_TRY(fill(o, receive_contents_before(o), *receive_));
  const Call call = make_call(o);
  Measurement m;
  STRAIT_TRY(checked(call(), comm_, "The first call of a size"));
  STRAIT_TRY(complete());
  STRAIT_TRY(time_mean(call, m));
  STRAIT_TRY(time_single_iterations(call, m));
  const auto moved = static_cast<double>(algorithm_bytes(o.collective, o.geometry(o.rank), o.type, o.ranks));
  m.algorithm_gbps = m.time_us > 0 ? moved / m.time_us * 1e-3 : 0;
  m.bus_gbps = m.algorithm_gbps * bus_factor(o.collective, o.ranks);
  for (int i = 0; i < options_.checks; ++i) {
    STRAIT_ASSIGN(const std::int64_t wrong, verify(o, call));
    m.wrong = m.wrong.value_or(0) + wrong;
  }
  return m;
}

Status RankRun::time_mean(const Call& call, Measurement& m) {
  STRAIT_TRY(barrier());
  double timed_us = 0;
  double cpu_us = 0;
  const double cpu_start_us = thread_cpu_us();
  const auto start = Clock::now();
  if (options_.blocking == Blocking::barrier_untimed) {
    for (int i = 0; i < options_.iterations; ++i) {
      const auto iteration_start = Clock::now();
      STRAIT_TRY(checked(call(), comm_, "A timed call"));
      STRAIT_TRY(complete());
      timed_us += elapsed_us(iteration_start);
      STRAIT_TRY(barrier());
    }
    cpu_us = thread_cpu_us() - cpu_start_us;
  } else {
    for (int i = 0; i < options_.iterations; ++i) {
      STRAIT_TRY(checked(call(), comm_, "A timed call"));
      if (options_.blocking != Blocking::none) STRAIT_TRY(complete());
      if (options_.blocking == Blocking::barrier_timed) STRAIT_TRY(barrier());
    }
    cpu_us = thread_cpu_us() - cpu_start_us;  // of GPU ranks: what enqueueing takes, without the wait
    STRAIT_TRY(complete());
    timed_us = elapsed_us(start);
  }
  m.time_us = timed_us / options_.iterations;
  m.cpu_time_us = cpu_us / options_.iterations;
  STRAIT_TRY(average(m.time_us));
  return average(m.cpu_time_us);
}

Status RankRun::time_single_iterations(const Call& call, Measurement& m) {
  // time_us is the same on all ranks by now, and so is the number of iterations.
  const double fitting = m.time_us > 0 ? single_pass_us / m.time_us : max_single_iterations;
  const auto iterations =
      static_cast<std::size_t>(std::clamp(fitting, double{min_single_iterations}, double{max_single_iterations}));
  std::vector<double> times_us(iterations);
  for (double& time_us : times_us) {
    if (options_.blocking == Blocking::barrier_untimed) STRAIT_TRY(barrier());
    const auto start = Clock::now();
    STRAIT_TRY(checked(call(), comm_, "A timed call"));
    STRAIT_TRY(complete());
    if (options_.blocking == Blocking::barrier_timed) STRAIT_TRY(barrier());
    time_us = elapsed_us(start);
  }
  m.p50_us = percentile(times_us, 50);
  m.p99_us = percentile(times_us, 99);
  STRAIT_TRY(average(m.p50_us));
  return average(m.p99_us);
}

Result<std::int64_t> RankRun::verify(Operation o, const Call& call) {
  o.seed = ++verified_calls_;  // ranks verify the same calls in the same order
  if (!o.in_place) STRAIT_TRY(fill(o, send_contents(o), *send_));
  STRAIT_TRY(fill(o, receive_contents_before(o), *receive_));
  STRAIT_TRY(checked(call(), comm_, "The verified call"));
  STRAIT_TRY(complete());
  STRAIT_ASSIGN(std::size_t wrong_here, wrong_in(o, receive_contents_after(o), *receive_));
  if (!o.in_place) {
    STRAIT_ASSIGN(const std::size_t changed, wrong_in(o, send_contents(o), *send_));
    wrong_here += changed;
  }
  if (wrong_here != 0)  // said here too, because the sum below is the library's own work
    fmt::print(stderr, "strait perf: rank {}: {} wrong elements, {} {} of {} bytes, {}, seed {}\n", rank_, wrong_here,
               name(o.collective), name(o.type), o.bytes, o.in_place ? "in place" : "out of place", o.seed);
  auto wrong = static_cast<std::int64_t>(wrong_here);
  STRAIT_TRY(all_reduce(&wrong, 1, straitInt64, straitSum));
  wrong_ += std::max(wrong, static_cast<std::int64_t>(wrong_here));
  return wrong;
}

Status RankRun::complete() { return gpu_ != nullptr ? gpu_->wait() : Status(); }

Status RankRun::barrier() { return checked(straitBarrier(control_, nullptr), control_, "straitBarrier"); }

Status RankRun::all_reduce(void* values, std::size_t count, straitDataType_t type, straitRedOp_t op) {
  return checked(straitAllReduce(values, values, count, type, op, control_, nullptr), control_, "straitAllReduce");
}

Status RankRun::average(double& time_us) {
  switch (options_.average) {
    case Average::rank0:
      return checked(straitBroadcast(&time_us, &time_us, 1, straitFloat64, 0, control_, nullptr), control_,
                     "straitBroadcast");
    case Average::mean:
      return all_reduce(&time_us, 1, straitFloat64, straitAvg);
    case Average::min:
      return all_reduce(&time_us, 1, straitFloat64, straitMin);
    case Average::max:
      return all_reduce(&time_us, 1, straitFloat64, straitMax);
  }
  return {};
}

}  // namespace strait::perf
