#pragma once

#include <cstdint>
#include <functional>
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

/// The last calls of a communicator's ranks, as they lie in the control words that the ranks of a host share: what each
/// posted and what it finished, when. Recording is a few stores into a line that the call writes anyway. Dumped on
/// request, on failure and by a signal; `strait trace` reads the files.
class FlightRecorder {
 public:
  struct About {
    std::uint64_t communicator = 0;  ///< a number that its ranks share
    std::uint32_t rank = 0;
    std::vector<RankName> names;  ///< by rank
    std::string host;
    std::int64_t pid = 0;
    std::string transport;
    int device = -1;  ///< -1: a host rank
    /// GPU ranks: whether all that was posted is finished; nothing where it is not known. Null: host ranks.
    std::function<std::optional<bool>()> is_idle;
    /// Likewise, of what the GPU has started, which it puts down.
    std::function<std::optional<DeviceProgress>()> progress;
  };
  /// `controls`: by rank; they outlive the recorder.
  FlightRecorder(std::vector<RankControl*> controls, About about)
      : controls_(std::move(controls)), about_(std::move(about)) {}

  // By the rank's own thread.
  void set_stream(std::uint64_t sequence, const void* stream) {
    own().calls[sequence % posted_calls].stream.store(reinterpret_cast<std::uintptr_t>(stream),
                                                      std::memory_order_relaxed);
  }
  /// `at_once`: without a wait, so that it ended when it was posted as far as a reader cares; the clock is not asked.
  void finish(std::uint64_t sequence, bool at_once) { finish(own().calls, sequence, at_once); }
  /// Sends and receives of one group, which finish together.
  void post_messages(std::span<const Call> messages);
  void finish_messages(bool at_once) {
    while (finished_messages_ < messages_) finish(own().messages, ++finished_messages_, at_once);
  }

  /// From any thread. `reason`: why, for its reader.
  std::string json(const std::string& reason) const;
  Status dump(const std::string& path, const std::string& reason) const;
  /// A name for the file of this rank and communicator.
  std::string file_name() const;
  const About& about() const { return about_; }
  /// Its number, as people read it.
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

/// What STRAIT_FLIGHT_RECORDER asks for: recorders between these two are dumped into its folder when the process gets
/// SIGUSR1, and by dump_on_failure. Where it asks for nothing, they do nothing.
void watch_for_signal(const FlightRecorder& recorder);
void forget(const FlightRecorder& recorder);
/// Into the folder that STRAIT_FLIGHT_RECORDER names; an error where it names none, or where it cannot be written to.
Status dump_to_folder(const FlightRecorder& recorder, const std::string& reason);
/// Likewise, but does nothing without a folder, and only warns of what fails.
void dump_on_failure(const FlightRecorder& recorder, const Error& failure);

}  // namespace strait
