#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace strait {

/// The copies that measure_exchange() times: between a GPU and its rank's host memory, both ways at once, by copy
/// engines and on streams of their own. They wait for no other work of the GPU, and copy only zeros.
class ExchangeCopies {
 public:
  struct Setup {
    int device = 0;
    std::span<std::byte> host;  ///< pinned and zeroed; it stays zero
    /// Polled while copies are awaited: returns an error if the set-up does not go on, or has taken too long.
    std::function<Status()> goes_on;
  };
  static Result<ExchangeCopies> open(Setup setup);
  ExchangeCopies(ExchangeCopies&& other) noexcept;
  /// Waits for nothing: if copies have not ended, what they use is leaked.
  ~ExchangeCopies();

  /// Copies `bytes` each way, waits for that, and returns how long it took on the GPU.
  Result<std::chrono::nanoseconds> copy(std::size_t bytes);
  /// Returns whether all copies have ended. If not, the host memory may be written to at any time.
  bool have_ended() const;

 private:
  struct State;
  explicit ExchangeCopies(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace strait
