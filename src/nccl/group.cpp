#include "nccl/group.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "nccl/settings.hpp"

namespace strait::nccl {
namespace {

/// Calls `f` on the communicators that report how the work goes: the new one and its parent, if any.
template <class F>
void for_both(const SetUp& work, F&& f) {
  if (work.comm != nullptr) f(*work.comm);
  if (work.parent != nullptr) f(*work.parent);
}

/// Whether the work blocks. As in NCCL, the parent decides, if there is one.
bool is_blocking(const SetUp& work) { return (work.parent != nullptr ? work.parent : work.comm)->is_blocking; }

/// Ends the work: afterwards the communicators are usable, or hold the error.
void complete(const SetUp& work, straitComm_t made, ncclResult_t result, const std::string& text) {
  for_both(work, [&](ncclComm& comm) {
    const std::scoped_lock lock(comm.mutex);
    if (&comm == work.comm) comm.strait = made;
    if (made != nullptr && comm.stops != (&comm == work.comm ? 0 : work.comm->known_parent_stops))
      (void)straitCommAbort(made);
    // The parent of a failed split remains usable. It gets the error only if the program polls it.
    const bool tells = &comm == work.comm || !is_blocking(work);
    if (tells && result != ncclSuccess && comm.setup_result == ncclSuccess) {
      comm.setup_result = result;
      comm.setup_error = text;
    }
    if (--comm.set_ups == 0) comm.progress.store(comm.setup_result, std::memory_order_release);
  });
}

void let_go_of(const SetUp& work) {
  for_both(work, [](ncclComm& comm) { let_go(&comm); });
}

struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text;
};

/// Ends work that begin() was called for.
void finish(const SetUp& work, straitComm_t made, const Outcome& outcome) {
  complete(work, made, outcome.result, outcome.text);
  for_both(work, [](ncclComm& comm) { end_call(&comm); });
  let_go_of(work);
}

Outcome run(const SetUp& work) {
  straitComm_t made = nullptr;
  Outcome outcome;
  outcome.result = guarded([&] {
    const ncclResult_t result = work.make(work.comm, &made);
    if (result != ncclSuccess) outcome.text = last_error();
    return result;
  });
  finish(work, made, outcome);
  return outcome;
}

/// Marks the work's communicators as busy. `is_awaited`: the call that has the work done waits for its end.
void begin(const SetUp& work, bool is_awaited) {
  for_both(work, [&](ncclComm& comm) {
    begin_call(&comm);
    const std::scoped_lock lock(comm.mutex);
    const bool is_polled = &comm == work.comm || !is_awaited || !is_blocking(work);
    comm.is_polled = is_polled || (comm.set_ups > 0 && comm.is_polled);
    if (comm.set_ups++ > 0) return;
    comm.setup_result = ncclSuccess;
    comm.setup_error.clear();
    comm.progress.store(ncclInProgress, std::memory_order_relaxed);
  });
}

/// Pieces of work with one parent, which one thread runs in order: all ranks must run them in that order.
using Sequence = std::vector<SetUp>;
std::vector<Sequence> sequences_of(std::vector<SetUp> works) {
  std::vector<Sequence> sequences;
  for (SetUp& work : works) {
    const auto same = std::find_if(sequences.begin(), sequences.end(), [&](const Sequence& sequence) {
      return work.parent != nullptr && sequence.front().parent == work.parent;
    });
    (same == sequences.end() ? sequences.emplace_back() : *same).push_back(std::move(work));
  }
  return sequences;
}

template <class F>
void for_all(const std::vector<Sequence>& sequences, F&& f) {
  for (const Sequence& sequence : sequences)
    for (const SetUp& work : sequence) f(work);
}

Outcome run_all(const Sequence& sequence) {
  Outcome first;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const Outcome outcome = run(sequence[i]);
    if (first.result == ncclSuccess) first = outcome;
  }
  return first;
}

/// Calls `start`, which starts a thread. Failure to start it is an error like any other.
template <class Start>
Outcome try_start(Start&& start) {
  try {
    start();
    return {};
  } catch (const std::exception& error) {
    return {ncclSystemError,
            "cannot start a thread: " + std::string(error.what()) + ". Raise the limit on processes (ulimit -u)"};
  }
}

/// Has `start` start a thread for each sequence. If one fails, all work is aborted: it would wait for missing ranks.
template <class Start>
Outcome start_all(const std::vector<Sequence>& sequences, bool is_awaited, Start&& start) {
  for_all(sequences, [&](const SetUp& work) {
    begin(work, is_awaited);
    for_both(work, [](ncclComm& comm) { hold(&comm); });  // a thread may finish, and release its hold, at once
  });
  Outcome outcome;
  for (const Sequence& sequence : sequences) {
    if (outcome.result == ncclSuccess) outcome = try_start([&] { start(sequence); });
    if (outcome.result == ncclSuccess) continue;
    for (const SetUp& work : sequence) {
      // The other ranks take part in this work, or will, and have no other way to learn that this rank does not.
      if (work.parent != nullptr && !work.finalizes) (void)straitCommAbort(work.parent->strait);
      finish(work, nullptr, outcome);
    }
  }
  for_all(sequences, [&](const SetUp& work) {
    if (outcome.result != ncclSuccess && work.comm != nullptr) (void)stop(*work.comm);
    let_go_of(work);
  });
  return outcome;
}

ncclResult_t run_in_background(std::vector<SetUp> works) {
  const Outcome started = start_all(sequences_of(std::move(works)), false, [](const Sequence& sequence) {
    std::thread([sequence] {
      straitAdoptThread();
      run_all(sequence);
    }).detach();
  });
  return started.result == ncclSuccess ? ncclInProgress : failed(started.result, started.text);
}

ncclResult_t run_and_wait(std::vector<SetUp> works) {
  const std::vector<Sequence> sequences = sequences_of(std::move(works));
  std::vector<Outcome> outcomes(sequences.size());
  Outcome started;
  {
    std::vector<std::jthread> threads;
    started = start_all(sequences, true, [&](const Sequence& sequence) {
      threads.emplace_back([&sequence, &outcome = outcomes[threads.size()]] {
        straitAdoptThread();
        outcome = run_all(sequence);
      });
    });
  }
  outcomes.insert(outcomes.begin(), started);
  for (const Outcome& outcome : outcomes)
    if (outcome.result != ncclSuccess) return failed(outcome.result, outcome.text);
  return ncclSuccess;
}

}  // namespace

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

/// Constructs Strait's thread-local group first, so that it outlives this one (~Group needs it). It has none to cancel.
Group::Group() { (void)straitGroupCancel(); }

/// Other threads may be waiting for set-up work recorded in this group: it must end, with an error.
Group::~Group() {
  if (is_open())
    (void)guarded(
        [&] { return give_up(ncclInvalidUsage, "the thread ended before its group: ncclGroupEnd is missing"); });
  for (ncclComm* comm : aborted_) let_go(comm);
}

ncclResult_t Group::start() {
  if (depth_ == 0)
    if (const ncclResult_t result = checked(straitGroupStart()); result != ncclSuccess) return result;
  ++depth_;
  return ncclSuccess;
}

ncclResult_t Group::end() {
  if (depth_ == 0) return failed(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (depth_ > 1) {
    --depth_;
    return ncclSuccess;
  }
  end_aborted();
  if (first_error_ != ncclSuccess) return give_up(first_error_, first_text_);
  // By guarded(), because an exception must not leave the group open.
  const ncclResult_t result = guarded([&] { return run_set_ups(); });
  if (result != ncclSuccess && result != ncclInProgress) return give_up(result, last_error());
  const ncclResult_t ran = end_strait_group(straitGroupEnd);
  const std::string text = ran == ncclSuccess ? "" : last_error();
  const ncclResult_t finalized = guarded([&] { return run_finalizations(); });
  if (ran != ncclSuccess) return failed(ran, text);
  return finalized == ncclSuccess ? result : finalized;
}

/// Runs what comes before the operations: set-up work, then window registrations.
ncclResult_t Group::run_set_ups() {
  auto works = std::exchange(set_ups_, {});
  ncclResult_t result = ncclSuccess;
  // Splits and registrations are both collective over the parent: all ranks must run one kind after the other.
  const bool windows_follow =
      std::any_of(works.begin(), works.end(), [&](const SetUp& work) { return windows_.contains(work.parent); });
  if (!windows_follow && !std::all_of(works.begin(), works.end(), is_blocking))
    result = run_in_background(std::move(works));
  else if (!works.empty())
    result = run_and_wait(std::move(works));
  if (result != ncclSuccess && result != ncclInProgress) return result;
  const ncclResult_t shared = share_windows();
  return shared == ncclSuccess ? result : shared;
}

/// Runs first: calls of the group may need the resources that this frees. Errors are only logged, because they do not
/// concern the group's result.
void Group::end_aborted() {
  if (const straitResult_t result = end_stopped(std::exchange(aborted_, {})); result != straitSuccess)
    log(LogLevel::warn, "an aborted communicator did not end well: " + std::string(straitGetLastError(nullptr)));
}

ncclResult_t Group::share(ncclComm* comm, ncclWindow_vidmem* window) {
  if (!is_open()) return nccl::share(*comm, *window);
  keep(comm);
  windows_[comm].push_back(window);
  set_awaiting({{comm, {window}}}, true);
  return ncclSuccess;
}

void Group::set_awaiting(const Windows& windows, bool awaits_group) {
  for (const auto& [comm, of_comm] : windows) {
    const std::scoped_lock lock(comm->mutex);
    for (ncclWindow_vidmem* window : of_comm) window->awaits_group = awaits_group;
  }
}

ncclResult_t Group::share_windows() {
  const auto windows = std::exchange(windows_, {});
  std::vector<Outcome> outcomes(windows.size());
  {
    std::vector<std::jthread> threads;
    std::size_t next = 0;
    for (const auto& entry : windows) {
      Outcome& outcome = outcomes[next++];
      const Outcome started = try_start([&] {
        threads.emplace_back([&entry, &outcome] {
          straitAdoptThread();
          for (ncclWindow_vidmem* window : entry.second)
            if (outcome.result == ncclSuccess)
              outcome.result = guarded([&] { return nccl::share(*entry.first, *window); });
          if (outcome.result != ncclSuccess) outcome.text = last_error();
        });
      });
      if (started.result == ncclSuccess) continue;
      outcome = started;
      (void)straitCommAbort(entry.first->strait);  // ends the wait of the other ranks for this one
    }
  }
  set_awaiting(windows, false);
  for (const Outcome& outcome : outcomes)
    if (outcome.result != ncclSuccess) return failed(outcome.result, outcome.text);
  return ncclSuccess;
}

ncclResult_t Group::end_strait_group(straitResult_t (*end_group)()) {
  depth_ = 0;
  const auto kept = std::exchange(kept_, {});
  for (ncclComm* comm : kept) begin_call(comm);
  const ncclResult_t result = checked(end_group());
  for (ncclComm* comm : kept) {
    end_call(comm);
    let_go(comm);
  }
  return result;
}

/// Runs in turn, because each waits only for work that its own GPU already has. Returns the first error.
ncclResult_t Group::run_finalizations() {
  ncclResult_t result = ncclSuccess;
  for (SetUp& work : std::exchange(finalizations_, {})) {
    if (live_comm(work.parent) == nullptr) {  // the group has also destroyed the communicator
      let_go_of(work);
      continue;
    }
    const ncclResult_t one = run_now(std::move(work));
    if (result == ncclSuccess || result == ncclInProgress) result = one == ncclSuccess ? result : one;
  }
  return result;
}

/// Drops all that is recorded in the group. Set-up work ends with `result` and `text`.
void Group::discard(ncclResult_t result, const std::string& text) {
  set_awaiting(std::exchange(windows_, {}), false);
  (void)end_strait_group(straitGroupCancel);
  for (SetUp& work : std::exchange(finalizations_, {})) {
    work.parent->is_finalized = false;
    set_ups_.push_back(std::move(work));
  }
  for (const SetUp& work : std::exchange(set_ups_, {})) {
    begin(work, true);
    finish(work, nullptr, {result, text});
  }
  first_error_ = ncclSuccess;
  first_text_.clear();
}

ncclResult_t Group::give_up(ncclResult_t result, std::string text) {
  discard(result, text);
  return failed(result, text);
}

ncclResult_t Group::cancel(ncclResult_t result, const std::string& text) {
  if (depth_ == 0) return failed(ncclInvalidUsage, "no group is open");
  if (depth_ > 1) {
    --depth_;
    return note(failed(result, text));
  }
  end_aborted();
  return give_up(result, text);
}

ncclResult_t Group::simulate_end() {
  if (depth_ == 0) return failed(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  if (first_error_ != ncclSuccess) return cancel(first_error_, first_text_);
  if (!set_ups_.empty() || !finalizations_.empty() || !windows_.empty())
    return cancel(ncclInvalidUsage,
                  "ncclGroupSimulateEnd: only groups of operations can be simulated. This one has ended, unrun");
  if (depth_ > 1) {
    --depth_;
  } else {
    end_aborted();
    discard(ncclSuccess, "");
  }
  return ncclSuccess;
}

ncclResult_t Group::submit(SetUp work) {
  for_both(work, [](ncclComm& comm) { hold(&comm); });
  if (!is_open()) return run_now(std::move(work));
  (work.finalizes ? finalizations_ : set_ups_).push_back(std::move(work));
  return ncclSuccess;
}

ncclResult_t Group::finalize(ncclComm* comm) {
  const auto finish = [comm](ncclComm*, straitComm_t*) { return checked(straitCommSynchronize(comm->strait)); };
  return submit({nullptr, comm, finish, true});
}

ncclResult_t Group::run_now(SetUp work) {
  if (!is_blocking(work)) {
    std::vector<SetUp> works;
    works.push_back(std::move(work));
    return run_in_background(std::move(works));
  }
  begin(work, true);
  const Outcome outcome = run(work);
  return outcome.result == ncclSuccess ? ncclSuccess : failed(outcome.result, outcome.text);
}

/// Holds the communicator even if set-up work already does: that ends, and releases it, before the operations.
void Group::keep(ncclComm* comm) {
  if (std::find(kept_.begin(), kept_.end(), comm) != kept_.end()) return;
  kept_.push_back(comm);
  hold(comm);
}

bool Group::keeps(const ncclComm* comm) const {
  return std::find(kept_.begin(), kept_.end(), comm) != kept_.end() ||
         std::any_of(set_ups_.begin(), set_ups_.end(),
                     [&](const SetUp& work) { return work.comm == comm || work.parent == comm; });
}

ncclResult_t Group::note(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress && is_open() && first_error_ == ncclSuccess) {
    first_error_ = result;
    first_text_ = last_error();
  }
  return result;
}

}  // namespace strait::nccl
