#include "communicator/init_watch.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/process_began.hpp"
#include "base/shortage.hpp"
#include "base/unknown_variables.hpp"
#include "bootstrap/root.hpp"
#include "bootstrap/root_state.hpp"
#include "communicator/flight_folder.hpp"
#include "communicator/flight_recorder.hpp"

namespace strait {
namespace {

unsigned next_init() {
  static std::atomic<unsigned> inits{0};
  return ++inits;
}

std::int64_t unix_us(InitProgress::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string seconds_since(InitProgress::Clock::time_point time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(InitProgress::Clock::now() - time).count());
  return text;
}

/// Returns the ranks that have not joined, as the user knows them, if the root is a thread of this process and has
/// heard of any rank.
std::vector<int> missing_ranks(const InitProgress::State& state) {
  const auto report = state.root ? report_of_root(*state.root) : std::nullopt;
  return report ? report->missing : std::vector<int>();
}

}  // namespace

InitWatch::InitWatch(const char* call, const Deadline& deadline, const InitPlace& place)
    : call_(call), place_(place), number_(next_init()), awaits_calls_(!place.communicator.empty()) {
  progress_.set_place(place.rank, place.ranks);
  if (awaits_calls_) progress_.await(std::string("all ranks of the communicator to call ") + call);
  warn_of_unknown_variables();
  watch_for_signal(*this);  // before the folder is made: who sees that may send the signal
  // From here on nothing may be thrown: no destructor would take this object from those that are watched.
  (void)catch_shortage([&] { prepare_flight_folder(deadline); });
}

InitWatch::~InitWatch() {
  stop_watching(*this);
  if (!has_succeeded_) return;
  const Status removed = catch_shortage([this] { return remove_file(); });
  if (removed) return;
  remove_at_next_signal(file_);
  (void)catch_shortage([&] {
    log_warn(-1, "the file of an init that is done stays until the next SIGUSR1: " + removed.error().message);
  });
}

void InitWatch::all_have_called(std::string awaits) {
  progress_.await(std::move(awaits));
  awaits_calls_ = false;
}

Status InitWatch::remove_file() {
  const std::string path = file_->discard();
  if (path.empty()) return {};
  return do_in_folder(std::filesystem::path(path).parent_path(), folder_patience, [path]() -> Status {
    std::remove(path.c_str());
    return {};
  });
}

std::string InitWatch::json(const InitProgress::State& state) const {
  using Json = nlohmann::ordered_json;
  // `rank` and `ranks` are those of a part once a split has made it.
  const Json of =
      place_.communicator.empty() ? Json() : Json{{"communicator", place_.communicator}, {"rank", place_.rank}};
  return json_text(Json{{"format", "strait flight recorder init 1"},
                        {"call", call_},
                        {"rank", state.rank},
                        {"ranks", state.ranks},
                        {"known_as", state.known_as},
                        {"host", host_name()},
                        {"pid", ::getpid()},
                        {"process_began_unix_us", process_began_unix_us()},
                        {"of", of},
                        {"root", state.root ? state.root->to_string() : ""},
                        {"awaits", state.awaits},
                        {"awaits_calls", awaits_calls_.load()},
                        {"awaits_since_unix_us", unix_us(state.awaits_since)},
                        {"missing", missing_ranks(state)},
                        {"began_unix_us", unix_us(began_)},
                        {"unix_us", unix_us(InitProgress::Clock::now())}},
                   1);
}

std::string InitWatch::file_name(const InitProgress::State& state) const {
  return "strait-flight-" + host_name() + "-" + std::to_string(::getpid()) + "-init" + std::to_string(number_) +
         "-rank" + (state.rank >= 0 ? std::to_string(state.rank) : "") + ".json";
}

InitDump InitWatch::dump() {
  was_dumped_ = true;
  const InitProgress::State state = progress_.state();
  std::string said = std::string("has been in ") + call_ + " for " + seconds_since(began_);
  if (!state.awaits.empty()) said += ", and has waited " + seconds_since(state.awaits_since) + " for " + state.awaits;
  if (const auto missing = missing_ranks(state); !missing.empty())
    said += "; of " + std::to_string(state.ranks) + " ranks these have not joined: " + list_ranks(missing);
  return {state.rank, std::move(said), file_name(state), json(state), file_};
}

Status InitFile::write(const std::string& path, int rank, const std::string& text) {
  {
    const std::scoped_lock lock(mutex_);
    if (is_discarded_) return {};
  }
  STRAIT_TRY(write_flight_file(path, rank, text));
  std::string outdated;
  {
    const std::scoped_lock lock(mutex_);
    // Before the rank knew its number, the file had another name.
    outdated = is_discarded_ ? path : path_ != path ? path_ : "";
    if (!is_discarded_) path_ = path;
  }
  if (!outdated.empty()) std::remove(outdated.c_str());
  return {};
}

std::string InitFile::discard() {
  const std::scoped_lock lock(mutex_);
  is_discarded_ = true;
  return path_;
}

}  // namespace strait
