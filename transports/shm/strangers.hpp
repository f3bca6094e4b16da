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

/// Connections that have not yet shown the password. Anyone on the host can make them, so they are so many at a time
/// and have so much time: who says nothing until then is dropped, and earlier where room or descriptors run out.
class Strangers {
 public:
  struct Limits {
    std::int64_t silence_ms = 2000;
    std::int64_t least_ms = 250;  ///< that everybody has: a rank speaks as soon as it has connected
    std::size_t pending = 512;
  };
  explicit Strangers(const Limits& limits) : limits_(limits) {}
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  ~Strangers();

  /// Appends what to poll for: the strangers, and the listener unless there is no room.
  void watch(int listener, std::vector<pollfd>& fds) const;
  /// Accepts who waits at a listener. An error: no descriptors left, and no stranger that has one.
  Status accept_from(int listener);
  /// What became of one that has been looked at: it is silent, taken over (its descriptor moved out), or dropped.
  enum class Verdict : std::uint8_t { silent, taken, dropped };
  void look_at_all(const std::function<Verdict(UniqueFd&)>& look);
  std::int64_t dropped() const { return dropped_; }

 private:
  struct Stranger {
    UniqueFd fd;
    Deadline least;
    Deadline deadline;
  };
  bool make_room();
  void drop(Stranger& stranger);

  Limits limits_;
  std::list<Stranger> pending_;
  std::int64_t dropped_ = 0;
  Deadline accept_again_ = Deadline::after_ms(0);  ///< without room, poll would return for the listener at once
};

}  // namespace strait::shm
