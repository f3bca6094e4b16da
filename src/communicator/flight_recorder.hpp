#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/ticks.hpp"
#include "calls/call.hpp"
#include "calls/watch.hpp"
#include "device/device_rank.hpp"
#include "transport/control.hpp"

namespace strait {

/// The last calls of a communicator's ranks, in the control words that the ranks of a host share: what each rank has
/// posted and finished, and when. Recording takes a few stores into a cache line that the call writes anyway. Dumped on
/// request, on failure and by a signal; `strait trace` reads the files.
class FlightRecorder {
 public:
  struct About {
    std::uint64_t communicator = 0;  ///< its number, the same on all its ranks
    std::uint32_t rank = 0;
    std::vector<RankName> names;  ///< by rank
    std::string host;
    std::int64_t pid = 0;
    std::int64_t process_began_unix_us = 0;  ///< tells runs apart that write into one folder
    std::string transport;
    bool shares_control = true;  ///< Transport::shares_control(): what it records of other ranks is so at once
    int device = -1;             ///< -1: a host rank
    /// GPU ranks: returns whether everything that was posted is finished; nothing if that is unknown. May be null.
    std::function<std::optional<bool>()> is_idle;
    /// GPU ranks: records in the control words what the GPU has started, and returns how far it has got. May be null.
    std::function<std::optional<DeviceProgress>()> progress;
  };
  /// `controls`: by rank; they must outlive the recorder.
  FlightRecorder(std::vector<RankControl*> controls, About about)
      : controls_(std::move(controls)), about_(std::move(about)) {}

  // To be called by the rank's own thread.
  void set_stream(std::uint64_t sequence, const void* stream) {
    own().calls[sequence % posted_calls].stream.store(reinterpret_cast<std::uintptr_t>(stream),
                                                      std::memory_order_relaxed);
  }
  /// Records that a collective has finished. `at_once`: it did not wait, so the time of its post is recorded as its
  /// end, without reading the clock.
  void finish(std::uint64_t sequence, bool at_once) { finish(own().calls, sequence, at_once); }
  /// Records sends and receives of one group, which finish together.
  void post_messages(std::span<const Call> messages);
  void finish_messages(bool at_once) {
    while (finished_messages_ < messages_) finish(own().messages, ++finished_messages_, at_once);
  }

  /// Return, or write to a file, the record as JSON. `reason`: why, for its readers. From any thread.
  std::string json(const std::string& reason) const;
  Status dump(const std::string& path, const std::string& reason) const;
  /// Returns the name of the file for this rank and communicator.
  std::string file_name() const;
  const About& about() const { return about_; }
  /// Returns the communicator's number as text.
  std::string communicator() const;

 private:
  using Ring = std::array<PostedCall, posted_calls>;
  RankControl& own() const { return *controls_[about_.rank]; }
  static void finish(Ring& ring, std::uint64_t sequence, bool at_once) {
    PostedCall& call = ring[sequence % posted_calls];
    const std::uint64_t ticks = at_once ? call.posted_ticks.load(std::memory_order_relaxed) : ticks_now();
    call.finished_ticks.store(ticks, std::memory_order_relaxed);
  }

  std::vector<RankControl*> controls_;
  About about_;
  TickScale scale_;
  std::uint64_t messages_ = 0;
  std::uint64_t finished_messages_ = 0;
};

class InitFile;
class InitWatch;

/// Between these two calls a recorder, or an init, is dumped into the folder that STRAIT_FLIGHT_RECORDER names when the
/// process gets SIGUSR1. They do nothing if it names none.
void watch_for_signal(const FlightRecorder& recorder);
void stop_watching(const FlightRecorder& recorder);
void watch_for_signal(InitWatch& init);
void stop_watching(InitWatch& init);
/// Removes the file of an init that has ended when the process gets the next SIGUSR1.
void remove_at_next_signal(std::shared_ptr<InitFile> file);
/// Dumps into the folder that STRAIT_FLIGHT_RECORDER names (flight_folder.hpp); an error if it names none, or cannot be
/// written to.
Status dump_to_folder(const FlightRecorder& recorder, const std::string& reason);
/// Dumps after `failure`. Does nothing without a folder, and only warns if it cannot dump.
void dump_on_failure(const FlightRecorder& recorder, const Error& failure);

}  // namespace strait
