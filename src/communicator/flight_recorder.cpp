#include "communicator/flight_recorder.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "communicator/flight_folder.hpp"

namespace strait {
namespace {

using Json = nlohmann::ordered_json;

// An entry of a message tells its peer and direction in the fields of buffers, which no peer reads.
std::uint64_t direction_of(const Call& message) { return message.sends ? 1 : 0; }

/// Returns the calls of a ring, oldest first.
std::vector<std::pair<std::uint64_t, CallRecord>> calls_in(const std::array<PostedCall, posted_calls>& ring) {
  std::vector<std::pair<std::uint64_t, CallRecord>> calls;
  for (const PostedCall& posted : ring) {
    const std::uint64_t sequence = posted.sequence.load(std::memory_order_acquire);
    if (sequence == 0) continue;
    if (const auto call = read_call(posted, sequence)) calls.emplace_back(sequence, *call);
  }
  std::sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return calls;
}

Json call_json(std::uint64_t sequence, const CallRecord& call, const TickScale::Reading& time) {
  Json json = {{"sequence", sequence},
               {"call", describe(call.signature)},
               {"posted_unix_us", time.unix_us_of(call.posted_ticks)}};
  json["finished_unix_us"] = call.finished_ticks != 0 ? Json(time.unix_us_of(call.finished_ticks)) : Json();
  if (call.stream != 0) json["stream"] = call.stream;
  return json;
}

/// What a GPU tells about the end of its calls. (That a later one has started tells it, too.)
struct GpuNow {
  std::optional<bool> idle;
  std::optional<DeviceProgress> progress;  ///< asked after what has started was read
};

/// Returns whether the call that has started last has finished; null: unknown. `is_uncounted`: it is several launches,
/// between which nothing runs, or may be in a graph, whose launches do not count their ends.
Json has_finished(const GpuNow& now, bool is_uncounted) {
  if (!now.progress) return {};
  if (!now.progress->has_ended) return false;
  return is_uncounted && now.idle != true ? Json() : Json(true);
}

/// Adds what a GPU has started. `ask` asks the GPU for its state now.
void add_started(const RankControl& control, const TickScale::Reading& time, const std::function<GpuNow()>& ask,
                 Json& json) {
  const auto calls = calls_in(control.started);
  const std::uint64_t next = control.started_messages.sequence.load(std::memory_order_acquire);
  const auto messages = read_call(control.started_messages, next);
  if (calls.empty() && next == 0) return;
  const GpuNow now = ask();
  const std::uint64_t last = calls.empty() ? 0 : calls.back().first;
  Json last_finished = 0;
  for (const auto& [sequence, call] : calls) {
    const bool is_passed =
        sequence != last || next == last + 1 ||
        (now.progress && now.progress->collectives.value_or(last) != static_cast<std::uint32_t>(last));
    const Json finished = is_passed ? Json(true) : has_finished(now, call.output != 0);
    json["started"].push_back({{"sequence", sequence},
                               {"call", describe(call.signature)},
                               {"started_unix_us", time.unix_us_of(call.posted_ticks)},
                               {"finished", finished}});
    if (finished == true) last_finished = sequence;
    if (finished.is_null()) last_finished = Json();
  }
  json["last_started"] = last;
  json["last_finished"] = last_finished;
  if (next == 0 || !messages) return;
  json["started_messages"] = {{"call", describe(messages->signature)},
                              {"after", next - 1},
                              {"finished", next <= last ? Json(true) : has_finished(now, messages->output != 0)}};
}

Json rank_json(const RankName& name, const RankControl& control, const TickScale::Reading& time) {
  Json json = {{"name", name}, {"left", control.left.load(std::memory_order_acquire) != 0}};
  const std::uint32_t awaited = control.awaited.load(std::memory_order_relaxed);
  json["awaits"] = awaited != 0 ? Json(awaited - 1) : Json();
  json["calls"] = Json::array();
  json["messages"] = Json::array();
  for (const auto& [sequence, call] : calls_in(control.calls)) json["calls"].push_back(call_json(sequence, call, time));
  for (const auto& [sequence, message] : calls_in(control.messages)) {
    Json entry = call_json(sequence, message, time);
    entry[message.output != 0 ? "to" : "from"] = message.input;
    json["messages"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace

void FlightRecorder::post_messages(std::span<const Call> messages) {
  for (const Call& message : messages) {
    const std::uint64_t number = ++messages_;
    write_call(own().messages[number % posted_calls], number,
               {.signature = signature(message),
                .input = message.peer,
                .output = direction_of(message),
                .stream = reinterpret_cast<std::uintptr_t>(message.stream)});
  }
}

std::string FlightRecorder::json(const std::string& reason) const {
  const TickScale::Reading time = scale_.read();
  Json json = {{"format", "strait flight recorder 1"},
               {"communicator", communicator()},
               {"rank", about_.rank},
               {"ranks", about_.names.size()},
               {"host", about_.host},
               {"pid", about_.pid},
               {"process_began_unix_us", about_.process_began_unix_us},
               {"transport", about_.transport},
               {"shares_control", about_.shares_control},
               {"reason", reason},
               {"unix_us", time.unix_us}};
  if (about_.device >= 0) {
    const auto idle = about_.is_idle ? about_.is_idle() : std::nullopt;
    json["gpu"] = {{"device", about_.device}, {"work", !idle ? "unknown" : *idle ? "finished" : "running"}};
  }
  if (about_.progress) (void)about_.progress();  // records what has started
  json["seen"] = Json::array();
  for (std::size_t rank = 0; rank < about_.names.size(); ++rank) {
    json["seen"].push_back(rank_json(about_.names[rank], *controls_[rank], time));
    const auto ask = [&] {
      if (rank != about_.rank) return GpuNow{};
      return GpuNow{about_.is_idle ? about_.is_idle() : std::nullopt,
                    about_.progress ? about_.progress() : std::nullopt};
    };
    add_started(*controls_[rank], time, ask, json["seen"].back());
  }
  return json_text(json, 1);
}

std::string FlightRecorder::communicator() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(about_.communicator));
  return digits;
}

std::string FlightRecorder::file_name() const {
  return "strait-flight-" + about_.host + "-" + std::to_string(about_.pid) + "-" + communicator() + "-rank" +
         std::to_string(about_.rank) + ".json";
}

Status FlightRecorder::dump(const std::string& path, const std::string& reason) const {
  return write_flight_file(path, static_cast<int>(about_.rank), json(reason));
}

}  // namespace strait
