#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "calls/call.hpp"
#include "calls/watch.hpp"
#include "kernels/launch.hpp"
#include "transport/control.hpp"

namespace strait {

/// Tracks which calls a rank's GPU has started, including those in graphs, whose launches the host does not see.
/// Kernels mark each call, by number and hash, in their GPU's memory. This class translates marks into signatures and
/// records them in the rank's control words (RankControl::started), where all ranks compare them and flight recorders
/// read them. A rank whose kernel waits for long makes all ranks do so. That suffices, because calls that differ make
/// some rank wait; calls that do not wait cost the host nothing. From any thread, except where one is named.
class StartedCalls {
 public:
  /// Returns a copy of the GPU's counters; nothing if it does not answer.
  using Read = std::function<std::optional<kernels::LaunchCounts>()>;
  /// Returns the rank for which a kernel waits that names this member of its ring; nothing if it is no rank.
  using RankOf = std::function<std::optional<std::uint32_t>(std::uint32_t member)>;

  /// A call whose mark can be translated.
  struct Known {
    CallSignature signature;
    bool is_captured = false;
    bool has_parts = false;  ///< it consists of more than one launch
    friend bool operator==(const Known&, const Known&) = default;
  };
  /// Notes that a call was enqueued or captured, so that its mark can be translated.
  void note_call(const Known& call);
  /// Polled by the attendant thread. If a kernel of this rank waits, asks all ranks to record what they have started,
  /// and raises an error if the wait can never end. If any rank has asked, records what this rank's GPU has started.
  void poll(kernels::Mailbox& mailbox, Watch& watch, const Read& read, const RankOf& rank_of);
  /// Raises an error if a peer's GPU has started another call than this rank's under the same collective number. By the
  /// attendant thread.
  static Status compare(Watch& watch);
  /// Records the calls in `started` that are new, unless a kernel has given up. Kernels may start more calls between
  /// two recordings than are kept, so some may never be recorded.
  void record(const kernels::StartedMarks& started, kernels::Mailbox& mailbox, RankControl& control);
  /// Records the marks that waiting kernels have left in the mailbox, and takes them out of it.
  void record_marks_of_waiting(kernels::Mailbox& mailbox, RankControl& control);

 private:
  /// Most polls between two recordings: bounded so that the 32 bits of a mark's number tell which mark is newer.
  static constexpr int most_polls = 10'000;
  /// Most calls that are known. More different ones outside of graphs occur only in programs whose counts never repeat.
  static constexpr std::size_t most_known = std::size_t{1} << 16;
  /// Polls without news after which no kernel is taken to wait any more: one that waits reports more often than that.
  static constexpr int short_wait_polls = 20;
  struct Mark {
    std::uint64_t sequence;
    std::uint32_t call;
  };
  /// A rank for which a kernel of this rank was seen waiting.
  struct Awaited {
    std::uint32_t times_gone = 0;          ///< reports of the wait since that rank has gone (Watch::has_gone())
    std::uint32_t times_opposed = 0;       ///< reports of both ranks, each of a wait for the other in the same calls
    std::uint32_t reports = 0;             ///< that rank's count of reports, when it was last seen
    std::uint64_t own_call = 0, call = 0;  ///< those calls' hashes: this rank's, that rank's
  };
  /// Returns whether any rank has asked since the last time for what GPUs have started.
  bool has_new_requests(const Watch& watch);
  /// Notes that a kernel of this rank reports waiting for `rank`, or for none in particular. Raises an
  /// error once several reports were made after that rank had gone, or while it waited for this one in another call.
  Status see_kernel_waiting(Watch& watch, std::optional<std::uint32_t> rank);
  static Status see_opposed(Watch& watch, std::uint32_t rank, Awaited& awaited);
  static Status compare(Watch& watch, std::uint64_t sequence, const CallSignature& own);
  /// Decodes a mark. Its number has 32 bits, which may wrap; the one nearest to newest_ is meant.
  Mark read(std::uint64_t mark) const;
  void write(PostedCall& place, const Mark& mark) const;

  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Known> known_;  ///< by mark
  std::optional<Known> last_;                       ///< fast path: most calls equal the one before
  std::uint64_t newest_ = 0;
  int polls_ = 0;  ///< calls of poll() since the last recording
  int polls_since_wait_ = 0;
  std::uint32_t requests_seen_ = 0;                     ///< sum of all ranks' RankControl::mark_requests, as last seen
  std::unordered_map<std::uint32_t, Awaited> awaited_;  ///< by rank
};

}  // namespace strait
