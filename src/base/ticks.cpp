#include "base/ticks.hpp"

#include <thread>

namespace strait {

TickScale::Reading TickScale::read() const {
  using std::chrono::steady_clock, std::chrono::system_clock;
  using Microseconds = std::chrono::duration<double, std::micro>;
  std::this_thread::sleep_until(first_ + std::chrono::milliseconds(10));
  const double elapsed_us = Microseconds(steady_clock::now() - first_).count();
  const std::uint64_t ticks = ticks_now();
  const double unix_us = Microseconds(system_clock::now().time_since_epoch()).count();
  return {ticks, unix_us, elapsed_us / static_cast<double>(ticks - first_ticks_)};
}

}  // namespace strait
