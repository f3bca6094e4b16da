#pragma once

#include <cstdint>

#include "calls/call.hpp"
#include "transport/transport.hpp"

namespace strait {

/// The numbers of a rank's collectives, under which it posts them, so that ranks can compare their calls.
class CollectiveSequence {
 public:
  /// `transport` must outlive this object.
  explicit CollectiveSequence(Transport& transport) : transport_(transport) {}

  /// Returns the number of the last collective; 0: there was none. Captured ones do not count.
  std::uint64_t last() const { return last_; }
  std::uint64_t next() const { return last_ + 1; }
  void post(const CallSignature& signature, const void* send, void* receive) {
    transport_.post_call(++last_, has_captured_ ? after_capture(signature) : signature, send, receive);
  }
  /// GPU ranks: to be called instead of post() for a collective that is captured.
  void capture() { has_captured_ = true; }
  /// Returns whether a collective was captured. Then equal numbers on two ranks no longer mean that the calls are the
  /// same (after_capture()).
  bool has_captured() const { return has_captured_; }

 private:
  Transport& transport_;
  std::uint64_t last_ = 0;
  bool has_captured_ = false;
};

}  // namespace strait
