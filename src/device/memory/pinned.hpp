#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/mapping.hpp"

namespace strait {

/// Memory that is registered with CUDA, and that which nobody uses any more. To unregister waits for all that runs on
/// the process's devices, and holds its launches up meanwhile: another communicator's kernel would wait for ever if its
/// peers need one of those launches. So it is done when neither other memory of this kind nor any communicator is in
/// use, or when much has gathered.
class Pinned {
 public:
  using Unregister = std::function<void(const Mapping&)>;
  explicit Pinned(Unregister unregister) : unregister_(std::move(unregister)) {}

  /// Some memory is in use, or a communicator, whether it has such memory or not.
  void take() {
    const std::lock_guard lock(mutex_);
    ++in_use_;
  }
  /// Of memory. `lease` is held until it is unregistered.
  void let_go(Mapping mapping, std::shared_ptr<const void> lease) {
    const std::lock_guard lock(mutex_);
    unused_bytes_ += mapping.size_bytes();
    unused_.push_back({std::move(lease), std::move(mapping)});
    end_use();
  }
  /// Of a communicator.
  void let_go() {
    const std::lock_guard lock(mutex_);
    end_use();
  }
  static constexpr std::size_t most_unused_bytes = std::size_t{512} << 20;

 private:
  void end_use() {
    if (--in_use_ != 0 && unused_bytes_ <= most_unused_bytes) return;
    for (const Unused& each : unused_) unregister_(each.mapping);
    unused_.clear();
    unused_bytes_ = 0;
  }

  struct Unused {
    std::shared_ptr<const void> lease;  ///< ends after the mapping
    Mapping mapping;
  };
  Unregister unregister_;
  std::mutex mutex_;
  std::size_t in_use_ = 0, unused_bytes_ = 0;
  std::vector<Unused> unused_;
};

}  // namespace strait
