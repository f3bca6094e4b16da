#include "trace/flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "utc.hpp"

namespace strait::trace {
namespace {

std::optional<double> time_of(const RecordedCall& call) { return call.posted_unix_us; }
std::optional<double> time_of(const StartedCall& call) { return call.started_unix_us; }

/// Returns the call that the GPU has started last; null: none.
const StartedCall* newest_started(const RankRecord& rank) {
  if (rank.started_messages && rank.started_messages->sequence >= last_started(rank)) return &*rank.started_messages;
  return rank.started.empty() ? nullptr : &rank.started.back();
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

/// What ranks may be apart for: on a busy machine one may wait some hundredths of a second for a core.
constexpr double slip_us = 1e5;

/// Reports that `rank` has not made the call `next`, as far as is known until `until_us`; "" if no other rank has made
/// it. Healthy ranks are briefly a few calls apart, and files written at different times show them further apart than
/// they were.
template <class Call>
std::string without_call(const Flight& flight, const RankRecord& rank, std::uint64_t next, double until_us,
                         std::vector<Call> RankRecord::*calls, const Wording& wording) {
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

/// Returns the rank's call for which all ranks meet; null: it is in none.
const RankInInit* set_up_of(const Flight& flight, std::size_t rank, const std::vector<RankInInit>& inits) {
  const RankInInit* newest = nullptr;
  for (const RankInInit& init : inits)
    if (std::cmp_equal(init.rank_there, rank) && !is_outdated(flight, init) &&
        (newest == nullptr || init.unix_us > newest->unix_us))
      newest = &init;
  return newest;
}

/// Ranks that are in one call for which all ranks meet.
struct Inside {
  std::string names;
  double since_us = std::numeric_limits<double>::infinity();  ///< when the first of them began to wait
  std::size_t waiting = 0;                                    ///< how many wait for others to call it
  std::size_t ahead = 0;                                      ///< how many know that all ranks have called it
  std::size_t ranks = 0;
};

/// Says of a rank that is not in the call that others wait for others to make it.
std::string without_set_up(const Flight& flight, std::size_t rank, const std::string& call, double since_us,
                           const std::vector<RankInInit>& inits) {
  const RankRecord& other = flight.ranks[rank];
  if (std::ranges::any_of(
          inits, [&](const RankInInit& init) { return std::cmp_equal(init.rank_there, rank) && init.call == call; }))
    return fmt::format("Cannot tell: {} was in {} before its file was written, and may be again\n", other.name, call);
  // Only its own file would tell that it is in the call.
  const double lacking_us = other.file_unix_us - since_us;
  if (other.has_file && lacking_us < slip_us)
    return fmt::format("Cannot tell: {} had not called {} when last seen, {} {} others did\n", other.name, call,
                       span(std::abs(lacking_us)), lacking_us < 0 ? "before" : "after");
  return fmt::format("Behind: {} has not called {}{}, as others did {}\n", other.name, call,
                     other.has_file ? "" : " (or wrote no file)", ago(flight.unix_us - since_us));
}

/// Says who is in a call for which all ranks meet, and who has not come.
std::string set_up_verdict(const Flight& flight, const std::vector<RankInInit>& inits) {
  std::map<std::string, Inside> calls;
  for (std::size_t rank = 0; rank < flight.ranks.size(); ++rank)
    if (const RankInInit* init = set_up_of(flight, rank, inits); init != nullptr) {
      Inside& inside = calls[init->call];
      inside.names += (inside.names.empty() ? "" : ", ") + flight.ranks[rank].name;
      inside.since_us = std::min(inside.since_us, init->awaits_since_unix_us);
      inside.waiting += waits_for_calls(*init) ? 1 : 0;
      inside.ahead += init->awaits_calls == false ? 1 : 0;
      ++inside.ranks;
    }
  std::string text;
  for (const auto& [call, inside] : calls) text += fmt::format("In {}: {}\n", call, inside.names);
  if (calls.size() != 1) return text;
  const auto& [call, inside] = *calls.begin();
  std::string others;
  for (std::size_t rank = 0; rank < flight.ranks.size(); ++rank) {
    if (set_up_of(flight, rank, inits) != nullptr || flight.ranks[rank].left) continue;
    others += (others.empty() ? "" : ", ") + flight.ranks[rank].name;
    if (inside.waiting == inside.ranks) text += without_set_up(flight, rank, call, inside.since_us, inits);
  }
  // The call meets more than once: from then on some ranks may have returned from it.
  if (!others.empty() && inside.waiting != inside.ranks)
    text += fmt::format("Not in it: {} ({}done with it, or without a file)\n", others,
                        inside.ahead == inside.ranks ? "all ranks have called it: " : "not called yet, or ");
  return text;
}

std::string verdict(const Flight& flight, const std::vector<RankInInit>& inits) {
  std::string text =
      set_up_verdict(flight, inits) +
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

bool is_outdated(const Flight& flight, const RankInInit& init) {
  if (init.communicator != flight.communicator || init.rank_there < 0) return false;
  const auto rank = static_cast<std::size_t>(init.rank_there);
  if (rank >= flight.ranks.size() || !flight.ranks[rank].has_file) return false;
  return init.unix_us + 1 < flight.ranks[rank].file_unix_us;  // inits write whole microseconds
}

std::string report(const Flight& flight, bool all_calls, const std::vector<RankInInit>& inits) {
  std::string text = fmt::format("Communicator {} of {} ranks through {}\n", flight.communicator, flight.ranks.size(),
                                 flight.transport);
  for (const std::string& reason : flight.reasons) text += "Written because of: " + reason + "\n";
  text += flight.unix_us > flight.first_unix_us
              ? fmt::format("The files were written within {}, until {}\n", span(flight.unix_us - flight.first_unix_us),
                            tools::utc_of(flight.unix_us))
              : fmt::format("Written at {}\n", tools::utc_of(flight.unix_us));
  std::size_t name_width = 4, call_width = 11;
  const auto posted = [](const RankRecord& rank) {
    return rank.calls.empty() ? "nothing" : numbered(rank.calls.back());
  };
  for (const RankRecord& rank : flight.ranks) {
    name_width = std::max(name_width, rank.name.size());
    call_width = std::max(call_width, posted(rank).size());
  }
  text += fmt::format("\n{:<{}}  {:<{}}  state\n", "rank", name_width, "last posted", call_width);
  for (std::size_t number = 0; number < flight.ranks.size(); ++number) {
    const RankRecord& rank = flight.ranks[number];
    const RankInInit* set_up = set_up_of(flight, number, inits);
    const std::string state =
        set_up == nullptr ? state_of(rank, flight.unix_us)
                          : fmt::format("in {}, for {}", set_up->call, span(set_up->unix_us - set_up->began_unix_us));
    text += fmt::format("{:<{}}  {:<{}}  {}{}\n", rank.name, name_width, posted(rank), call_width, state,
                        rank.is_own ? "" : " (as another rank saw it)");
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
  return text + "\n" + verdict(flight, inits);
}

}  // namespace strait::trace
