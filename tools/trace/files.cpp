#include "trace/files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/json_text.hpp"
#include "safe_print.hpp"
#include "trace/by_age.hpp"
#include "utc.hpp"

namespace strait::trace {
namespace {

using Json = nlohmann::json;

std::string text_of(const Json& json) { return tools::printable(json.get<std::string>()); }

RecordedCall call_of(const Json& json) {
  RecordedCall call{json.at("sequence"), text_of(json.at("call")), json.at("posted_unix_us")};
  if (const Json& finished = json.at("finished_unix_us"); !finished.is_null()) call.finished_unix_us = finished;
  if (json.contains("to")) call.text += " to rank " + tools::printable(json["to"].dump());
  if (json.contains("from")) call.text += " from rank " + tools::printable(json["from"].dump());
  return call;
}

StartedCall started_of(const Json& json, const char* number) {
  StartedCall call{json.at(number), text_of(json.at("call"))};
  if (json.contains("started_unix_us")) call.started_unix_us = json["started_unix_us"];
  if (const Json& finished = json.at("finished"); !finished.is_null()) call.finished = finished;
  return call;
}

// Ranks of a host share their records, and every file has them as of some time. These values only grow with time, so
// the larger one is the newer one.
auto posted_so_far(const RankRecord& rank) {
  const auto last = [](const std::vector<RecordedCall>& calls) {
    return calls.empty() ? std::tuple(std::uint64_t{0}, false)
                         : std::tuple(calls.back().sequence, calls.back().finished_unix_us.has_value());
  };
  return std::tuple(last(rank.calls), last(rank.messages), rank.left);
}
auto started_so_far(const RankRecord& rank) {
  return std::tuple(last_started(rank), rank.started_messages ? rank.started_messages->sequence + 1 : 0);
}

/// Merges what two files say of a rank. `is_shared`: all ranks of its host see its posts at once. Otherwise they learn
/// of its posts later, and its own file has precedence.
void put_together(RankRecord& known, RankRecord other, bool is_shared) {
  if (other.has_file && !known.has_file) std::swap(known, other);
  const bool is_heard = !is_shared && known.has_file;
  known.file_unix_us = std::max(known.file_unix_us, other.file_unix_us);
  known.known_posted = std::max(known.known_posted, other.known_posted);
  if (!known.has_file) known.starts_until_us = std::max(known.starts_until_us, other.starts_until_us);
  if (is_heard) return;
  known.posts_until_us = std::max(known.posts_until_us, other.posts_until_us);
  const bool posted_more = posted_so_far(other) > posted_so_far(known);
  const bool started_more = started_so_far(other) > started_so_far(known);
  if (posted_more) {
    known.calls = std::move(other.calls);
    known.messages = std::move(other.messages);
    known.left = other.left;
    known.awaits = other.awaits;
    known.is_own = false;
  }
  if (started_more) {
    known.started = std::move(other.started);
    known.started_messages = std::move(other.started_messages);
  }
  // What its own file says is older.
  if ((posted_more || started_more) && !known.gpu_work.empty()) known.gpu_work = "unknown";
}

void add(const Json& json, std::map<std::string, Flight>& flights) {
  if (json.at("format") != "strait flight recorder 1") throw Json::other_error::create(0, "another format", nullptr);
  const std::string id = text_of(json.at("communicator"));
  const std::size_t ranks = json.at("ranks"), own = json.at("rank");
  if (json.at("seen").size() != ranks) throw Json::other_error::create(0, "\"seen\" is not of all ranks", nullptr);
  Flight& flight = flights[id];
  flight.communicator = id;
  flight.transport = text_of(json.at("transport"));
  // Files of earlier versions do not say it.
  const bool is_shared = json.value("shares_control", !flight.transport.starts_with("tcp"));
  const double unix_us = json.at("unix_us");
  flight.first_unix_us = flight.unix_us > 0 ? std::min(flight.first_unix_us, unix_us) : unix_us;
  flight.unix_us = std::max(flight.unix_us, unix_us);
  if (const std::string reason = text_of(json.at("reason"));
      std::ranges::find(flight.reasons, reason) == flight.reasons.end())
    flight.reasons.push_back(reason);
  flight.ranks.resize(std::max(flight.ranks.size(), ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Json& seen = json.at("seen").at(rank);
    RankRecord record;
    record.name = text_of(seen.at("name"));
    record.is_own = record.has_file = rank == own;
    record.posts_until_us = record.starts_until_us = unix_us;
    if (record.has_file) record.file_unix_us = unix_us;
    record.knows_finished = record.is_own || is_shared;
    record.left = seen.at("left");
    if (const Json& awaits = seen.at("awaits"); !awaits.is_null()) record.awaits = awaits;
    for (const Json& call : seen.at("calls")) record.calls.push_back(call_of(call));
    for (const Json& message : seen.at("messages")) record.messages.push_back(call_of(message));
    if (seen.contains("started"))
      for (const Json& call : seen["started"]) record.started.push_back(started_of(call, "sequence"));
    if (seen.contains("started_messages")) record.started_messages = started_of(seen["started_messages"], "after");
    if (json.contains("gpu")) {
      record.knows_finished = false;  // the end of GPU ranks' calls is not recorded
      if (record.is_own) record.gpu_work = text_of(json["gpu"].at("work"));
    }
    record.known_posted = last_posted(record);
    if (flight.ranks[rank].name.empty())
      flight.ranks[rank] = std::move(record);
    else
      put_together(flight.ranks[rank], std::move(record), is_shared);
  }
}

/// When a file was written, when the process began that wrote it, and of which communicator it is.
struct FileTimes {
  std::string path;
  std::string communicator;  ///< "": of none
  double unix_us = 0;
  double process_began_unix_us = 0;  ///< 0: not known
};

/// Reads a file's times, without its calls, which need much more memory. Where they are not well formed the file counts
/// as the newest, so that it is read and what is wrong with it is said.
FileTimes times_of(const std::string& path, std::istream& stream) {
  const auto is_kept = [](int depth, Json::parse_event_t event, const Json& parsed) {
    return depth != 1 || event != Json::parse_event_t::key || parsed != "seen";
  };
  try {
    const Json json = Json::parse(stream, is_kept);
    const Json of = json.value("of", Json());  // of an init
    return {path, (of.is_null() ? json : of).value("communicator", ""), json.at("unix_us"),
            json.value("process_began_unix_us", 0.0)};
  } catch (const Json::exception&) {
    return {path, "", std::numeric_limits<double>::infinity(), 0};
  }
}

/// Adds a file. Returns what is wrong with it, or "" if it was added.
std::string add_file(std::istream& stream, std::map<std::string, Flight>& flights, std::vector<RankInInit>& inits) {
  Json json;
  try {
    json = Json::parse(stream);
  } catch (const Json::exception& problem) {
    return "is cut short, or no JSON: " + plain_text(problem);
  }
  try {
    if (is_of_init(json)) {
      inits.push_back(read_init(json));
      return "";
    }
    std::map<std::string, Flight> alone;  // first tries it alone, so that a bad file adds nothing to `flights`
    add(json, alone);
    add(json, flights);
    return "";
  } catch (const Json::exception& problem) {
    return "is not what a flight recorder writes: " + plain_text(problem);
  }
}

std::set<std::string> files_in(const std::vector<std::string>& paths) {
  std::set<std::string> files;
  for (const std::string& path : paths) {
    std::error_code failure;
    if (!std::filesystem::is_directory(path, failure)) {
      files.insert(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path, failure)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("strait-flight-") && name.ends_with(".json")) files.insert(entry.path().string());
    }
  }
  return files;
}

tl::unexpected<Error> cannot_read(const std::string& file) {
  return fail_errno("cannot read " + tools::printable(file), errno);
}

Result<Run> read_run(const std::vector<FileTimes>& files, std::vector<std::string>& left_out) {
  Run run;
  std::map<std::string, Flight> flights;
  for (const FileTimes& file : files) {
    std::ifstream stream(file.path);
    if (!stream) return cannot_read(file.path);
    if (const std::string problem = add_file(stream, flights, run.inits); !problem.empty())
      left_out.push_back(tools::printable(file.path) + " " + problem);
    else
      run.unix_us = std::max(run.unix_us, file.unix_us);
  }
  for (auto& [id, flight] : flights) run.flights.push_back(std::move(flight));
  std::ranges::stable_sort(run.flights, {}, &Flight::unix_us);
  return run;
}

}  // namespace

Result<Recorded> read_files(const std::vector<std::string>& paths, bool all_runs) {
  std::vector<FileTimes> files;
  for (const std::string& file : files_in(paths)) {
    std::ifstream stream(file);
    if (!stream) return cannot_read(file);
    files.push_back(times_of(file, stream));
  }
  if (files.empty())
    return fail(Code::invalid_usage,
                fmt::format("no file of a flight recorder is in {}. Set STRAIT_FLIGHT_RECORDER to a folder before the "
                            "program starts, and name that folder",
                            fmt::join(paths, ", ")));
  Recorded recorded{.all_runs = all_runs};
  auto runs = by_age(std::move(files), &FileTimes::process_began_unix_us);
  std::ranges::reverse(runs);  // the newest first
  for (const auto& of_run : runs) {
    if (!all_runs && !recorded.runs.empty()) {  // there is one that can be used
      recorded.earlier_files += of_run.size();
      for (const FileTimes& file : of_run) recorded.earlier_unix_us = std::max(recorded.earlier_unix_us, file.unix_us);
      continue;
    }
    STRAIT_ASSIGN(Run run, read_run(of_run, recorded.left_out));
    if (!run.flights.empty() || !run.inits.empty()) recorded.runs.push_back(std::move(run));
  }
  if (recorded.runs.empty()) return fail(Code::invalid_usage, recorded.left_out.front());
  std::ranges::reverse(recorded.runs);
  return recorded;
}

namespace {

std::string report(const Run& run, bool all_calls, bool all_runs) {
  std::string text;
  std::vector<RankInInit> others = run.inits;
  for (const Flight& flight : run.flights) {
    std::vector<RankInInit> of_flight;
    std::ranges::copy_if(run.inits, std::back_inserter(of_flight),
                         [&](const RankInInit& init) { return init.communicator == flight.communicator; });
    text += (text.empty() ? "" : "\n") + report(flight, all_calls, of_flight);
    // All is said of those. Of the others it is not: their parts have ranks of their own.
    std::erase_if(others, [&](const RankInInit& init) {
      return init.communicator == flight.communicator && (waits_for_calls(init) || is_outdated(flight, init));
    });
  }
  if (!others.empty()) text += (text.empty() ? "" : "\n") + report_inits(others, all_runs);
  return text;
}

}  // namespace

std::string report(const Recorded& recorded, bool all_calls) {
  std::string text;
  if (recorded.earlier_files > 0)
    text += fmt::format("Left out: {} of earlier runs, written until {}; --all shows them, too\n\n",
                        recorded.earlier_files == 1 ? "1 file" : fmt::format("{} files", recorded.earlier_files),
                        tools::utc_of(recorded.earlier_unix_us));
  for (std::size_t i = 0; i < recorded.runs.size(); ++i) {
    const Run& run = recorded.runs[i];
    if (i > 0) text += "\n";
    if (recorded.runs.size() > 1)
      text +=
          fmt::format("Run {} of {}, written until {}\n\n", i + 1, recorded.runs.size(), tools::utc_of(run.unix_us));
    text += report(run, all_calls, recorded.all_runs);
  }
  return text;
}

}  // namespace strait::trace
