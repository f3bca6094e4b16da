#include "device/device_mailbox.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "device/device_arenas.hpp"

namespace strait {

void tell_of_mailbox(kernels::Mailbox& mailbox, const DeviceRank::Request& request, const DeviceReducers& reducers) {
  using Event = kernels::Mailbox::Event;
  const std::atomic_ref word(mailbox.event);
  Event event = word.load(std::memory_order_acquire);
  if (event != Event::none) event = word.exchange(Event::none);
  // Of several events only the last one is kept. It may have overwritten a timeout, after which outputs are invalid.
  if (std::atomic_ref(mailbox.timed_out).load() != 0 && !request.watch->has_failed()) event = Event::timeout;
  if (event == Event::none) return;
  const auto awaited = reducers.rank_of(std::atomic_ref(mailbox.peer).load());
  if (!awaited && event == Event::slow) return;  // the wait for the reducers has ended since
  const std::uint32_t peer = std::min(awaited.value_or(request.rank), request.ranks - 1);
  if (awaited) request.watch->note_awaited(peer);
  const std::string who = "a kernel on " + request.watch->name_of(request.rank);
  if (event == Event::timeout) request.watch->raise_timeout(who, request.timeout_ms, peer);
  // The wait may have ended since, and then that rank may have gone. If it has not ended, StartedCalls tells.
  if (event == Event::slow && !request.watch->has_gone(peer))
    request.watch->tell_of_slow_wait(who, Watch::slow_wait, peer);
}

}  // namespace strait
