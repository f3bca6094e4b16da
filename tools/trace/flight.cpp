#include "trace/flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/json_text.hpp"
#include "safe_print.hpp"

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

std::uint64_t last_posted(const RankRecord& rank) { return rank.calls.empty() ? 0 : rank.calls.back().sequence; }

std::optional<double> time_of(const RecordedCall& call) { return call.posted_unix_us; }
std::optional<double> time_of(const StartedCall& call) { return call.started_unix_us; }

std::uint64_t last_started(const RankRecord& rank) { return rank.started.empty() ? 0 : rank.started.back().sequence; }

/// Returns the call that the GPU has started last; null: none.
const StartedCall* newest_started(const RankRecord& rank) {
  if (rank.started_messages && rank.started_messages->sequence >= last_started(rank)) return &*rank.started_messages;
  return rank.started.empty() ? nullptr : &rank.started.back();
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

std::string span(double us) {
  if (us >= 1e6) return fmt::format("{:.1f} s", us * 1e-6);
  return us >= 1e3 ? fmt::format("{:.1f} ms", us * 1e-3) : fmt::format("{:.1f} us", us);
}

/// Formats how long ago something happened. A call may be slightly younger than its file, because ranks go on between
/// taking the file's time and reading the calls.
std::string ago(double us) { return span(std::max(us, 0.0)) + " ago"; }

/// Formats how long a call took. If a call did not have to wait, its end is recorded as the time of its post, without
/// reading a clock.
std::string time_taken(const RecordedCall& call) {
  if (!call.finished_unix_us) return "";
  const double us = *call.finished_unix_us - call.posted_unix_us;
  return us > 0 ? ", took " + span(us) : ", did not wait";
}

std::string numbered(const RecordedCall& call) { return fmt::format("#{} {}", call.sequence, call.text); }

bool is_unfinished(const RankRecord& rank) {
  if (!rank.gpu_work.empty()) return rank.gpu_work == "running";
  return rank.knows_finished && !rank.calls.empty() && !rank.calls.back().finished_unix_us;
}

/// Returns the rank for which this rank's last call has waited. A GPU rank may have noted it for an earlier call, so it
/// counts only while the GPU is busy.
std::optional<std::uint32_t> awaited_by(const RankRecord& rank) {
  return is_unfinished(rank) ||
                 (!rank.messages.empty() && !rank.messages.back().finished_unix_us && rank.knows_finished)
             ? rank.awaits
             : std::nullopt;
}

/// Formats "its #17 all-reduce(count 8, int32, sum)". The number is not that of a post.
std::string numbered(const RankRecord& rank, const StartedCall& call) {
  return rank.started_messages && &call == &*rank.started_messages
             ? fmt::format("{} after its #{}", call.text, call.sequence)
             : fmt::format("its #{} {}", call.sequence, call.text);
}

std::string gpu_state_of(const RankRecord& rank) {
  std::string state = "GPU: " + (rank.gpu_work.empty() ? "not known here" : rank.gpu_work);
  const StartedCall* call = newest_started(rank);
  if (call == nullptr) return state;
  return state +
         (!call->finished   ? ", has started "
          : *call->finished ? ", has finished "
                            : ", in ") +
         numbered(rank, *call);
}

std::string state_of(const RankRecord& rank, double now_us) {
  if (rank.left) return "has destroyed its communicator";
  if (!rank.gpu_work.empty() || newest_started(rank) != nullptr) return gpu_state_of(rank);
  if (!rank.knows_finished) return "not known here";
  if (is_unfinished(rank)) return "in it, posted " + ago(now_us - rank.calls.back().posted_unix_us);
  return rank.calls.empty() ? "" : "finished " + ago(now_us - *rank.calls.back().finished_unix_us);
}

/// Finds the first call, posted or started, that is not the same on all ranks.
template <class Call>
std::string difference(const Flight& flight, std::vector<Call> RankRecord::*calls, const char* text) {
  std::map<std::uint64_t, std::pair<const RankRecord*, const Call*>> first;
  for (const RankRecord& rank : flight.ranks)
    for (const Call& call : rank.*calls) first.try_emplace(call.sequence, &rank, &call);
  for (const auto& [sequence, known] : first)
    for (const RankRecord& rank : flight.ranks)
      for (const Call& call : rank.*calls)
        if (call.sequence == sequence && call.text != known.second->text)
          return fmt::format(fmt::runtime(text), sequence, known.first->name, known.second->text, rank.name, call.text);
  return "";
}

std::string names_where(const Flight& flight, const auto& holds) {
  std::string names;
  for (const RankRecord& rank : flight.ranks)
    if (holds(rank)) names += (names.empty() ? "" : ", ") + rank.name;
  return names;
}

/// Format strings for a rank that lacks a call. Their arguments: its name, the number of the call, the names of ranks
/// that have it, and a time.
struct Wording {
  const char* behind;
  const char* cannot_tell;
};
constexpr Wording of_posts{"Behind: {0} has not posted #{1}, which {2} posted {3}\n",
                           "Cannot tell: {0} had not posted #{1} when last seen, {3} {2} posted it\n"};
constexpr Wording of_starts{"Behind: the GPU of {0} has not started collective {1}, as {2} did\n",
                            "Cannot tell: the GPU of {0} had not started collective {1} when last seen, {3} {2} did\n"};

/// Reports that `rank` has not made the call `next`, as far as is known until `until_us`; "" if no other rank has made
/// it. Healthy ranks are briefly a few calls apart, and files written at different times show them further apart than
/// they were.
template <class Call>
std::string without_call(const Flight& flight, const RankRecord& rank, std::uint64_t next, double until_us,
                         std::vector<Call> RankRecord::*calls, const Wording& wording) {
  constexpr double slip_us = 1e5;  // on a busy machine a rank may wait some hundredths of a second for a core
  const auto has_come = [&](const RankRecord& other) {
    return !(other.*calls).empty() && (other.*calls).back().sequence >= next;
  };
  double since_us = std::numeric_limits<double>::infinity();
  for (const RankRecord& other : flight.ranks)
    if (has_come(other)) {
      const auto at = std::ranges::find_if(other.*calls, [&](const Call& call) { return call.sequence >= next; });
      since_us = std::min(since_us, time_of(*at).value_or(flight.unix_us));
    }
  const std::string ahead = names_where(flight, has_come);
  if (ahead.empty()) return "";
  const double lacking_us = until_us - since_us;
  const bool is_behind = lacking_us >= slip_us;
  const std::string time =
      is_behind ? ago(flight.unix_us - since_us) : span(std::abs(lacking_us)) + (lacking_us < 0 ? " before" : " after");
  return fmt::format(fmt::runtime(is_behind ? wording.behind : wording.cannot_tell), rank.name, next, ahead, time);
}

/// Reports GPUs that have not started what others have, and GPUs that have not finished what they started last.
std::string gpu_verdict(const Flight& flight) {
  if (std::ranges::all_of(flight.ranks, [](const RankRecord& rank) { return last_started(rank) == 0; })) return "";
  std::string text;
  // A rank without a file may be known from what others saw. Over TCP they see nothing of its GPU.
  for (const RankRecord& rank : flight.ranks)
    if (last_started(rank) != 0 || rank.has_file)
      text += without_call(flight, rank, last_started(rank) + 1, rank.starts_until_us, &RankRecord::started, of_starts);
  const std::string inside = names_where(flight, [](const RankRecord& rank) {
    const StartedCall* call = newest_started(rank);
    return call != nullptr && call->finished == false;
  });
  if (!inside.empty()) text += fmt::format("Not finished on the GPU: what was started last on {}\n", inside);
  return text;
}

std::string verdict(const Flight& flight) {
  std::string text =
      difference(flight, &RankRecord::calls, "Call #{} differs: {} made {}, {} made {}\n") +
      difference(flight, &RankRecord::started, "Collective {} on GPUs differs: {} started {}, {} started {}\n") +
      gpu_verdict(flight);
  std::uint64_t most = 0;
  for (const RankRecord& rank : flight.ranks) most = std::max(most, last_posted(rank));
  for (const RankRecord& rank : flight.ranks)
    text += without_call(flight, rank, rank.known_posted + 1, rank.posts_until_us, &RankRecord::calls, of_posts);
  for (const RankRecord& rank : flight.ranks)
    for (const RecordedCall& message : rank.messages)
      if (rank.knows_finished && !message.finished_unix_us)
        text += fmt::format("Waiting: {} in {}, posted {}\n", rank.name, message.text,
                            ago(flight.unix_us - message.posted_unix_us));
  for (std::uint32_t rank = 0; rank < flight.ranks.size(); ++rank) {
    const std::string waiting =
        names_where(flight, [&](const RankRecord& other) { return awaited_by(other) == std::optional(rank); });
    if (!waiting.empty()) text += fmt::format("Awaited: {}, by {}\n", flight.ranks[rank].name, waiting);
  }
  const std::string unfinished = names_where(flight, is_unfinished);
  if (text.empty() && !unfinished.empty())
    text = fmt::format("All ranks have posted #{}, and it is not finished on: {}\n", most, unfinished);
  const bool all_known = std::ranges::all_of(flight.ranks, [](const RankRecord& rank) {
    return last_posted(rank) == rank.known_posted &&
           (rank.gpu_work.empty() ? rank.knows_finished : rank.gpu_work == "finished");
  });
  if (text.empty())
    text = all_known
               ? "No rank is behind: all that was posted has finished\n"
               : fmt::format("No rank is behind: all have posted #{}; what has finished is not known of all\n", most);
  return text;
}

}  // namespace

Result<std::vector<Flight>> read_flights(const std::vector<std::string>& paths, std::vector<std::string>* left_out,
                                         std::vector<RankInInit>* inits) {
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
  if (files.empty())
    return fail(Code::invalid_argument,
                fmt::format("no file of a flight recorder is in {}. Set STRAIT_FLIGHT_RECORDER to a folder before the "
                            "program starts, and name that folder",
                            fmt::join(paths, ", ")));
  std::map<std::string, Flight> flights;
  std::vector<RankInInit> found_inits;
  std::optional<std::string> wrong;
  for (const std::string& file : files) {
    std::ifstream stream(file);
    if (!stream) return fail_errno("cannot read " + tools::printable(file), errno);
    if (const std::string problem = add_file(stream, flights, found_inits); !problem.empty()) {
      wrong = tools::printable(file) + " " + problem;
      if (left_out != nullptr) left_out->push_back(*wrong);
    }
  }
  if (wrong && flights.empty() && found_inits.empty()) return fail(Code::invalid_argument, *wrong);
  if (inits != nullptr) *inits = std::move(found_inits);
  std::vector<Flight> result;
  for (auto& [id, flight] : flights) result.push_back(std::move(flight));
  return result;
}

std::string report(const Flight& flight, bool all_calls) {
  std::string text = fmt::format("Communicator {} of {} ranks through {}\n", flight.communicator, flight.ranks.size(),
                                 flight.transport);
  for (const std::string& reason : flight.reasons) text += "Written because of: " + reason + "\n";
  if (flight.unix_us > flight.first_unix_us)
    text += fmt::format("The files were written within {}\n", span(flight.unix_us - flight.first_unix_us));
  std::size_t name_width = 4, call_width = 11;
  const auto posted = [](const RankRecord& rank) {
    return rank.calls.empty() ? "nothing" : numbered(rank.calls.back());
  };
  for (const RankRecord& rank : flight.ranks) {
    name_width = std::max(name_width, rank.name.size());
    call_width = std::max(call_width, posted(rank).size());
  }
  text += fmt::format("\n{:<{}}  {:<{}}  state\n", "rank", name_width, "last posted", call_width);
  for (const RankRecord& rank : flight.ranks) {
    text += fmt::format("{:<{}}  {:<{}}  {}{}\n", rank.name, name_width, posted(rank), call_width,
                        state_of(rank, flight.unix_us), rank.is_own ? "" : " (as another rank saw it)");
    for (const auto* calls : {&rank.calls, &rank.messages})
      for (const RecordedCall& call : *calls)
        if (all_calls)
          text += fmt::format("  {}, posted {}{}\n", numbered(call), ago(flight.unix_us - call.posted_unix_us),
                              time_taken(call));
    if (!all_calls) continue;
    for (const StartedCall& call : rank.started)
      text += fmt::format("  on the GPU {}, started {}{}\n", numbered(rank, call),
                          ago(flight.unix_us - call.started_unix_us.value_or(flight.unix_us)),
                          !call.finished   ? ""
                          : *call.finished ? ", finished"
                                           : ", not finished");
  }
  return text + "\n" + verdict(flight);
}

}  // namespace strait::trace
