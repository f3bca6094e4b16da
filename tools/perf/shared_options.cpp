#include "perf/shared_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace strait::perf {
namespace {

template <class T>
std::string names_of(const std::vector<T>& values) {
  std::string names;
  for (const T value : values) names += (names.empty() ? "" : ",") + std::string(name(value));
  return names;
}

std::string limit_text(std::size_t bytes) {
  return bytes == std::numeric_limits<std::size_t>::max() ? "none" : std::to_string(bytes);
}

std::string_view yes_or_no(bool given) { return given ? "given" : "left out"; }

/// Takes the first line off `text`.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

}  // namespace

std::string shared_options(const Options& o, int threads) {
  std::string lines;
  const auto add = [&](std::string_view name, const auto& value) { lines += fmt::format("{} {}\n", name, value); };
  add("collective", name(o.collective));
  add("--nthreads", threads);
  add("--ngpus", o.gpus);
  add("--datatype", names_of(o.types));
  add("--op", names_of(o.ops));
  add("--wire", o.wire ? name(*o.wire) : "that of STRAIT_WIRE");
  add("--root", o.root < 0 ? "all" : std::to_string(o.root));
  add("--minbytes", o.min_bytes);
  add("--maxbytes", o.max_bytes);
  add("--stepbytes", o.step_bytes);
  add("--stepfactor", o.step_factor);
  add("--extra-elements", o.extra_elements);
  add("--offset-bytes", o.offset_bytes);
  add("--iters", o.iterations);
  add("--agg_iters", o.aggregated);
  add("--warmup_iters", o.warmup_iterations);
  add("--run_cycles", o.cycles);
  add("--average", static_cast<int>(o.average));
  add("--blocking", static_cast<int>(o.blocking));
  add("--cudagraph", o.graph_launches);
  add("--budget-ms", o.budget_ms);
  add("--report_cputime", static_cast<int>(o.cpu_time));
  add("--check", o.checks);
  add("--check-limit", limit_text(o.check_limit_bytes));
  add("--local_register", o.registration);
  add("--baseline", yes_or_no(!o.baseline_path.empty()));
  add("--turns", o.turns);
  add("--floors", yes_or_no(o.floors));
  return lines;
}

std::string difference_to_first(std::string_view mine, std::string_view first) {
  while (!mine.empty() || !first.empty()) {
    const std::string_view own = take_line(mine);
    const std::string_view other = take_line(first);
    if (own == other) continue;
    const std::size_t name_length = own.find(' ');
    if (name_length == own.npos || own.substr(0, name_length) != other.substr(0, other.find(' ')))
      return "it has options that process 0 does not know, or the other way round. Start the same version everywhere";
    return fmt::format("{} is {} here, and {} in process 0. Give all processes of a run the same options",
                       own.substr(0, name_length), own.substr(name_length + 1), other.substr(name_length + 1));
  }
  return "";
}

}  // namespace strait::perf
