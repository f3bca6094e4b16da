#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nccl/comm.hpp"

namespace strait::nccl {

/// Set-up work: makes `comm` (NULL: nothing, as for a rank that leaves in a split), perhaps out of `parent`. Ranks wait
/// for one another in it, so each piece runs in a thread of its own, except one that a blocking call waits for.
struct SetUp {
  ncclComm* comm = nullptr;
  ncclComm* parent = nullptr;
  /// Runs without an open group. Fills in what `comm` (given again) will be. The text of an error is the last one's.
  std::function<ncclResult_t(ncclComm* comm, straitComm_t* made)> make;
  bool finalizes = false;  ///< makes nothing: waits for all that runs on `parent`, behind the operations of a group
};

/// What this thread has between ncclGroupStart and ncclGroupEnd. Operations are Strait's to record; set-up work, which
/// Strait's groups do not all know, is recorded here.
class Group {
 public:
  static Group& of_this_thread();
  Group();
  /// Gives up a group that is still open.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool is_open() const { return depth_ > 0; }
  ncclResult_t start();
  ncclResult_t end();
  /// Ends the group; of an outermost one nothing runs, and its set-up work fails so.
  ncclResult_t cancel(ncclResult_t result, const std::string& text);
  /// Likewise, and is a success if the group is one of operations, without an error.
  ncclResult_t simulate_end();

  /// Runs or records set-up work. `comm` and `parent` are held until it is done.
  ncclResult_t submit(SetUp work);
  /// Success once all that runs on it is done: now, in the background if it does not block, or behind the operations of
  /// this group.
  ncclResult_t finalize(ncclComm* comm);
  /// Has peers read a window's memory in place, now or at the end of the group: a thread may register windows of
  /// several ranks, which wait for one another in it. The window is among the communicator's, and until then remains.
  ncclResult_t share(ncclComm* comm, ncclWindow_vidmem* window);
  /// Keeps a communicator with recorded calls alive until the end.
  void keep(ncclComm* comm);
  bool keeps(const ncclComm* comm) const;
  /// Leaves a communicator that was aborted, and the program's hold on it, to the end of the group, however that ends.
  void end_later(ncclComm* comm) { aborted_.push_back(comm); }
  /// The result of a call in this group, which its error spoils: the end returns it again, and runs nothing.
  ncclResult_t note(ncclResult_t result);

 private:
  using Windows = std::map<ncclComm*, std::vector<ncclWindow_vidmem*>>;
  void end_aborted();
  /// Of work that is held.
  static ncclResult_t run_now(SetUp work);
  static void set_awaiting(const Windows& windows, bool awaits_group);
  ncclResult_t run_set_ups();
  /// Strait's group, which holds the operations: by straitGroupEnd or straitGroupCancel.
  ncclResult_t end_straits(straitResult_t (*end_group)());
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
