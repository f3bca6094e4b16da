// How a communicator ends: its handle is destroyed, the process ends without that, or it is aborted.
#include <chrono>
#include <optional>
#include <thread>

#include "base/left_at_exit.hpp"
#include "communicator/comm.hpp"

namespace strait {
namespace {

/// How long a process that ends waits until its peers have heard of that, for all its communicators together.
constexpr std::int64_t farewell_ms = 500;

/// Tells peers that this process ends without having destroyed these communicators, so that they do not take that for a
/// death.
void end_all(const std::vector<Comm*>& comms) {
  const Deadline deadline = Deadline::after_ms(farewell_ms);
  for (Comm* comm : comms) comm->announce_exit(deadline);
}
using CommsAtExit = LeftAtExit<Comm, end_all>;

}  // namespace

void Comm::prepare_exit() { CommsAtExit::instance().add(*this); }

void Comm::announce_exit(const Deadline& deadline) {
  std::optional<bool> idle;
  while (!has_failed() && !(idle = is_idle()) && !deadline.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(deadline.poll_ms(5)));
  if (has_failed() || idle != true) return;
  watch_->announce_exit();
  transport_->announce_exit(deadline);
}

Comm::~Comm() {
  CommsAtExit::instance().remove(*this);
  if (recorder_) stop_watching(*recorder_);
  device_.reset();
  if (watch_) watch_->leave();
}

void Comm::abort() {
  const Error error = watch_->raise(
      {Code::aborted, "the communicator was aborted by " + watch_->name_of(rank_) + " (straitCommAbort)"});
  channel_->announce(error);  // to ranks that are splitting or registering
}

}  // namespace strait
