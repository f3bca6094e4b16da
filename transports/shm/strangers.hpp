#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <vector>

#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/unique_fd.hpp"

namespace strait::shm {

inline constexpr std::size_t max_fds_of_a_rank = 2;  ///< pidfd and heap

/// Connections whose peer has not sent the password yet. Anyone on the host can make them, so their number is limited:
/// silent ones are dropped if room or descriptors run out. While there is room they stay, because they may be ranks
/// that have stalled.
class Strangers {
 public:
  struct Limits {
    /// Time that every connection gets: a rank sends its password as soon as it has connected.
    std::int64_t least_ms = 250;
    std::size_t pending = 512;
  };
  explicit Strangers(const Limits& limits) : limits_(limits) {}
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  ~Strangers();

  /// Appends the descriptors to poll: the strangers, and the listener unless there is no room.
  void watch(int listener, std::vector<pollfd>& fds) const;
  /// Accepts connections that wait at a listener. Fails if there are no descriptors left and no stranger to drop.
  Status accept_from(int listener);
  /// Outcome of examining a connection: it is silent, taken over (its descriptor was moved out), or to be dropped.
  enum class Verdict : std::uint8_t { silent, taken, dropped };
  /// Examines all connections by `look`.
  void look_at_all(const std::function<Verdict(UniqueFd&)>& look);
  std::int64_t dropped() const { return dropped_; }

 private:
  struct Stranger {
    UniqueFd fd;
    Deadline least;
  };
  bool make_room();
  void drop(Stranger& stranger);

  Limits limits_;
  std::list<Stranger> pending_;
  std::int64_t dropped_ = 0;
  /// Without room, poll would return at once for the listener every time.
  Deadline accept_again_ = Deadline::after_ms(0);
};

}  // namespace strait::shm
