#include "communicator/init_watch.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/host_name.hpp"
#include "base/json_text.hpp"
#include "base/log.hpp"
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

InitWatch::InitWatch(const char* call) : call_(call), number_(next_init()) {
  warn_of_unknown_variables();
  watch_for_signal(*this);
  prepare_flight_folder();
}

InitWatch::~InitWatch() {
  stop_watching(*this);
  if (has_succeeded_ && !file_.empty()) std::remove(file_.c_str());
}

std::string InitWatch::json(const InitProgress::State& state) const {
  return json_text(nlohmann::ordered_json{{"format", "strait flight recorder init 1"},
                                          {"call", call_},
                                          {"rank", state.rank},
                                          {"ranks", state.ranks},
                                          {"known_as", state.known_as},
                                          {"host", host_name()},
                                          {"pid", ::getpid()},
                                          {"root", state.root ? state.root->to_string() : ""},
                                          {"awaits", state.awaits},
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

Status InitWatch::dump() {
  const InitProgress::State state = progress_.state();
  std::string text = std::string("has been in ") + call_ + " for " + seconds_since(began_);
  if (!state.awaits.empty()) text += ", and has waited " + seconds_since(state.awaits_since) + " for " + state.awaits;
  if (const auto missing = missing_ranks(state); !missing.empty())
    text += "; of " + std::to_string(state.ranks) + " ranks these have not joined: " + list_ranks(missing);
  log_warn(state.rank, text);
  STRAIT_ASSIGN(const std::string folder, make_flight_folder());
  const std::string path = folder + "/" + file_name(state);
  STRAIT_TRY(write_flight_file(path, state.rank, json(state)));
  file_ = path;
  return {};
}

}  // namespace strait
