#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace strait {

/// What measure_exchange() times: copies between a GPU and its rank's host memory, both ways at once, by copy engines
/// and on streams of their own. They wait for nothing else that the GPU does, and carry nothing but zeros.
class ExchangeCopies {
 public:
  struct Setup {
    int device = 0;
    std::span<std::byte> host;  ///< pinned, and zeroed: so it stays
    /// Asked while copies are waited for: an error if the set-up does not go on, or has taken too long.
    std::function<Status()> goes_on;
  };
  static Result<ExchangeCopies> open(Setup setup);
  ExchangeCopies(ExchangeCopies&& other) noexcept;
  /// Lets go of everything, and waits for nothing: if copies have not ended, what they use is not freed.
  ~ExchangeCopies();

  /// So many bytes each way; how long they took on the GPU.
  Result<std::chrono::nanoseconds> copy(std::size_t bytes);
  /// Otherwise the host memory may be written to at any time.
  bool have_ended() const;

 private:
  struct State;
  explicit ExchangeCopies(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace strait
