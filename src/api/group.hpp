#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/forks.hpp"
#include "calls/call.hpp"
#include "communicator/comm.hpp"

namespace strait {

/// Returns the error for a forked child that uses an object (`what`) of its parent.
tl::unexpected<Error> fail_inherited(const std::string& what);

/// The calls that this thread has recorded between straitGroupStart and straitGroupEnd. One object per thread, used by
/// that thread only.
class Group {
 public:
  static Group& of_this_thread();

  bool is_open() const { return depth_ > 0; }
  void start() {
    if (depth_++ == 0) fork_generation_ = fork_generation();
  }
  /// Ends the innermost group. The end of the outermost one runs everything that was recorded.
  Status end();
  /// Ends the innermost group, and makes the end of the outermost one run nothing. Allocates no memory.
  Status cancel();

  void add(Comm& comm, Call call);
  /// Whether calls on this communicator are recorded.
  bool uses(const Comm* comm) const;
  /// Records a call that waits for other ranks but is not an operation: init, split, shrink or registration. At the
  /// group's end they all run before the operations: concurrently, but those on the same communicator in order. `comm`
  /// is null if there is no communicator yet.
  void add_set_up(Comm* comm, std::function<Status()> set_up);
  /// Makes the group fail: its end runs nothing and returns this error (the first one, if there are several).
  void refuse(const Error& error);

 private:
  /// The operations recorded on one communicator, and how far they have run.
  struct Queue {
    Comm* comm;
    std::vector<Call> messages;     ///< sends and receives, run together as one operation after the collectives
    std::vector<Call> collectives;  ///< run in order, before the messages
    std::size_t next = 0;
    bool has_begun = false;
    bool messages_begun = false;
    bool in_progress = false;
    bool is_over = false;
  };
  /// The set-up calls recorded on one communicator, or an init, for which `comm` is null.
  struct SetUps {
    Comm* comm;
    std::vector<std::function<Status()>> calls;
    Status result;
  };
  static Status run_set_ups(std::vector<SetUps>& set_ups);
  static Status run_queues(std::vector<Queue>& queues);
  static std::vector<const Call*> on_other_streams(const Queue& queue, const Call& call);
  static Status begin_streams(const Queue& queue);
  static Status end_streams(const Queue& queue);
  /// Outcome of one turn of a queue: its operation waits for other ranks, an operation has ended, or nothing is left to
  /// run.
  enum class Turn { waits, ended, nothing_left };
  /// Advances the operation in progress, or begins the next one.
  static Result<Turn> advance(Queue& queue);

  int depth_ = 0;
  std::uint32_t fork_generation_ = 0;  ///< of the process that opened the group
  Status refused_;
  bool is_cancelled_ = false;
  std::vector<SetUps> set_ups_;
  std::vector<Queue> queues_;
};

}  // namespace strait
