#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nccl/comm.hpp"

namespace strait::nccl {

/// A piece of set-up work: makes the communicator `comm`, possibly out of `parent`, or finalizes `parent`. `comm` is
/// NULL for a rank that takes part in a split without getting a communicator. Ranks wait for one another in such work.
/// Pieces therefore run in threads of their own (one per parent, in the recorded order), except a single one that a
/// blocking call waits for, which runs in the calling thread.
struct SetUp {
  ncclComm* comm = nullptr;
  ncclComm* parent = nullptr;
  /// Does the work, in a thread without an open group. `comm` is the member above; the result goes to `made`. The text
  /// of an error is in last_error() afterwards.
  std::function<ncclResult_t(ncclComm* comm, straitComm_t* made)> make;
  bool finalizes = false;  ///< makes nothing: waits for all work on `parent`, after the operations of a group
};

/// The calls of this thread between ncclGroupStart and ncclGroupEnd. Operations are recorded by Strait's own group;
/// set-up work and window registrations are recorded here, because Strait's groups do not support all of them. One
/// object per thread, used by that thread only.
class Group {
 public:
  static Group& of_this_thread();
  Group();
  /// Cancels a group that is still open.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool is_open() const { return depth_ > 0; }
  ncclResult_t start();
  ncclResult_t end();
  /// Ends the group without running it. At the outermost level, the recorded set-up work fails with `result` and
  /// `text`; an inner level only marks the whole group as failed. Returns `result`.
  ncclResult_t cancel(ncclResult_t result, const std::string& text);
  /// Ends the group for ncclGroupSimulateEnd; at the outermost level nothing runs. Returns success if the group
  /// contains only operations and has had no error.
  ncclResult_t simulate_end();

  /// Runs set-up work, or records it in the open group. `comm` and `parent` are held until it is done.
  ncclResult_t submit(SetUp work);
  /// Waits until all work on the communicator is done: at once if it blocks and no group is open, in the background if
  /// it does not block, and otherwise after the operations of the open group.
  ncclResult_t finalize(ncclComm* comm);
  /// Registers a window's memory with Strait, at once or at the end of the open group. It is deferred because one
  /// thread may register windows of several ranks, which wait for one another. The communicator owns the window, and
  /// does not release it before the end of the group.
  ncclResult_t share(ncclComm* comm, ncclWindow_vidmem* window);
  /// Holds a communicator on which calls are recorded until the end of the group.
  void keep(ncclComm* comm);
  bool keeps(const ncclComm* comm) const;
  /// Takes over the program's hold on an aborted communicator, and releases it when the group ends, in whatever way
  /// that happens.
  void end_later(ncclComm* comm) { aborted_.push_back(comm); }
  /// Returns `result`. If it is an error and a group is open, the group fails: its end returns the first such error and
  /// runs nothing.
  ncclResult_t note(ncclResult_t result);

 private:
  using Windows = std::map<ncclComm*, std::vector<ncclWindow_vidmem*>>;
  void end_aborted();
  /// Runs work whose communicators are already held.
  static ncclResult_t run_now(SetUp work);
  static void set_awaiting(const Windows& windows, bool awaits_group);
  ncclResult_t run_set_ups();
  /// Ends Strait's group, which contains the operations, by straitGroupEnd or straitGroupCancel.
  ncclResult_t end_strait_group(straitResult_t (*end_group)());
  ncclResult_t share_windows();
  ncclResult_t run_finalizations();
  void discard(ncclResult_t result, const std::string& text);
  ncclResult_t give_up(ncclResult_t result, std::string text);

  int depth_ = 0;
  ncclResult_t first_error_ = ncclSuccess;
  std::string first_text_;
  std::vector<SetUp> set_ups_, finalizations_;
  Windows windows_;
  std::vector<ncclComm*> kept_;
  std::vector<ncclComm*> aborted_;
};

}  // namespace strait::nccl
