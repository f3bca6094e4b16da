#include "sim/explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/limits.hpp"
#include "base/time_text.hpp"
#include "base/wire_format.hpp"
#include "perf/axis.hpp"
#include "perf/last_times.hpp"
#include "perf/options.hpp"
#include "perf/provenance.hpp"
#include "select/borders.hpp"
#include "select/copy_borders.hpp"
#include "select/selector.hpp"
#include "sim/gpu_ranks.hpp"

namespace strait::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string note_of(const Explanation& e, const PredictedPlan& plan, bool chosen) {
  if (chosen) return plan.runs ? "chosen" : "asked for; GPU ranks never run it";
  const PredictedPlan& choice = e.prediction.choice();
  if (e.options.wire != WireFormat::off) return "exact";
  if (plan.algorithm == choice.algorithm && !plan.runs)
    return plan.executor == cpu_sums_executor ? "added up by CPUs, which is not done here"
                                              : "added up by GPUs, which is not done here";
  if (choice.algorithm == "islands") return "not what GPU ranks with islands do";
  if (!plan.in_class) return "rounds at every hop: other bits, so never chosen for this sum";
  if (plan.at_least) return "takes at least as long, which was enough to leave it";
  if (plan.runs) return "";
  return is_carried_out(plan) ? "not what GPU ranks do at this size"
                              : "no kernel carries it out: GPU ranks never run it";
}

std::string operation_text(const Explanation& e) {
  std::string text(name(e.options.collective));
  if (e.options.collective != Collective::barrier) text += " of " + perf::bytes_label(static_cast<double>(e.bytes));
  if (e.options.collective != Collective::barrier) text += fmt::format(", {}", name(e.options.type));
  if (is_reduction(e.options.collective)) text += fmt::format(" {}", name(e.options.op));
  if (has_root(e.options.collective)) text += fmt::format(", root {}", e.options.root);
  if (e.options.wire != WireFormat::off) text += fmt::format(", {} on the wire", name(e.options.wire));
  return text + fmt::format(", on {} ranks", e.machine.request.ranks);
}

std::string plan_line(const Explanation& e, const PredictedPlan& plan, bool chosen) {
  const double bus_gbps = bandwidths(e.operation, e.machine.request.ranks, plan.time.total_us).bus_gbps;
  return fmt::format("{:<17} {:<14} {:>7} {:>11} {:>9.2f}  {:>5} {:<32} {}\n", plan.algorithm, plan.executor,
                     perf::bytes_label(static_cast<double>(plan.slice_bytes)), time_text(plan.time.total_us), bus_gbps,
                     plan.estimated ? "" : fmt::format("{:.0f}%", 100 * binding_share(plan.time)), plan.time.binding,
                     note_of(e, plan, chosen));
}

/// Lists the steps of the choice; "" if it is a single plan.
std::string steps_text(const PredictedPlan& choice) {
  if (choice.steps.empty()) return "";
  std::string text = fmt::format("\n{:<46} {:>7}  {:<9} {:<14} {:>11}\n", "the choice's steps, one after another",
                                 "bytes", "plan", "executor", "predicted");
  for (const PredictedStep& step : choice.steps)
    text += fmt::format("{:<46} {:>7}  {:<9} {:<14} {:>11}\n", step.what,
                        perf::bytes_label(static_cast<double>(step.bytes)), step.algorithm, step.executor,
                        time_text(step.time_us));
  return text;
}

std::string measured_text(const Explanation& e) {
  if (e.measured)
    return fmt::format("{}, {:.2f} GB/s of bus bandwidth ({}); predicted over measured: {:.2f}",
                       time_text(e.measured->time_us), e.measured->bus_gbps, e.measured->where,
                       e.prediction.choice().time.total_us / e.measured->time_us);
  if (!e.not_measured.empty()) return "not known: " + e.not_measured;
  return "not measured. `strait perf` measures, and keeps its last times for this machine; --measured FILE shows "
         "others";
}

std::string binding_text(const Explanation& e) {
  const ClockResult& time = e.prediction.choice().time;
  if (e.prediction.choice().estimated) return time.binding;
  if (time.binding == "latency")
    return fmt::format("latency: calls, steps and signals; no resource is busy for half of the time");
  return fmt::format("{}, busy {:.0f}% of the time", time.binding, 100 * binding_share(time));
}

/// Says what is estimated or not simulated because there are many ranks; "" if nothing is.
std::string bounds_text(const Explanation& e) {
  if (e.prediction.choice().estimated)
    return fmt::format("bounds    of more than {} host ranks the library goes by estimates, and so do these times\n",
                       Selector::most_simulated_ranks);
  if (!e.machine.gpus || e.machine.request.ranks <= most_ranks_with_all_slices) return "";
  return fmt::format(
      "bounds    of more than {} ranks smaller slices are tried only until they are slower, and none of plans that "
      "have more than {} million steps then\n",
      most_ranks_with_all_slices, most_steps_of_small_slices / 1'000'000);
}

std::string border_label(std::size_t bytes) {
  return bytes < 1024 ? fmt::format("{} B", bytes) : perf::bytes_label(static_cast<double>(bytes));
}

/// Says from which sizes on copy engines carry calls instead of kernels (docs/gpus.md).
std::string copies_text(kernels::ArenaKind arena) {
  if (arena == kernels::ArenaKind::host)
    return "copies    by copy engines with STRAIT_COPY_ENGINE_BYTES or STRAIT_MAX_SMS=none: what adds nothing up, but "
           "for messages\n";
  const CopyBorders four = copy_borders_of(4), eight = copy_borders_of(8), none = copy_borders_of(no_sms);
  return fmt::format(
      "copies    by copy engines with up to 4 thread blocks (STRAIT_MAX_SMS) from {} on, with up to 8 from {} "
      "(all-reduces and reduces {}), with STRAIT_MAX_SMS=none at any size, also messages (what is added up from {})\n",
      border_label(four.others_bytes), border_label(eight.others_bytes), border_label(eight.sums_bytes),
      border_label(none.sums_bytes));
}

/// Says at which sizes GPU ranks switch between kernels and algorithms (docs/gpus.md); "" for other ranks.
std::string borders_text(const Machine& machine) {
  if (!machine.arena) return "";
  const std::uint32_t ranks = machine.request.ranks;
  const Borders borders = borders_of(*machine.arena, ranks, machine.exchange.gbps);
  const bool by_nvlink = *machine.arena == kernels::ArenaKind::nvlink;
  const bool will_measure = *machine.arena == kernels::ArenaKind::host && !machine.exchange.is_fixed_by_user;
  std::string text = "\nkernels   ";
  if (!by_nvlink && machine.exchange.gbps > 0)
    text += fmt::format("{:.3g} GB/s each way a GPU while all exchange{}: ", machine.exchange.gbps,
                        will_measure ? ", unless a communicator measures clearly less" : "");
  else if (!by_nvlink)
    text += fmt::format("what GPUs exchange is unknown until {}`strait doctor --calibrate` measures it: ",
                        will_measure ? "a communicator or " : "");
  if (!by_nvlink) text += fmt::format("packets up to {}, ", border_label(borders.packets_bytes));
  text += fmt::format("all-reduces in one hop up to {}, reduces up to {}", border_label(borders.one_hop_bytes),
                      border_label(borders.one_hop_reduce_bytes));
  if (const std::size_t by_cpus = cpu_reduce_border_bytes_of(machine); by_cpus > 0)
    text += fmt::format(", {} by CPU threads from {} where calibrated",
                        machine.islands.empty() ? "added up" : "sums across islands", border_label(by_cpus));
  if (*machine.arena == kernels::ArenaKind::host) text += fmt::format(", {} thread blocks at most", borders.blocks);
  text += "\n" + copies_text(*machine.arena);
  if (machine.islands.empty()) return text;
  std::vector<std::string> names;
  for (const auto& island : machine.islands) names.push_back(fmt::format("{}", fmt::join(island, "-")));
  return text + fmt::format(
                    "islands   NVLink joins {}: GPU ranks add up within these first, and round once there and once "
                    "across, whatever the type. STRAIT_P2P=off keeps rank order\n",
                    fmt::join(names, ", "));
}

}  // namespace

double binding_share(const ClockResult& time) {
  if (time.resources.empty()) return 0;  // an estimate
  double most = 0;
  for (const ResourceUse& use : time.resources) {
    if (use.name == time.binding) return use.busy;
    most = std::max(most, use.busy);
  }
  return 1 - most;
}

std::vector<LevelUse> level_uses(const Machine& machine, const ClockResult& time) {
  std::vector<LevelUse> uses;
  for (std::size_t i = 0; i < time.resources.size() && i < machine.levels.size(); ++i) {
    const ResourceUse& resource = time.resources[i];
    if (resource.busy <= 0) continue;
    const auto known =
        std::find_if(uses.begin(), uses.end(), [&](const LevelUse& use) { return use.level == machine.levels[i]; });
    LevelUse& use = known != uses.end() ? *known : uses.emplace_back(LevelUse{std::string(machine.levels[i]), {}, 0});
    if (resource.busy > use.busy) use = {use.level, resource.name, resource.busy};
  }
  std::stable_sort(uses.begin(), uses.end(), [](const LevelUse& a, const LevelUse& b) { return a.busy > b.busy; });
  return uses;
}

Result<Explanation> explain(const MachineOptions& machine, const OperationOptions& options, std::size_t bytes,
                            const std::string& algorithm, const Progress& progress) {
  Explanation e{.machine = {}, .options = options, .bytes = bytes, .operation = {}, .prediction = {}, .measured = {}};
  STRAIT_ASSIGN(e.machine, machine_of(machine));
  STRAIT_ASSIGN(e.operation, operation_of(options, bytes, e.machine.request.ranks));
  const std::uint32_t ranks = e.machine.request.ranks;
  Progress of_plans;
  if (progress && ranks > most_ranks_in_silence)
    of_plans = [&](const std::string& plan) { progress(fmt::format("simulates {} on {} ranks", plan, ranks)); };
  STRAIT_ASSIGN(e.prediction, predict_ranks(e.machine, e.operation, {.algorithm = algorithm}, true, of_plans));
  return e;
}

Result<std::string> settings_left_out(const Environment& environment) {
  STRAIT_ASSIGN(std::string text, perf::settings_text(environment));
  STRAIT_ASSIGN(const std::string tuning_file, environment.text("STRAIT_TUNING_FILE"));
  if (!tuning_file.empty()) text += (text.empty() ? "" : " ") + ("STRAIT_TUNING_FILE=" + tuning_file);
  return text;
}

namespace {

/// Returns whether a wire format can apply to the operation. `strait perf` ignores wire formats for other operations.
bool may_have_wire(const Explanation& about) {
  const OperationOptions& options = about.options;
  return about.machine.request.ranks > 1 && wire::problem(options.collective, options.type, options.op).empty();
}

/// Returns the wire format with which `strait perf` was run, as --wire or STRAIT_WIRE named it.
std::string wire_of(const Json& json) {
  const Json asked = json.value("/settings/wire"_json_pointer, Json());
  if (asked.is_string()) return asked.get<std::string>();
  std::string text = json.value("/provenance/environment/STRAIT_WIRE"_json_pointer, "off");
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// Returns whether calls were measured as a prediction assumes them: without graphs, groups or registered memory,
/// aligned, and with the mean over all ranks.
bool is_plain(const Json& settings) {
  const Json plain = {{"registered_memory", false},
                      {"graph_launches", 0},
                      {"aggregated", 1},
                      {"extra_elements", 0},
                      {"offset_bytes", 0},
                      {"blocking", static_cast<int>(perf::Blocking::none)},
                      {"average", static_cast<int>(perf::Average::mean)}};
  for (const auto& [name, value] : plain.items())
    if (settings.value(name, value) != value) return false;
  return true;
}

/// Returns whether a report is about the same collective on ranks of the same kind and number, called in the same way,
/// and in the same wire format.
bool is_about(const Json& json, const Explanation& about) {
  const OperationOptions& options = about.options;
  const Json& ranks = json["ranks"];
  const bool same_ranks = ranks.size() == about.machine.request.ranks &&
                          std::all_of(ranks.begin(), ranks.end(),
                                      [&](const Json& rank) { return rank.contains("gpu") == about.machine.gpus; });
  return !json.contains("prediction") && same_ranks &&
         json.value("/settings/collective"_json_pointer, "") == name(options.collective) &&
         is_plain(json["settings"]) && (!may_have_wire(about) || wire_of(json) == name(options.wire));
}

/// Finds the measured time of the operation in a report of `strait perf --json`. Throws Json::exception if the report
/// has another structure.
std::optional<Measured> find_row(const Json& json, const std::string& path, const Explanation& about) {
  const OperationOptions& options = about.options;
  const Json op = is_reduction(options.collective) ? Json(name(options.op)) : Json();
  if (!is_about(json, about)) return std::nullopt;
  for (const Json& row : json["results"]) {
    const bool same = row.value("bytes", std::size_t{0}) == about.bytes &&
                      row.value("type", "") == name(options.type) && row.value("op", Json()) == op &&
                      (!has_root(options.collective) || row.value("root", Json()) == Json(options.root));
    if (!same || !row.contains("out_of_place")) continue;
    const Json& found = row["out_of_place"];
    const std::string time = json.value("/provenance/time"_json_pointer, "");
    const double time_us = found.value("time_us", 0.0);
    if (time_us > 0) return Measured{time_us, found.value("busbw_gbps", 0.0), path + (time.empty() ? "" : ", " + time)};
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<Measured>> find_measured(const std::string& path, const Explanation& about) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return fail_errno("cannot read " + path, errno, "Write it with `strait perf ... --json " + path + "`");
  const Json json = Json::parse(text, nullptr, false);
  try {
    if (json.is_object() && json.value("program", Json()) == "strait perf" && json.contains("results") &&
        json["results"].is_array() && json.contains("ranks"))
      return find_row(json, path, about);
  } catch (const Json::exception&) {  // reported below
  }
  return fail(Code::invalid_argument, path + " holds no results of `strait perf --json`");
}

Result<std::optional<Measured>> find_kept(const std::string& path, const Explanation& about,
                                          const Environment& environment) {
  const OperationOptions& options = about.options;
  STRAIT_ASSIGN(const std::string wire, environment.text("STRAIT_WIRE"));  // times measured with --wire are not kept
  if (may_have_wire(about) && wire != name(options.wire)) return std::nullopt;
  perf::TimedOperation operation{
      .collective = options.collective,
      .bytes = about.bytes,
      .subject = {.type = options.type, .op = {}, .root = -1},
      .ranks = about.machine.request.ranks,
      .bus_ids = about.machine.bus_ids,
      .settings = {},
  };
  if (is_reduction(options.collective)) operation.subject.op = options.op;
  if (has_root(options.collective)) operation.subject.root = static_cast<int>(options.root);
  STRAIT_ASSIGN(operation.settings, perf::settings_text(environment));
  STRAIT_ASSIGN(const auto last, perf::find_last_time(path, operation));
  if (!last) return std::nullopt;
  return Measured{last->time_us, last->bus_gbps, last->when + ", over " + last->transport};
}

std::string to_text(const Explanation& e) {
  const PredictedPlan& choice = e.prediction.choice();
  const double bus_gbps = bandwidths(e.operation, e.machine.request.ranks, choice.time.total_us).bus_gbps;
  std::string text = fmt::format("{}\nmachine   {}\n\n", operation_text(e), e.machine.name);
  text += fmt::format("choice    {} by {}, in slices of {}{}{}\n", choice.algorithm, choice.executor,
                      choice.steps.empty() ? "" : "up to ", perf::bytes_label(static_cast<double>(choice.slice_bytes)),
                      choice.lanes > 1 ? fmt::format(" on {} lanes", choice.lanes) : "");
  text += fmt::format("predicted {}, {:.2f} GB/s of bus bandwidth\n", time_text(choice.time.total_us), bus_gbps);
  text += fmt::format("binding   {}\nwhy       {}\n", binding_text(e), e.prediction.why);
  text += bounds_text(e);
  if (!e.left_out.empty()) text += fmt::format("but       calls go by {} here, which is left out above\n", e.left_out);
  text += fmt::format("measured  {}\n\n", measured_text(e));
  text += fmt::format("{:<17} {:<14} {:>7} {:>11} {:>9}  {:>5} {:<32}\n", "plan", "executor", "slices", "predicted",
                      "bus GB/s", "busy", "binding");
  for (const PredictedPlan& plan : e.prediction.plans) text += plan_line(e, plan, &plan == &choice);
  text += steps_text(choice);
  if (choice.estimated) return text;
  text += "\nthe choice's time, by level (busiest resource of each)\n";
  for (const LevelUse& use : level_uses(e.machine, choice.time))
    text += fmt::format("{:<17} {:>4.0f}%  {}\n", use.level, 100 * use.busy, use.resource);
  return text + borders_text(e.machine);
}

std::string to_json(const Explanation& e) {
  Json json = {{"program", "strait explain"}, {"prediction", true}, {"provenance", perf::provenance()}};
  json["machine"] = e.machine.name;
  json["ranks"] = e.machine.places;
  json["collective"] = name(e.options.collective);
  json["bytes"] = e.bytes;
  json["type"] = name(e.options.type);
  json["op"] = is_reduction(e.options.collective) ? Json(name(e.options.op)) : Json();
  json["wire"] = name(e.options.wire);
  json["root"] = has_root(e.options.collective) ? Json(e.options.root) : Json();
  json["why"] = e.prediction.why;
  json["left_out"] = e.left_out;
  json["measured_us"] = e.measured ? Json(e.measured->time_us) : Json();
  if (e.machine.arena) {
    const Borders borders = borders_of(*e.machine.arena, e.machine.request.ranks, e.machine.exchange.gbps);
    json["kernels"] = {{"exchange_gbps", e.machine.exchange.gbps},
                       {"packets_bytes", borders.packets_bytes},
                       {"one_hop_bytes", borders.one_hop_bytes},
                       {"one_hop_reduce_bytes", borders.one_hop_reduce_bytes},
                       {"overlap_bytes", borders.min_overlap_lane_bytes},
                       {"round_bytes", borders.round_cost_bytes},
                       {"blocks", borders.blocks},
                       {"cpu_reduce_bytes", cpu_reduce_border_bytes_of(e.machine)}};
  }
  json["plans"] = Json::array();
  for (const PredictedPlan& plan : e.prediction.plans) {
    const Bandwidths rates = bandwidths(e.operation, e.machine.request.ranks, plan.time.total_us);
    Json levels = Json::array();
    for (const LevelUse& use : level_uses(e.machine, plan.time))
      levels.push_back({{"level", use.level}, {"resource", use.resource}, {"busy", use.busy}});
    json["plans"].push_back({{"algorithm", plan.algorithm},
                             {"executor", plan.executor},
                             {"in_class", plan.in_class},
                             {"runs", plan.runs},
                             {"lanes", plan.lanes},
                             {"slice_bytes", plan.slice_bytes},
                             {"predicted_us", plan.time.total_us},
                             {"algbw_gbps", rates.algorithm_gbps},
                             {"busbw_gbps", rates.bus_gbps},
                             {"binding", plan.time.binding},
                             {"binding_busy", binding_share(plan.time)},
                             {"levels", levels}});
    if (plan.estimated) json["plans"].back().update({{"estimated", true}, {"at_least", plan.at_least}});
    for (const PredictedStep& step : plan.steps)
      json["plans"].back()["steps"].push_back({{"step", step.what},
                                               {"bytes", step.bytes},
                                               {"algorithm", step.algorithm},
                                               {"executor", step.executor},
                                               {"predicted_us", step.time_us}});
  }
  return json_text(json);
}

}  // namespace strait::sim
