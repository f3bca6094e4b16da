#include "api/group.hpp"

#include <algorithm>
#include <functional>
#include <thread>

#include "base/own_thread.hpp"
#include "base/shortage.hpp"

namespace strait {

tl::unexpected<Error> fail_inherited(const std::string& what) {
  return fail(Code::invalid_usage,
              "the " + what + " is that of the process which this one was forked from. A child may make its own");
}

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::add(Comm& comm, Call call) {
  auto queue = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& q) { return q.comm == &comm; });
  if (queue == queues_.end()) queue = queues_.insert(queues_.end(), Queue{&comm, {}, {}});
  (call.collective == Collective::send_recv ? queue->messages : queue->collectives).push_back(std::move(call));
}

bool Group::uses(const Comm* comm) const {
  const auto is_on_comm = [&](const auto& recorded) { return recorded.comm == comm; };
  return std::any_of(queues_.begin(), queues_.end(), is_on_comm) ||
         std::any_of(set_ups_.begin(), set_ups_.end(), is_on_comm);
}

void Group::add_set_up(Comm* comm, std::function<Status()> set_up) {
  auto found = std::find_if(set_ups_.begin(), set_ups_.end(),
                            [&](const SetUps& set_ups) { return comm != nullptr && set_ups.comm == comm; });
  if (found == set_ups_.end()) found = set_ups_.insert(set_ups_.end(), SetUps{comm, {}, {}});
  found->calls.push_back(std::move(set_up));
}

void Group::refuse(const Error& error) {
  if (refused_) refused_ = tl::unexpected(error);
}

Status Group::end() {
  if (depth_ == 0) return fail(Code::invalid_usage, "straitGroupEnd without straitGroupStart");
  if (--depth_ > 0) return {};
  // Taken out first, so that the next group starts empty whatever happens.
  auto set_ups = std::exchange(set_ups_, {});
  auto queues = std::exchange(queues_, {});
  const bool was_cancelled = std::exchange(is_cancelled_, false);
  STRAIT_TRY(std::exchange(refused_, Status()));
  if (was_cancelled) return fail(Code::invalid_usage, "a group within this one was cancelled (straitGroupCancel)");
  if (fork_generation_ != fork_generation()) return fail_inherited("open group");
  for (const Queue& queue : queues) {  // before anything runs: a group that fails this check must run nothing
    Status fits = queue.comm->or_out_of_memory([&] { return queue.comm->check_messages(queue.messages); });
    // A communicator that lacks memory for the check has failed, and reports that when its turn comes. The others go
    // on.
    if (!fits && fits.error().code != Code::out_of_memory) return fits;
  }
  STRAIT_TRY(run_set_ups(set_ups));
  return run_queues(queues);
}

Status Group::cancel() {
  if (depth_ == 0) return fail(Code::invalid_usage, "straitGroupCancel without straitGroupStart");
  is_cancelled_ = --depth_ > 0;
  if (is_cancelled_) return {};
  set_ups_.clear();
  queues_.clear();
  refused_ = {};
  return {};
}

Status Group::run_set_ups(std::vector<SetUps>& set_ups) {
  // Ranks wait for one another here, so each communicator's calls get a thread of their own; the first ones run in this
  // thread. After a failed call the next one is still made, because the other ranks make it, too.
  const auto run = [](SetUps& own) {
    for (const auto& call : own.calls)
      if (Status status = catch_shortage(call); !status && own.result) own.result = std::move(status);
  };
  Status started;
  {
    std::vector<std::jthread> threads;
    started = catch_shortage([&]() -> Status {
      for (std::size_t i = 1; i < set_ups.size(); ++i)
        threads.emplace_back([&run, &own = set_ups[i]] {
          is_own_thread = true;
          run(own);
        });
      return {};
    });
    if (started && !set_ups.empty()) run(set_ups.front());
    for (const SetUps& each : set_ups)
      if (!started && each.comm != nullptr) each.comm->give_up_set_up(started.error());
  }
  STRAIT_TRY(std::move(started));  // first, because errors of other ranks may be consequences of it
  for (SetUps& each : set_ups) STRAIT_TRY(std::move(each.result));
  return {};
}

/// Returns one recorded call for each stream other than that of `call`.
std::vector<const Call*> Group::on_other_streams(const Queue& queue, const Call& call) {
  std::vector<const Call*> found;
  for (const auto* calls : {&queue.messages, &queue.collectives})
    for (const Call& other : *calls)
      if (other.stream != call.stream &&
          std::none_of(found.begin(), found.end(), [&](const Call* known) { return known->stream == other.stream; }))
        found.push_back(&other);
  return found;
}

/// Makes the group a single operation towards its streams, as in NCCL: its calls start after all work enqueued earlier
/// on any of its streams, and later work on each of them waits for all its calls. The calls of a communicator run one
/// after another anyway. So it suffices that the first call's stream waits for the others, and that the others wait for
/// the last call's stream (end_streams()). A group of only sends and receives needs neither: these order their streams
/// themselves.
Status Group::begin_streams(const Queue& queue) {
  if (!queue.comm->is_on_device() || queue.collectives.empty()) return {};
  const Call& first = queue.collectives.front();
  for (const Call* other : on_other_streams(queue, first)) STRAIT_TRY(queue.comm->order_streams(*other, first));
  return {};
}

Status Group::end_streams(const Queue& queue) {
  if (!queue.comm->is_on_device() || queue.collectives.empty()) return {};
  const Call& last = queue.messages.empty() ? queue.collectives.back() : queue.messages.front();
  for (const Call* other : on_other_streams(queue, last)) STRAIT_TRY(queue.comm->order_streams(last, *other));
  return {};
}

Result<Group::Turn> Group::advance(Queue& queue) {
  if (!queue.has_begun) {
    queue.has_begun = true;
    STRAIT_TRY(begin_streams(queue));
  }
  if (!queue.in_progress) {
    // Collectives come before messages, as in NCCL: so a rank that makes a collective and then a receive without a
    // group matches one that makes the collective and the send within a group.
    if (queue.next < queue.collectives.size()) {
      STRAIT_ASSIGN(const std::size_t begun,
                    queue.comm->begin_first_of(std::span(queue.collectives).subspan(queue.next)));
      queue.next += begun;
    } else if (!queue.messages.empty() && !queue.messages_begun) {
      queue.messages_begun = true;
      STRAIT_TRY(queue.comm->begin_messages(queue.messages));
    } else {
      STRAIT_TRY(end_streams(queue));
      return Turn::nothing_left;
    }
    queue.in_progress = true;
  }
  for (;;) {
    STRAIT_ASSIGN(const Comm::State state, queue.comm->step());
    if (state == Comm::State::idle) return Turn::waits;
    if (state != Comm::State::done) continue;
    queue.in_progress = false;
    return Turn::ended;
  }
}

Status Group::run_queues(std::vector<Queue>& queues) {
  // A failed communicator must not leave the operations of others half done: they go on, and the first error is
  // returned. The communicators take turns, with one operation each. If all calls of one GPU were launched first, they
  // could fill its launch queue; the driver then blocks until kernels finish, and these may wait for kernels of other
  // GPUs that this thread would never get to launch.
  Status first_error;
  for (std::size_t open = queues.size(); open > 0;) {
    for (Queue& queue : queues) {
      if (queue.is_over) continue;
      Result<Turn> turn = queue.comm->or_out_of_memory([&]() -> Result<Turn> {
        STRAIT_ASSIGN(const Turn how, advance(queue));
        if (how == Turn::waits) STRAIT_TRY(queue.comm->pause());
        return how;
      });
      if (!turn && first_error) first_error = tl::unexpected(turn.error());
      queue.is_over = !turn || *turn == Turn::nothing_left;
      if (queue.is_over) --open;
    }
  }
  return first_error;
}

}  // namespace strait
