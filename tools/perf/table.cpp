#include "perf/table.hpp"
#include "words.hpp"

#include <fmt/format.h>
#include <strait/strait.h>

#include <array>
#include <optional>
#include <string_view>

namespace strait::perf {
namespace {

std::string program(const Options& options) { return "strait perf " + std::string(name(options.collective)); }

std::string measurement(const std::optional<Measurement>& m, bool cpu_time) {
  if (!m) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", fitted(cpu_time ? m->cpu_time_us : m->time_us, 7),
                     fitted(m->algorithm_gbps, 6), fitted(m->bus_gbps, 6),
                     m->wrong ? std::to_string(*m->wrong) : "N/A");
}

std::string percentiles(const std::optional<Measurement>& m) {
  if (!m) return fmt::format("  {:>7}  {:>7}", "N/A", "N/A");
  return fmt::format("  {:>7}  {:>7}", fitted(m->p50_us, 7), fitted(m->p99_us, 7));
}

std::string comparison(const std::optional<Measurement>& ours, const std::optional<Measurement>& baseline,
                       bool cpu_time) {
  if (!ours || !baseline) return fmt::format("  {:>7}  {:>8}  {:>5}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A", "N/A");
  const auto wrong = [](const Measurement& m) { return m.wrong ? std::to_string(*m.wrong) : "N/A"; };
  const auto time = [&](const Measurement& m) { return cpu_time ? m.cpu_time_us : m.time_us; };
  return fmt::format("  {:>7}  {:>8}  {:>5}  {:>6}  {:>6}", fitted(time(*ours), 7), fitted(time(*baseline), 8),
                     fitted(ratio(*ours, *baseline), 5), wrong(*ours), wrong(*baseline));
}

std::string place(const RankInfo& r) {
  return r.device < 0 ? "host memory" : fmt::format("device {:2} [{}] {}", r.device, r.bus_id, r.gpu);
}

/// Nothing where all calls are exact. Calls name their format, and so have it at any size.
std::string wire_line(const Options& o, WireFormat wire, std::size_t ranks) {
  if (wire == WireFormat::off || ranks < 2) return "";
  bool some = false, all = true;
  for (const DataType type : o.types)
    for (const ReduceOp op : o.ops) {
      const bool can = wire::problem(o.collective, type, op).empty();
      some = some || can;
      all = all && can;
    }
  if (!some) return "";
  return fmt::format("# Wire: {} ({}) at any size: STRAIT_WIRE_BYTES does not count here{}\n", name(wire),
                     o.wire ? "--wire" : "STRAIT_WIRE", all ? "" : "; types and redops that cannot have it are exact");
}

std::string column_heads(bool cpu_time) {
  const auto line = [](auto size, auto count, auto type, auto op, auto root, auto time, auto gbps_a, auto gbps_b,
                       auto wrong, auto p50, auto p99) {
    const std::string group = fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", time, gbps_a, gbps_b, wrong);
    const std::string tail = fmt::format("  {:>7}  {:>7}", p50, p99);
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}{}{}\n", size, count, type, op, root, group, group,
                       tail, tail);
  };
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:^31}  {:^31}  {:^16}  {:^16}\n", "", "", "",
                                 "", "", "out-of-place", "in-place", "out-of-place", "in-place");
  text += line("size", "count", "type", "redop", "root", cpu_time ? "cputime" : "time", "algbw", "busbw", "#wrong",
               "p50", "p99");
  text += line("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)");
  return text;
}

std::string comparison_heads(bool cpu_time) {
  const auto line = [](auto size, auto count, auto type, auto op, auto root, auto time, auto baseline, auto ratio,
                       auto wrong, auto baseline_wrong) {
    const std::string group =
        fmt::format("  {:>7}  {:>8}  {:>5}  {:>6}  {:>6}", time, baseline, ratio, wrong, baseline_wrong);
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}{}{}\n", size, count, type, op, root, group, group);
  };
  std::string text = fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:^40}  {:^40}\n", "", "", "", "", "",
                                 "out-of-place", "in-place");
  text += line("size", "count", "type", "redop", "root", cpu_time ? "cputime" : "time", "baseline", "ratio", "#wrong",
               "#wrong");
  text += line("(B)", "(elements)", "", "", "", "(us)", "(us)", "", "", "(base)");
  return text;
}

/// The columns of --floors, behind all others: how long at least, and how many times that the call out of place takes.
std::string floor_columns(std::string_view time, std::string_view times) {
  return fmt::format("  {:>7}  {:>6}", time, times);
}

/// Heads are three lines.
std::string with_floor_heads(const std::string& heads) {
  constexpr std::array<std::array<std::string_view, 2>, 3> columns = {
      {{"", ""}, {"floor", "times"}, {"(us)", "floor"}}};
  std::string text;
  std::size_t begin = 0;
  for (const auto& [time, times] : columns) {
    const std::size_t end = heads.find('\n', begin);
    text += heads.substr(begin, end - begin) + floor_columns(time, times) + "\n";
    begin = end + 1;
  }
  return text;
}

std::string floor_of_row(const Row& row) {
  if (!row.floor) return floor_columns("N/A", "N/A");
  return floor_columns(fitted(row.floor->time_us, 7), fitted(row.out_of_place.time_us / row.floor->time_us, 6));
}

}  // namespace

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string fitted(double value, int width) {
  for (int decimals = 2; decimals >= 0; --decimals) {
    std::string text = fmt::format("{:.{}f}", value, decimals);
    if (text.size() <= static_cast<std::size_t>(width)) return text;
  }
  return fmt::format("{:.{}e}", value, width >= 7 ? 1 : 0);
}

std::string header(const Options& o, std::span<const RankInfo> ranks, int threads, const TransportInfo& transport,
                   const std::optional<BaselineInfo>& baseline, const std::optional<LinkRates>& links) {
  const bool multiplies = o.step_factor > 1;
  std::string text = fmt::format("# strait version {}.{}.{}\n# Collective test starting: {}\n", STRAIT_MAJOR,
                                 STRAIT_MINOR, STRAIT_PATCH, program(o));
  text += fmt::format(
      "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} validation: {}\n#\n",
      threads, o.gpus, o.min_bytes, o.max_bytes, multiplies ? o.step_factor : o.step_bytes,
      multiplies ? "factor" : "bytes", o.warmup_iterations, o.iterations, o.checks);
  text += "# Using devices\n";
  for (const RankInfo& r : ranks)
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} {}\n", r.rank, r.pid, r.host, place(r));
  text += "# Transport: " + transport.name + (transport.why.empty() ? "\n" : ", because " + transport.why + "\n");
  text += wire_line(o, transport.wire, ranks.size());
  if (o.graph_launches != 0)
    text +=
        fmt::format("# CUDA graph of {}, launched {}\n", counted(static_cast<std::size_t>(o.iterations), "iteration"),
                    counted(static_cast<std::size_t>(o.graph_launches), "time"));
  if (o.budget_ms > 0)
    text += fmt::format("# Fewer iterations of a size, place and library that would take longer than {:g} ms\n",
                        o.budget_ms);
  if (o.aggregated > 1) text += fmt::format("# Groups of {} calls; times are of one of them\n", o.aggregated);
  if (links)
    text += "# " + describe(*links) + "\n# floor: the least bytes over these rates, each direction by itself\n";
  const auto heads = [&](const std::string& columns) { return links ? with_floor_heads(columns) : columns; };
  if (!baseline) return text + "#\n" + heads(column_heads(o.cpu_time));
  text += fmt::format("# Baseline: {} of {}, in {}; a ratio above 1: Strait is faster\n", baseline->name(),
                      baseline->path, counted(static_cast<std::size_t>(o.turns), "turn"));
  return text + "#\n" + heads(comparison_heads(o.cpu_time));
}

std::string prediction_header(const Options& o, std::span<const RankInfo> ranks, const tools::PredictedOn& on,
                              WireFormat wire) {
  std::string text = fmt::format(
      "# strait version {}.{}.{}\n# PREDICTION by Strait's clock: nothing here was measured\n# {} on {}\n"
      "# minBytes {} maxBytes {}\n#\n# Ranks\n",
      STRAIT_MAJOR, STRAIT_MINOR, STRAIT_PATCH, program(o), on.machine, o.min_bytes, o.max_bytes);
  for (const RankInfo& r : ranks) text += fmt::format("#  Rank {:2} on {}\n", r.rank, r.host);
  if (!on.caveat.empty()) text += fmt::format("# {}\n", on.caveat);
  return text + wire_line(o, wire, ranks.size()) + "#\n" + column_heads(false);
}

std::string table_row(const Row& row, bool cpu_time, bool has_floors) {
  const std::string tail = (has_floors ? floor_of_row(row) : "") + "\n";
  const std::string what =
      fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count, tools::table_name(row.subject.type),
                  row.subject.op ? tools::table_name(*row.subject.op) : "none", row.subject.root);
  if (row.baseline_out_of_place)
    return what + comparison(row.out_of_place, row.baseline_out_of_place, cpu_time) +
           comparison(row.in_place, row.baseline_in_place, cpu_time) + tail;
  return what + measurement(row.out_of_place, cpu_time) + measurement(row.in_place, cpu_time) +
         percentiles(row.out_of_place) + percentiles(row.in_place) + tail;
}

std::string footer(const Options& options, const Summary& summary) {
  std::string text = fmt::format("# {:<20} : {} {}\n# {:<20} : {:g} \n", "Out of bounds values", summary.wrong,
                                 summary.wrong == 0 ? "OK" : "FAILED", "Avg bus bandwidth", summary.mean_bus_gbps);
  if (summary.mean_ratio) text += fmt::format("# {:<20} : {:.3f} (geometric mean)\n", "Ratio", *summary.mean_ratio);
  return text + fmt::format("#\n# Collective test concluded: {}\n", program(options));
}

}  // namespace strait::perf
