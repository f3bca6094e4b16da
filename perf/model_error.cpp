// Compares the clock with reality: for every plan that the catalogue has for host ranks, the time that the clock
// predicts from this machine's calibration and the measured time, and whether the plan that selection chooses is the
// best one.
//
//   strait doctor --calibrate && strait doctor --plans && model_error --json results.json
//
// Ranks are threads. With STRAIT_TRANSPORT=shm they treat one another as processes. Each call requests its algorithm
// through the public interface. All plans of a call take turns and are compared window by window
// (tools/doctor/time_plans.hpp), only while the machine is in the state in which it was calibrated. The first and the
// second half of the time are two measurements; the spread of a plan is how much they differ. A choice counts as within
// the spread if it is slower than the best plan by no more than 5%, or by no more than both of these: how much the
// ratio of the two plans differs between the halves, and the larger of the two plans' own spreads. What slows all plans
// alike excuses nothing.
//
// Sizes are those of the larger buffer. Sums are of int32, for which every plan may be chosen. The choice is judged
// among all plans, and among those that add in rank order (the choice for floats). There are two predictions: by the
// rates alone, and as selection makes it, with the ratios of single plans that `strait doctor --plans` measured (the
// same if it has never run).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "doctor/time_plans.hpp"
#include "files.hpp"
#include "perf/provenance.hpp"
#include "select/calibration.hpp"
#include "select/select.hpp"

using namespace strait;
using doctor::PlanTime;

namespace {

struct Row : PlanTime {
  double expected_us = 0;  ///< as selection predicts it

  double error() const { return std::abs(expected_us / measured_us() - 1); }
  double error_of_rates() const { return std::abs(predicted_us / measured_us() - 1); }
};

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "model_error: {}\n", why);
  std::exit(1);
}

template <class T>
T good(Result<T> result) {
  if (!result) stop(result.error().message);
  return std::move(*result);
}

/// What is to be measured, and the known rates of this machine.
struct Wish {
  std::string transport = "loopback";
  std::vector<std::uint32_t> rank_counts{2, 4};
  const KnownRates& known = process_rates();

  ClockModel clock(std::uint32_t ranks) const {
    ClockModel model = doctor::plan_clock(ranks, known.host);
    const auto found = known.plans.find(ratios_key(transport, ranks));
    if (found != known.plans.end()) model.ratios = found->second;
    return model;
  }
};

std::vector<Row> measured_rows(const Wish& wish, const std::vector<std::size_t>& sizes_bytes,
                               doctor::PlanTiming& timing) {
  auto plans = good(doctor::plans_to_time(wish.transport, wish.rank_counts, sizes_bytes, wish.known.host));
  timing = good(doctor::time_plans(plans, wish.transport, wish.known.calibrated ? wish.known.host.latency_us : 0,
                                   [](std::size_t, std::size_t) {}));
  std::vector<Row> rows;
  for (const PlanTime& plan : plans) {
    Row row{plan};
    row.expected_us = row.predicted_us * wish.clock(row.ranks).ratios.of(row.collective, row.algorithm, row.bytes);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::vector<const Row*>> by_call(const std::vector<Row>& rows) {
  std::vector<std::vector<const Row*>> groups;
  for (const Row& row : rows) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      const Row& a = *group.front();
      return a.collective == row.collective && a.ranks == row.ranks && a.bytes == row.bytes;
    });
    (found != groups.end() ? *found : groups.emplace_back()).push_back(&row);
  }
  return groups;
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

/// The choice of selection among some plans, for one collective, number of ranks and size.
struct Verdict {
  const Row* chosen = nullptr;
  const Row* best = nullptr;
  double slower() const { return chosen->measured_us() / best->measured_us() - 1; }
  double slower(std::size_t half) const { return chosen->measured_us(half) / best->measured_us(half) - 1; }
  /// Returns by how much the comparison differs between the halves, but at most the larger spread of the two plans.
  double spread() const {
    const auto [less, more] = std::minmax({1 + slower(0), 1 + slower(1)});
    return std::min(more / less - 1, std::max(chosen->spread(), best->spread()));
  }
  bool near() const { return slower() <= 0.05; }
  bool good() const { return slower() <= std::max(0.05, spread()); }
};

Verdict judge(const std::vector<const Row*>& rows, bool rank_order_only, const Wish& wish) {
  const Row& any = *rows.front();
  const auto choice =
      good(choose(doctor::plan_request(any, wish.transport), rank_order_only ? DataType::float32 : DataType::int32,
                  ReduceOp::sum, any.count(), wish.clock(any.ranks), {.max_slice_bytes = doctor::plan_slice_bytes}));
  Verdict verdict;
  for (const Row* row : rows) {
    if (row->algorithm == choice.algorithm) verdict.chosen = row;
    if (rank_order_only && !row->rank_order) continue;
    if (!verdict.best || row->measured_us() < verdict.best->measured_us()) verdict.best = row;
  }
  if (!verdict.chosen) stop("the choice, " + choice.algorithm + ", was not measured");
  return verdict;
}

std::string size_text(std::size_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MB", bytes >> 20) : fmt::format("{} KB", bytes >> 10);
}

void print_summary(const std::string& title, const std::vector<Row>& rows, auto wanted) {
  std::vector<double> errors, errors_of_rates, spreads;
  for (const Row& row : rows)
    if (wanted(row)) {
      errors.push_back(row.error());
      errors_of_rates.push_back(row.error_of_rates());
      spreads.push_back(row.spread());
    }
  fmt::print(
      "{:<18}{:>5} plans  error by rates: median {:>5.1f}%  p90 {:>6.1f}%   as selected: {:>5.1f}% {:>6.1f}%"
      "   spread: median {:>5.1f}%\n",
      title, errors.size(), 100 * quantile(errors_of_rates, 0.5), 100 * quantile(errors_of_rates, 0.9),
      100 * quantile(errors, 0.5), 100 * quantile(errors, 0.9), 100 * quantile(spreads, 0.5));
}

nlohmann::ordered_json to_json(const std::vector<Row>& rows, const std::vector<std::vector<const Row*>>& calls,
                               const Wish& wish, const doctor::PlanTiming& timing) {
  nlohmann::ordered_json json{{"provenance", perf::provenance()},
                              {"windows", timing.windows},
                              {"strange_windows", timing.strange_windows},
                              {"strange", timing.strange},
                              {"transport", wish.transport},
                              {"rates", wish.known.calibrated ? "calibrated" : wish.known.source},
                              {"plans_measured_before", !wish.clock(wish.rank_counts.front()).ratios.points().empty()}};
  for (const RateField& field : rate_fields()) json["host"][std::string(field.name)] = field.get(wish.known.host);
  std::vector<double> errors, errors_of_rates;
  for (const Row& row : rows) {
    errors.push_back(row.error());
    errors_of_rates.push_back(row.error_of_rates());
    json["plans"].push_back({{"collective", name(row.collective)},
                             {"ranks", row.ranks},
                             {"bytes", row.bytes},
                             {"algorithm", row.algorithm},
                             {"rank_order", row.rank_order},
                             {"predicted_by_rates_us", row.predicted_us},
                             {"predicted_us", row.expected_us},
                             {"measured_us", row.measured_us()},
                             {"halves_us", {row.measured_us(0), row.measured_us(1)}}});
  }
  json["median_error_by_rates"] = quantile(errors_of_rates, 0.5);
  json["p90_error_by_rates"] = quantile(errors_of_rates, 0.9);
  json["median_error"] = quantile(errors, 0.5);
  json["p90_error"] = quantile(errors, 0.9);
  for (const auto& call : calls)
    for (const bool rank_order : {false, true}) {
      const Verdict verdict = judge(call, rank_order, wish);
      json["choices"].push_back({{"collective", name(call.front()->collective)},
                                 {"ranks", call.front()->ranks},
                                 {"bytes", call.front()->bytes},
                                 {"rank_order", rank_order},
                                 {"chosen", verdict.chosen->algorithm},
                                 {"best", verdict.best->algorithm},
                                 {"slower", verdict.slower()},
                                 {"slower_by_half", {verdict.slower(0), verdict.slower(1)}},
                                 {"within_5_percent", verdict.near()},
                                 {"within_spread", verdict.good()}});
    }
  return json;
}

void print_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows)
    fmt::print(
        "{:<15}{:>2} {:>7} {:<17} by rates {:>10.2f} as selected {:>10.2f} measured {:>10.2f} us  {:>+7.1f}%  "
        "spread {:>5.1f}%\n",
        name(row.collective), row.ranks, size_text(row.bytes), row.algorithm, row.predicted_us, row.expected_us,
        row.measured_us(), 100 * (row.expected_us / row.measured_us() - 1), 100 * row.spread());
}

void print_choices(const std::vector<std::vector<const Row*>>& calls, const Wish& wish) {
  int near = 0, good = 0, all = 0;
  for (const auto& call : calls)
    for (const bool rank_order : {false, true}) {
      const Verdict verdict = judge(call, rank_order, wish);
      ++all;
      near += verdict.near() ? 1 : 0;
      good += verdict.good() ? 1 : 0;
      if (!verdict.near())
        fmt::print("{:<15}{:>2} {:>7}{}: chose {}, {:.0f}% slower than {} ({:.0f}% and {:.0f}% by half)\n",
                   name(call.front()->collective), call.front()->ranks, size_text(call.front()->bytes),
                   rank_order ? " in rank order" : "", verdict.chosen->algorithm, 100 * verdict.slower(),
                   verdict.best->algorithm, 100 * verdict.slower(0), 100 * verdict.slower(1));
    }
  fmt::print("choice within 5% of the best plan: {} of {}; within 5% or the spread: {}\n", near, all, good);
}

}  // namespace

int main(int argc, char** argv) {
  Wish wish;
  if (const char* transport = std::getenv("STRAIT_TRANSPORT")) wish.transport = transport;
  std::size_t most_bytes = 32 << 20, least_bytes = 1 << 10;
  std::string json_path;
  bool lists = false;
  CLI::App app("The clock's predictions against measured times on host ranks", "model_error");
  app.add_option("--ranks", wish.rank_counts, "Numbers of ranks")->capture_default_str();
  app.add_option("--min-bytes", least_bytes, "Smallest size; the next ones are 8 times larger")->capture_default_str();
  app.add_option("--max-bytes", most_bytes, "Largest size")->capture_default_str();
  app.add_option("--json", json_path, "Write the results to this file");
  app.add_flag("--list", lists, "Print every plan");
  CLI11_PARSE(app, argc, argv);
  if (wish.transport != "loopback" && wish.transport != "shm") stop("STRAIT_TRANSPORT must be loopback or shm here");
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = least_bytes; bytes < most_bytes; bytes *= 8) sizes.push_back(bytes);
  sizes.push_back(most_bytes);

  unsetenv("STRAIT_SLICE_BYTES");
  fmt::print("# {}, rates from {}\n", perf::provenance()["cpu"].get<std::string>(), wish.known.source);
  doctor::PlanTiming timing;
  const std::vector<Row> rows = measured_rows(wish, sizes, timing);
  const auto calls = by_call(rows);
  if (lists) print_rows(rows);
  for (const std::uint32_t ranks : wish.rank_counts)
    for (const std::size_t bytes : sizes)
      print_summary(fmt::format("{} ranks, {}", ranks, size_text(bytes)), rows,
                    [&](const Row& row) { return row.ranks == ranks && row.bytes == bytes; });
  print_summary("all", rows, [](const Row&) { return true; });
  print_choices(calls, wish);
  fmt::print("left out: {} of {} windows, in which the processors were not as they were at calibration{}\n",
             timing.strange_windows, timing.windows, timing.strange ? "; some plans were only measured in such" : "");
  if (!json_path.empty())
    if (const auto written = tools::write_file(json_path, to_json(rows, calls, wish, timing).dump(2) + "\n"); !written)
      stop(written.error().message);
  return 0;
}
