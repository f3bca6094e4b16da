#include "perf/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "parsed_option.hpp"
#include "words.hpp"

namespace strait::perf {
namespace {

using tools::add_parsed;
using tools::parse_collective;
using tools::parse_ops;
using tools::parse_size;
using tools::parse_types;
using tools::parse_wire;

constexpr int most_threads = 1024;
constexpr std::size_t most_sizes = 100'000;
constexpr int most_gpus = 1024;  // of a thread
constexpr double most_budget_ms = 1e9;
const CLI::Range at_least_none(0, std::numeric_limits<int>::max());
const CLI::Range at_least_one(1, std::numeric_limits<int>::max());

/// Of an enumeration whose values the user gives as numbers from 0 to `last`.
template <class Enum>
auto enum_parser(int last) {
  return [last](std::string_view word) -> Result<Enum> {
    if (word.size() != 1 || word[0] < '0' || word[0] > '0' + last)
      return fail(Code::invalid_argument,
                  "'" + std::string(word) + "' is not a number from 0 to " + std::to_string(last));
    return static_cast<Enum>(word[0] - '0');
  };
}

void declare_what(CLI::App& app, Options& o) {
  add_parsed(app, "collective", o.collective, parse_collective, "Collective to measure, such as all-reduce")
      ->required();
  add_parsed(app, "-d,--datatype", o.types, parse_types, "Element type, or all (default: float)");
  add_parsed(app, "-o,--op", o.ops, parse_ops,
             "Reduction: sum, prod, max, min, avg, mulsum (sum of inputs, each times its rank's scalar), or all "
             "(default: sum)");
  add_parsed(app, "--wire", o.wire, parse_wire,
             "Wire format of floats: int8, fp8, int4 or off (default: that of STRAIT_WIRE)");
  add_parsed(app, "-r,--root", o.root, parse_root, "Root rank, or all (default: 0)");
  const char* sizes = "Sizes";
  add_parsed(app, "-b,--minbytes", o.min_bytes, parse_size, "Smallest size (default: 32M)")->group(sizes);
  add_parsed(app, "-e,--maxbytes", o.max_bytes, parse_size, "Largest size (default: 32M)")->group(sizes);
  add_parsed(app, "-i,--stepbytes", o.step_bytes, parse_size, "Step between sizes (default: 1M)")->group(sizes);
  app.add_option("-f,--stepfactor", o.step_factor, "Factor between sizes, instead of -i")
      ->check(at_least_one)
      ->group(sizes);
  app.add_option("--extra-elements", o.extra_elements, "Elements added to each size, to test odd counts")
      ->check(at_least_none)
      ->group(sizes);
  app.add_option("--offset-bytes", o.offset_bytes,
                 "Offset at which calls begin in their buffers, which are page-aligned")
      ->check(CLI::Range(0, 4095))
      ->group(sizes);
}

void declare_how(CLI::App& app, Options& o) {
  const char* ranks = "Ranks";
  app.add_option("-t,--nthreads", o.threads,
                 "Threads of this process; each is a rank, or drives -g GPUs (default: 1 under a launcher or with -g, "
                 "else one per core, "
                 "at least 2)")
      ->check(CLI::Range(1, most_threads))
      ->group(ranks);
  app.add_option("-g,--ngpus", o.gpus, "GPUs of each thread, one rank each; 0: host ranks")
      ->capture_default_str()
      ->check(CLI::Range(0, most_gpus))
      ->group(ranks);
  const char* timing = "Timing";
  app.add_option("-n,--iters", o.iterations, "Timed iterations")
      ->capture_default_str()
      ->check(at_least_one)
      ->group(timing);
  app.add_option("-m,--agg_iters", o.aggregated,
                 "Calls per iteration, in one group, each with its own buffers; only the first is verified")
      ->capture_default_str()
      ->check(at_least_one)
      ->group(timing);
  app.add_option("-w,--warmup_iters", o.warmup_iterations, "Iterations before the timed ones")
      ->capture_default_str()
      ->check(at_least_none)
      ->group(timing);
  app.add_option("-N,--run_cycles", o.cycles, "Run all sizes this many times; 0: until interrupted")
      ->capture_default_str()
      ->check(at_least_none)
      ->group(timing);
  add_parsed(app, "-a,--average", o.average, enum_parser<Average>(3),
             "Time to report: 0 of rank 0, 1 mean of all ranks, 2 minimum, 3 maximum (default: 1)")
      ->group(timing);
  add_parsed(app, "-z,--blocking", o.blocking, enum_parser<Blocking>(3),
             "After each iteration: 0 nothing, 1 a barrier, 2 a wait, 3 a barrier that is not timed (default: 0)")
      ->group(timing);
  app.add_option("-G,--cudagraph", o.graph_launches,
                 "Capture the iterations in a CUDA graph, and launch it this many times")
      ->check(at_least_none)
      ->group(timing);
  app.add_option("--budget-ms", o.budget_ms,
                 "Time limit for each size, in place and out of place, and library: beyond it fewer calls are made, at "
                 "least one a turn")
      ->check(CLI::Range(1e-6, most_budget_ms))
      ->group(timing);
  app.add_option("-C,--report_cputime", o.cpu_time, "1: print CPU time of the calling thread instead of latency")
      ->check(CLI::Range(0, 1))
      ->group(timing);
}

void declare_checks_and_results(CLI::App& app, Options& o) {
  app.add_option("-c,--check", o.checks, "Number of verified runs of each size; 0: none")
      ->capture_default_str()
      ->check(at_least_none);
  add_parsed(app, "--check-limit", o.check_limit_bytes, parse_size,
             "Sizes larger than this are timed but not verified");
  app.add_option("-R,--local_register", o.registration,
                 "1: register buffers with the communicator; 2: a baseline's as symmetric windows")
      ->check(CLI::Range(0, 2));
  app.add_option("--baseline", o.baseline_path, "A libnccl.so.2 to measure and verify in turn with Strait");
  app.add_option("--turns", o.turns, "Timed passes of each library when there is a baseline; the median is reported")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_flag(
      "--floors", o.floors,
      "First measure the GPUs' links, to one another or to the host, and show the least time that each size can take");
  app.add_option("--simulate", o.simulate,
                 "Predict instead of measuring, for a machine of `strait topo --list` or one that a file describes");
  app.add_flag(
      "--calibrate", o.calibrates,
      "First measure this machine's rates (10 s, longer if it is busy) and keep them, unless some are kept already");
  app.add_option("--json", o.json_path, "Write machine, settings and results to this file");
  app.add_option("--plot", o.plot_path, "Draw bandwidth and latency against size into this file (.svg or .html)");
}

}  // namespace

Result<int> parse_root(std::string_view text) {
  if (text == "all" || text == "-1") return -1;
  int root = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), root);
  if (failure != std::errc{} || end != text.data() + text.size() || root < 0)
    return fail(Code::invalid_argument, "'" + std::string(text) + "' is not a rank. Write a number from 0, or all");
  return root;
}

void declare_options(CLI::App& app, Options& options) {
  declare_what(app, options);
  declare_how(app, options);
  declare_checks_and_results(app, options);
}

namespace {
/// Every call that the options name must be one that can have the wire format.
Status validate_wire(const Options& o) {
  if (!o.wire || *o.wire == WireFormat::off) return {};
  for (const DataType type : o.types)
    for (const ReduceOp op : o.ops)
      if (const std::string problem = wire::problem(o.collective, type, op); !problem.empty())
        return fail(Code::invalid_argument, "--wire " + std::string(name(*o.wire)) + ": " + problem);
  return {};
}
}  // namespace

namespace {
/// What is about measuring, where nothing is measured.
Status validate_simulation(const Options& o) {
  if (o.simulate.empty()) return {};
  const Options defaults;
  const std::pair<bool, std::string_view> asked[] = {
      {o.aggregated != defaults.aggregated, "--agg_iters"},
      {o.cycles != defaults.cycles, "--run_cycles"},
      {o.blocking != defaults.blocking, "--blocking"},
      {o.graph_launches != defaults.graph_launches, "--cudagraph"},
      {o.budget_ms != defaults.budget_ms, "--budget-ms"},
      {o.cpu_time != defaults.cpu_time, "--report_cputime"},
      {o.checks > defaults.checks, "--check"},
      {o.registration != defaults.registration, "--local_register"},
      {!o.baseline_path.empty(), "--baseline"},
      {o.turns != defaults.turns, "--turns"},
      {o.floors, "--floors"},
      {o.offset_bytes != defaults.offset_bytes, "--offset-bytes"},
      {o.calibrates, "--calibrate"},
  };
  std::string names;
  for (const auto& [is_asked, name] : asked)
    if (is_asked) names += (names.empty() ? "" : ", ") + std::string(name);
  if (names.empty()) return {};
  return fail(Code::invalid_argument, "--simulate measures nothing: leave out " + names);
}

Status validate_registration(const Options& o) {
  if (o.registration != 2 || o.gpus != 0) return {};
  return fail(Code::unsupported,
              "--local_register 2: NCCL's symmetric windows. Buffers of host ranks that -R 1 registers are symmetric "
              "already");
}

Status validate_offset(const Options& o) {
  for (const DataType type : o.types)
    if (o.offset_bytes % size_bytes(type) != 0)
      return fail(Code::invalid_argument, "--offset-bytes " + std::to_string(o.offset_bytes) + ": elements of " +
                                              std::string(name(type)) + " begin at multiples of " +
                                              std::to_string(size_bytes(type)) + " bytes. Give such a multiple");
  return {};
}

/// There must be sizes, and not all of them may be below one element. Smaller sizes among larger ones are measured as 0
/// bytes, as by nccl-tests, and the table says so.
Status validate_range(const Options& o) {
  if (o.min_bytes > o.max_bytes)
    return fail(Code::invalid_argument, "--minbytes is above --maxbytes: " + std::to_string(o.min_bytes) +
                                            " bytes, and " + std::to_string(o.max_bytes) +
                                            ". Where -b or -e is left out, its default counts. Give both, the smaller "
                                            "size with -b");
  if (o.max_bytes == 0 || o.extra_elements != 0 || o.collective == Collective::barrier) return {};
  for (const DataType type : o.types)
    if (o.max_bytes < size_bytes(type))
      return fail(Code::invalid_argument, "--maxbytes " + std::to_string(o.max_bytes) + ": an element of " +
                                              std::string(name(type)) + " has " + std::to_string(size_bytes(type)) +
                                              " bytes. Give at least as many, or 0 to measure empty calls");
  return {};
}

/// What needs GPU ranks.
Status validate_gpu_options(const Options& o) {
  if (o.graph_launches != 0 && o.gpus == 0)
    return fail(Code::invalid_argument, "--cudagraph: host ranks have no CUDA graphs. Measure GPUs with -g 1");
  if (o.floors && o.gpus == 0)
    return fail(Code::invalid_argument,
                "--floors: they are of links that are measured, of GPUs. Measure them with -g 1");
  if (o.baseline_path.empty() && o.turns != Options().turns)
    return fail(Code::invalid_argument, "--turns are those of Strait and a baseline. Give --baseline, or leave it out");
  if (o.baseline_path.empty()) return {};
  if (o.gpus == 0) return fail(Code::invalid_argument, "--baseline: NCCL joins GPUs only. Measure them with -g 1");
  if (o.collective == Collective::barrier)
    return fail(Code::unsupported, "--baseline: NCCL has no barrier. Measure without it");
  return {};
}
}  // namespace

Status validate(const Options& o) {
  STRAIT_TRY(validate_wire(o));
  STRAIT_TRY(validate_simulation(o));
  STRAIT_TRY(validate_range(o));
  if (o.step_factor <= 1 && o.step_bytes == 0 && o.min_bytes < o.max_bytes)
    return fail(Code::invalid_argument, "--stepbytes 0 never reaches --maxbytes. Give a step, or a factor with -f 2");
  if (o.step_factor <= 1 && o.min_bytes < o.max_bytes && o.step_bytes > o.max_bytes - o.min_bytes)
    return fail(Code::invalid_argument, "--stepbytes " + std::to_string(o.step_bytes) + " goes beyond --maxbytes " +
                                            std::to_string(o.max_bytes) +
                                            " at once. Give a smaller step, or a factor with -f 2");
  if (o.step_factor <= 1 && o.step_bytes > 0 && (o.max_bytes - o.min_bytes) / o.step_bytes >= most_sizes)
    return fail(Code::invalid_argument, "--stepbytes " + std::to_string(o.step_bytes) + " makes more than " +
                                            std::to_string(most_sizes) +
                                            " sizes. Give a larger step, or a factor with -f 2");
  STRAIT_TRY(validate_offset(o));
  STRAIT_TRY(validate_registration(o));
  STRAIT_TRY(validate_gpu_options(o));
  if (o.cycles == 0 && !(o.json_path.empty() && o.plot_path.empty()))
    return fail(Code::invalid_argument,
                "--run_cycles 0 runs until it is interrupted, so that --json and --plot would never be written. Give a "
                "number of cycles");
  const std::string_view path = o.plot_path;
  if (!path.empty() && !path.ends_with(".svg") && !path.ends_with(".html"))
    return fail(Code::invalid_argument, "--plot " + o.plot_path + ": the name must end in .svg or .html");
  if (!path.empty() && o.collective == Collective::barrier)
    return fail(Code::invalid_argument, "--plot draws against size, and a barrier has none. Use --json");
  return {};
}

std::vector<std::size_t> sizes_bytes(const Options& o) {
  if (o.collective == Collective::barrier) return {0};
  std::vector<std::size_t> sizes;
  std::size_t size = o.min_bytes;
  while (size <= o.max_bytes) {
    sizes.push_back(size);
    if (o.step_factor > 1 && size > o.max_bytes / o.step_factor) break;  // the next could be beyond all numbers
    const std::size_t next = o.step_factor > 1 ? size * o.step_factor : size + o.step_bytes;
    if (next <= size) break;  // 0 times a factor
    size = next;
  }
  return sizes;
}

}  // namespace strait::perf
