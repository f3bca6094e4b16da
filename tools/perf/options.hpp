#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"
#include "base/wire_format.hpp"

namespace CLI {
class App;
}

namespace strait::perf {

/// How the times of the ranks become the one that is printed. Values of `--average`.
enum class Average : int { rank0 = 0, mean = 1, min = 2, max = 3 };

/// Values of `--blocking`. Host calls are complete when they return, so `wait` measures what `none` does; on GPUs
/// `none` waits for all iterations together and the others for each.
enum class Blocking : int { none = 0, barrier_timed = 1, wait = 2, barrier_untimed = 3 };

/// What `strait perf` was asked for; the defaults and meanings are those of nccl-tests where it has the option.
struct Options {
  Collective collective = Collective::all_reduce;
  std::size_t min_bytes = std::size_t{32} << 20;
  std::size_t max_bytes = std::size_t{32} << 20;
  std::size_t step_bytes = std::size_t{1} << 20;
  std::size_t step_factor = 1;  ///< above 1: sizes are multiplied, and step_bytes is not used
  int iterations = 20;
  int aggregated = 1;  ///< calls of an iteration, in a group
  int warmup_iterations = 1;
  int checks = 1;
  std::vector<DataType> types = {DataType::float32};
  std::vector<ReduceOp> ops = {ReduceOp::sum};
  int root = 0;  ///< -1: each rank in turn
  Blocking blocking = Blocking::none;
  int threads = 0;  ///< 0: one under a launcher or with GPUs, else one a core but at least two
  int gpus = 0;     ///< of each thread; 0: host ranks
  int cycles = 1;   ///< 0: until interrupted
  Average average = Average::mean;
  bool cpu_time = false;
  int registration = 0;         ///< 1: buffers from straitMemAlloc, registered
  int graph_launches = 0;       ///< above 0: the iterations lie in a CUDA graph, which is launched so often
  std::string baseline_path{};  ///< a libnccl.so.2 to measure in turn with Strait
  int turns = 5;                ///< timed passes of each library beside a baseline, in turn; the median counts
  double budget_ms = 0;         ///< above 0: a size that would take longer is called less often, once a turn at least
  std::size_t check_limit_bytes = std::numeric_limits<std::size_t>::max();  ///< larger sizes are timed only
  std::size_t extra_elements = 0;                                           ///< in each size, beyond what it says
  std::size_t offset_bytes = 0;                                             ///< where calls begin in their buffers
  std::optional<WireFormat> wire;  ///< none: STRAIT_WIRE, for the calls that can have one
  std::string
      simulate;  ///< predict on this built-in machine or file instead of measuring; ranks are -t times -g, or all
  bool floors = false;      ///< GPU ranks: what the links allow at best, beside the times
  bool calibrates = false;  ///< first, where this machine has no rates yet
  std::string json_path;
  std::string plot_path;
};

/// A rank, or "all" or -1 for each rank in turn.
Result<int> parse_root(std::string_view text);

/// Declares the options on a subcommand. CLI11 fills `options` while parsing.
void declare_options(CLI::App& app, Options& options);
/// What only holds between options: a range that is empty, options that GPU ranks do not have.
Status validate(const Options& options);

/// The sizes to measure, in bytes, ascending.
std::vector<std::size_t> sizes_bytes(const Options& options);

}  // namespace strait::perf
