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

/// The error of a forked child that uses what is its parent's.
tl::unexpected<Error> fail_inherited(const std::string& what);

/// The calls that this thread has recorded between straitGroupStart and straitGroupEnd.
class Group {
 public:
  static Group& of_this_thread();

  bool is_open() const { return depth_ > 0; }
  void start() {
    if (depth_++ == 0) fork_generation_ = fork_generation();
  }
  /// Ends the innermost group; the outermost runs everything.
  Status end();
  /// Ends the innermost group; the outermost then runs nothing. Needs no memory.
  Status cancel();

  void add(Comm& comm, Call call);
  /// Whether calls on this communicator are recorded.
  bool uses(const Comm* comm) const;
  /// A call that waits for other ranks outside of operations: init, split, register. All of a group's run side by side
  /// before its operations, those on the same communicator in order. `comm` is null where there is none yet.
  void add_set_up(Comm* comm, std::function<Status()> set_up);
  /// Spoils the group: its end returns this error and runs nothing.
  void refuse(const Error& error);

 private:
  struct Queue {
    Comm* comm;
    std::vector<Call> messages;     ///< sends and receives, run as one
    std::vector<Call> collectives;  ///< in order, before the messages
    std::size_t next = 0;
    bool has_begun = false;
    bool messages_begun = false;
    bool in_progress = false;
    bool is_over = false;
  };
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
  /// How a communicator's turn went: its operation waits for others, or has ended, or all have.
  enum class Turn { waits, ended, nothing_left };
  /// Advances the operation in progress, or begins the next one.
  static Result<Turn> advance(Queue& queue);

  int depth_ = 0;
  std::uint32_t fork_generation_ = 0;  ///< of the process that opened it
  Status refused_;
  bool is_cancelled_ = false;
  std::vector<SetUps> set_ups_;
  std::vector<Queue> queues_;
};

}  // namespace strait
