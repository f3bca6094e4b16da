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

/// What a rank's GPU has started, also by graphs, of which the host sees nothing: kernels mark it in their GPU's memory
/// by number and hash, and this puts it in words into the rank's control words (RankControl::started), where all ranks
/// compare it and flight recorders show it. Who waits long has all ranks do so, for calls that differ make somebody
/// wait: what does not wait has nothing to do with the host. From any thread.
class StartedCalls {
 public:
  /// A copy of the GPU's counts; nothing where it does not answer.
  using Read = std::function<std::optional<kernels::LaunchCounts>()>;

  /// By what a call's first launch marks it (kernels::Ring::call).
  static std::uint32_t mark_of(const CallSignature& signature);

  struct Known {
    CallSignature signature;
    bool is_captured = false;
    bool has_parts = false;  ///< it is more than one launch
    friend bool operator==(const Known&, const Known&) = default;
  };
  /// That a call was enqueued, or captured.
  void know(const Known& call);
  /// Now and then, by one thread: if this rank's kernels wait, asks all ranks, and raises an error where they wait in
  /// vain; if one has asked, puts down.
  void look(kernels::Mailbox& mailbox, Watch& watch, const Read& read);
  /// By the same thread: raises an error if a peer's GPU has started another call than this rank's as its collective of
  /// some number.
  static Status compare(Watch& watch);
  /// Puts down what is new, until a call has given up. Between two times kernels may start more than are kept.
  void put_down(const kernels::StartedMarks& started, kernels::Mailbox& mailbox, RankControl& control);
  /// Likewise, what kernels have said that wait, and takes it.
  void put_down_waits(kernels::Mailbox& mailbox, RankControl& control);

 private:
  /// Between two times that are put down, so that the 32 bits of a mark's number tell which is newer.
  static constexpr int most_looks = 10'000;
  /// Words for so many different calls outside of graphs; more are those of a program whose counts never repeat.
  static constexpr std::size_t most_known = std::size_t{1} << 16;
  /// A kernel that waits says so more often than that.
  static constexpr int short_wait_looks = 20;
  struct Mark {
    std::uint64_t sequence;
    std::uint32_t call;
  };
  /// Of a rank for which a kernel was seen waiting.
  struct Awaited {
    std::uint32_t times_left = 0;          ///< how often, since it has left
    std::uint32_t times_opposed = 0;       ///< how often while it waited for this one, both in the same calls
    std::uint64_t own_call = 0, call = 0;  ///< those, by hashes
  };
  /// Whether a rank has asked for what GPUs have started since the last time.
  bool has_new_requests(const Watch& watch);
  /// That a kernel of this rank has been seen waiting for `rank`, which may be a number that no rank has. Raises an
  /// error if that was seen before, and each time that rank had left, or waited for this one in another call.
  Status see_kernel_waiting(Watch& watch, std::uint32_t rank);
  static Status see_opposed(Watch& watch, std::uint32_t rank, Awaited& awaited);
  static Status compare(Watch& watch, std::uint64_t sequence, const CallSignature& own);
  /// Of 32 bits there, which may wrap.
  Mark read(std::uint64_t mark) const;
  void write(PostedCall& place, const Mark& mark) const;

  std::mutex mutex_;
  std::unordered_map<std::uint32_t, Known> known_;  ///< by mark
  std::optional<Known> last_;                       ///< most calls are like the one before
  std::uint64_t newest_ = 0;
  int looks_ = 0;  ///< since the last time that all was put down
  int looks_since_wait_ = 0;
  std::uint32_t requests_seen_ = 0;                     ///< of the ranks' RankControl::mark_requests, all together
  std::unordered_map<std::uint32_t, Awaited> awaited_;  ///< by rank
};

}  // namespace strait
