#include "communicator/group.hpp"

#include <algorithm>
#include <thread>

namespace strait {

Group& Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::add(Comm& comm, Call call) {
  auto queue = std::find_if(queues_.begin(), queues_.end(), [&](const Queue& q) { return q.comm == &comm; });
  if (queue == queues_.end()) queue = queues_.insert(queues_.end(), Queue{&comm, {}, {}, 0, false, false});
  (call.collective == Collective::send_recv ? queue->messages : queue->collectives).push_back(std::move(call));
}

bool Group::uses(const Comm* comm) const {
  return std::any_of(queues_.begin(), queues_.end(), [&](const Queue& queue) { return queue.comm == comm; });
}

void Group::add_init(std::function<Status()> init) { inits_.push_back(std::move(init)); }

void Group::refuse(const Error& error) {
  if (refused_) refused_ = tl::unexpected(error);
}

Status Group::end() {
  if (depth_ == 0) return fail(Code::invalid_usage, "straitGroupEnd without straitGroupStart");
  if (--depth_ > 0) return {};
  // Taken out first: whatever happens, the next group starts empty.
  const auto inits = std::exchange(inits_, {});
  auto queues = std::exchange(queues_, {});
  STRAIT_TRY(std::exchange(refused_, Status()));
  STRAIT_TRY(run_inits(inits));
  return run_queues(queues);
}

Status Group::run_inits(const std::vector<std::function<Status()>>& inits) {
  // Ranks wait for one another while they join, so each needs a thread of its own.
  std::vector<Status> results(inits.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < inits.size(); ++i) threads.emplace_back([&, i] { results[i] = inits[i](); });
  }
  for (Status& result : results) STRAIT_TRY(std::move(result));
  return {};
}

/// Advances one communicator's operations; whether anything is left to do.
Result<bool> Group::advance(Queue& queue) {
  for (;;) {
    if (!queue.in_progress) {
      if (!queue.messages.empty() && !queue.messages_begun) {
        queue.messages_begun = true;
        STRAIT_TRY(queue.comm->begin_messages(queue.messages));
      } else if (queue.next < queue.collectives.size()) {
        STRAIT_TRY(queue.comm->begin(queue.collectives[queue.next++]));
      } else {
        return false;
      }
      queue.in_progress = true;
    }
    STRAIT_ASSIGN(const Comm::State state, queue.comm->step());
    if (state == Comm::State::done)
      queue.in_progress = false;
    else if (state == Comm::State::idle)
      return true;
  }
}

Status Group::run_queues(std::vector<Queue>& queues) {
  // One failed communicator must not leave the others' operations half done: they go on, the first error is kept.
  Status first_error;
  std::vector<Queue*> open;
  for (Queue& queue : queues) open.push_back(&queue);
  while (!open.empty()) {
    std::erase_if(open, [&](Queue* queue) {
      Result<bool> more = advance(*queue);
      if (more && *more)
        if (Status waited = queue->comm->pause(); !waited) more = tl::unexpected(std::move(waited).error());
      if (!more && first_error) first_error = tl::unexpected(more.error());
      return !more || !*more;
    });
  }
  return first_error;
}

}  // namespace strait
