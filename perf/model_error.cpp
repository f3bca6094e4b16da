// The clock against reality: for every plan that the catalogue has on host ranks, the time that the clock predicts from
// this machine's calibration beside the measured one, and whether the plan that selection takes is the best.
//
//   strait doctor --calibrate && model_error --json results.json
//
// Ranks are threads, or with STRAIT_TRANSPORT=shm threads that treat one another as processes. Each algorithm is forced
// through the public interface (STRAIT_ALGORITHM) and timed in blocks of calls back to back on the same buffers, in two
// passes over all plans. The time of a pass is the mean of a call in the quickest quarter of its blocks, the measured
// time that of the quicker pass, so that other programs disturb little; the spread is how much slower the other pass
// was. Where the spread is large the machine was not idle, and a choice "within the spread" says nothing. Sizes are
// those of the larger buffer. Sums are of int32, for which every plan may be chosen; the choice is judged among all
// plans, and among those that add in rank order (the choice for floats).
#include <fmt/format.h>
#include <sched.h>
#include <strait/strait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "perf/provenance.hpp"
#include "perf/report.hpp"
#include "select/calibration.hpp"
#include "select/select.hpp"

using namespace strait;

namespace {

constexpr int blocks = 8;
constexpr double block_us = 500;
constexpr std::size_t max_slice_bytes = 128 << 10;  // what a slot of the host transports holds
constexpr std::size_t element_bytes = 4;

struct Row {
  Collective collective;
  std::uint32_t ranks;
  std::size_t bytes;
  std::string algorithm;
  bool rank_order = false;
  double predicted_us = 0;
  std::vector<double> measured_us;  ///< by pass

  double best_us() const { return *std::min_element(measured_us.begin(), measured_us.end()); }
  double error() const { return std::abs(predicted_us - best_us()) / best_us(); }
  double spread() const { return *std::max_element(measured_us.begin(), measured_us.end()) / best_us() - 1; }
};

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "model_error: {}\n", why);
  std::exit(1);
}

void check(straitResult_t result) {
  if (result != straitSuccess) stop(straitGetLastError(nullptr));
}

std::size_t count_of(const Row& row) {
  return std::max<std::size_t>(1,
                               row.bytes / element_bytes / (row.collective == Collective::all_reduce ? 1 : row.ranks));
}

/// Threads of one process reach one another's buffers, but not through shm, which is made for processes.
bool peers_are_in_reach() {
  const char* transport = std::getenv("STRAIT_TRANSPORT");
  return transport == nullptr || std::string_view(transport) != "shm";
}

PlanRequest request_of(const Row& row, bool order_free) {
  PlanRequest request;
  request.collective = row.collective;
  request.ranks = row.ranks;
  request.order_free = order_free;
  request.peer_memory = peers_are_in_reach();
  return request;
}

void call(const Row& row, const void* send, void* receive, straitComm_t comm) {
  const std::size_t count = count_of(row);
  switch (row.collective) {
    case Collective::all_reduce:
      return check(straitAllReduce(send, receive, count, straitInt32, straitSum, comm, nullptr));
    case Collective::all_gather:
      return check(straitAllGather(send, receive, count, straitInt32, comm, nullptr));
    case Collective::reduce_scatter:
      return check(straitReduceScatter(send, receive, count, straitInt32, straitSum, comm, nullptr));
    default:
      return check(straitAllToAll(send, receive, count, straitInt32, comm, nullptr));
  }
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What one rank does for one row; returns its times by block.
double time_us(const Row& row, const void* send, void* receive, straitComm_t comm) {
  const int calls = std::clamp(static_cast<int>(block_us / row.predicted_us), 1, 400);
  std::vector<double> times;
  call(row, send, receive, comm);
  for (int block = 0; block < blocks; ++block) {
    check(straitBarrier(comm, nullptr));
    const double began = now_us();
    for (int i = 0; i < calls; ++i) call(row, send, receive, comm);
    times.push_back((now_us() - began) / calls);
  }
  std::nth_element(times.begin(), times.begin() + blocks / 4, times.end());
  return times[blocks / 4];
}

/// Starts at a cache line, as slots and the buffers of most programs do.
struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;
Buffer buffer_of(std::size_t bytes) {
  constexpr std::size_t alignment = 64;
  const std::size_t whole = (bytes + alignment) / alignment * alignment;
  Buffer buffer(std::aligned_alloc(alignment, whole));
  if (!buffer) stop("no memory for the buffers");
  std::memset(buffer.get(), 0, whole);
  return buffer;
}

/// Measures rows of one algorithm and number of ranks.
void measure(std::vector<Row*> rows) {
  const Row& first = *rows.front();
  setenv("STRAIT_ALGORITHM", first.algorithm.c_str(), 1);
  straitUniqueId id;
  check(straitGetUniqueId(&id));
  std::size_t most_bytes = 0;
  for (const Row* row : rows) most_bytes = std::max(most_bytes, row->bytes);
  std::vector<std::vector<double>> times(first.ranks, std::vector<double>(rows.size()));
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < first.ranks; ++rank)
      threads.emplace_back([&, rank] {
        straitComm_t comm = nullptr;
        check(straitCommInitRank(&comm, static_cast<int>(first.ranks), &id, static_cast<int>(rank), nullptr));
        const Buffer send = buffer_of(most_bytes), receive = buffer_of(most_bytes);
        for (std::size_t i = 0; i < rows.size(); ++i)
          times[rank][i] = time_us(*rows[i], send.get(), receive.get(), comm);
        check(straitBarrier(comm, nullptr));
        straitCommDestroy(comm);
      });
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    double slowest = 0;
    for (const auto& own : times) slowest = std::max(slowest, own[i]);
    rows[i]->measured_us.push_back(slowest);
  }
}

ClockModel model_for(std::uint32_t ranks, const HostRates& rates) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return host_model(ranks, static_cast<std::uint32_t>(std::max(1, CPU_COUNT(&set))), rates);
}

std::vector<Row> all_rows(const std::vector<std::uint32_t>& rank_counts, const std::vector<std::size_t>& sizes,
                          const HostRates& rates) {
  std::vector<Row> rows;
  for (const Collective collective :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all})
    for (const std::uint32_t ranks : rank_counts)
      for (const Algorithm& algorithm : catalogue())
        for (const std::size_t bytes : sizes) {
          Row row{collective, ranks, bytes, std::string(algorithm.name), false, 0, {}};
          const PlanRequest request = request_of(row, true);
          if (!algorithm.supports(request)) continue;
          row.rank_order = algorithm.numerics(request_of(row, false)) == Numerics::rank_order;
          const auto choice =
              choose(request, DataType::int32, ReduceOp::sum, count_of(row), model_for(ranks, rates),
                     {.algorithm = row.algorithm, .slice_bytes = 0, .max_slice_bytes = max_slice_bytes});
          if (!choice) stop(choice.error().message);
          row.predicted_us = choice->predicted_us;
          rows.push_back(std::move(row));
        }
  return rows;
}

template <class Same>
std::vector<std::vector<Row*>> grouped(std::vector<Row>& rows, Same same) {
  std::vector<std::vector<Row*>> groups;
  for (Row& row : rows) {
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return same(*group.front(), row); });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(&row);
  }
  return groups;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

/// The choice of selection among some plans for one collective, number of ranks and size.
struct Verdict {
  const Row* chosen = nullptr;
  const Row* best = nullptr;
  double slower() const { return chosen->best_us() / best->best_us() - 1; }
  bool near() const { return slower() <= 0.05; }
  bool good() const { return slower() <= std::max({0.05, chosen->spread(), best->spread()}); }
};

Verdict judge(const std::vector<Row*>& rows, bool rank_order_only) {
  Verdict verdict;
  for (const Row* row : rows) {
    if (rank_order_only && !row->rank_order) continue;
    if (!verdict.chosen || row->predicted_us < verdict.chosen->predicted_us) verdict.chosen = row;
    if (!verdict.best || row->best_us() < verdict.best->best_us()) verdict.best = row;
  }
  return verdict;
}

std::string size_text(std::size_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MB", bytes >> 20) : fmt::format("{} KB", bytes >> 10);
}

void print_summary(const std::string& title, const std::vector<Row>& rows, auto wanted) {
  std::vector<double> errors, spreads;
  for (const Row& row : rows)
    if (wanted(row)) {
      errors.push_back(row.error());
      spreads.push_back(row.spread());
    }
  fmt::print("{:<28}{:>6} plans  error: median {:>5.1f}%  p90 {:>6.1f}%   spread of two passes: median {:>5.1f}%\n",
             title, errors.size(), 100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9),
             100 * quantile(spreads, 0.5));
}

nlohmann::ordered_json to_json(std::vector<Row>& rows, const std::vector<std::vector<Row*>>& choices,
                               const KnownRates& known) {
  nlohmann::ordered_json json{{"provenance", perf::provenance()},
                              {"transport", peers_are_in_reach() ? "loopback" : "shm"},
                              {"rates", known.calibrated ? "calibrated" : known.source}};
  for (const RateField& field : rate_fields()) json["host"][std::string(field.name)] = field.get(known.host);
  std::vector<double> errors;
  for (const Row& row : rows) {
    errors.push_back(row.error());
    json["plans"].push_back({{"collective", name(row.collective)},
                             {"ranks", row.ranks},
                             {"bytes", row.bytes},
                             {"algorithm", row.algorithm},
                             {"rank_order", row.rank_order},
                             {"predicted_us", row.predicted_us},
                             {"measured_us", row.measured_us}});
  }
  json["median_error"] = quantile(errors, 0.5);
  json["p90_error"] = quantile(errors, 0.9);
  for (const auto& group : choices)
    for (const bool rank_order : {false, true}) {
      const Verdict verdict = judge(group, rank_order);
      json["choices"].push_back({{"collective", name(group.front()->collective)},
                                 {"ranks", group.front()->ranks},
                                 {"bytes", group.front()->bytes},
                                 {"rank_order", rank_order},
                                 {"chosen", verdict.chosen->algorithm},
                                 {"best", verdict.best->algorithm},
                                 {"slower", verdict.slower()},
                                 {"within_5_percent", verdict.near()},
                                 {"within_spread", verdict.good()}});
    }
  return json;
}

void print_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    fmt::print("{:<15}{:>2} {:>7} {:<17} predicted {:>10.2f} measured {:>10.2f} us  {:>+7.1f}%  spread {:>5.1f}%\n",
               name(row.collective), row.ranks, size_text(row.bytes), row.algorithm, row.predicted_us, row.best_us(),
               100 * (row.predicted_us / row.best_us() - 1), 100 * row.spread());
}

void print_choices(const std::vector<std::vector<Row*>>& choices) {
  int near = 0, good = 0, all = 0;
  for (const auto& group : choices)
    for (const bool rank_order : {false, true}) {
      const Verdict verdict = judge(group, rank_order);
      ++all;
      near += verdict.near() ? 1 : 0;
      good += verdict.good() ? 1 : 0;
      if (!verdict.near())
        fmt::print("{:<15}{:>2} {:>7}{}: chose {}, {:.0f}% slower than {}\n", name(group.front()->collective),
                   group.front()->ranks, size_text(group.front()->bytes), rank_order ? " in rank order" : "",
                   verdict.chosen->algorithm, 100 * verdict.slower(), verdict.best->algorithm);
    }
  fmt::print("choice within 5% of the best plan: {} of {}; within 5% or the spread of the two passes: {}\n", near, all,
             good);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> rank_counts{2, 4};
  std::size_t most_bytes = 32 << 20;
  std::string json_path;
  bool lists = false;
  CLI::App app("The clock's predictions against measured times on host ranks", "model_error");
  app.add_option("--ranks", rank_counts, "Numbers of ranks")->capture_default_str();
  app.add_option("--max-bytes", most_bytes, "Largest size")->capture_default_str();
  app.add_option("--json", json_path, "Write the results to this file");
  app.add_flag("--list", lists, "Print every plan");
  CLI11_PARSE(app, argc, argv);
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 1 << 10; bytes < most_bytes; bytes *= 8) sizes.push_back(bytes);
  sizes.push_back(most_bytes);

  unsetenv("STRAIT_SLICE_BYTES");
  setenv("STRAIT_DEBUG", "off", 0);  // that most of what is forced here is slower is the point
  const KnownRates& known = process_rates();
  fmt::print("# {}, rates from {}\n", perf::provenance()["cpu"].get<std::string>(), known.source);
  std::vector<Row> rows = all_rows(rank_counts, sizes, known.host);
  const auto runs =
      grouped(rows, [](const Row& a, const Row& b) { return a.algorithm == b.algorithm && a.ranks == b.ranks; });
  for (int pass = 0; pass < 2; ++pass)
    for (const auto& run : runs) measure(run);
  const auto choices = grouped(rows, [](const Row& a, const Row& b) {
    return a.collective == b.collective && a.ranks == b.ranks && a.bytes == b.bytes;
  });
  if (lists) print_rows(rows);
  for (const std::uint32_t ranks : rank_counts)
    for (const std::size_t bytes : sizes)
      print_summary(fmt::format("{} ranks, {}", ranks, size_text(bytes)), rows,
                    [&](const Row& row) { return row.ranks == ranks && row.bytes == bytes; });
  print_summary("all", rows, [](const Row&) { return true; });
  print_choices(choices);
  if (!json_path.empty())
    if (const auto written = perf::write_file(json_path, to_json(rows, choices, known).dump(2) + "\n"); !written)
      stop(written.error().message);
  return 0;
}
