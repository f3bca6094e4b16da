#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/mapping.hpp"

namespace strait {

/// Defers unregistering host memory from CUDA. Unregistering waits for everything that runs on the process's devices,
/// and meanwhile blocks its launches: another communicator's kernel would wait forever if its peers need one of those
/// launches. So memory that is no longer used is unregistered when neither other memory of this kind nor any
/// communicator is in use, or when much has accumulated. Thread-safe.
class Pinned {
 public:
  using Unregister = std::function<void(const Mapping&)>;
  explicit Pinned(Unregister unregister) : unregister_(std::move(unregister)) {}

  /// Counts a use: by memory, or by a communicator, whether it has such memory or not.
  void take() {
    const std::lock_guard lock(mutex_);
    ++in_use_;
  }
  /// Ends the use by memory, to be unregistered later. `lease` is held until then.
  void let_go(Mapping mapping, std::shared_ptr<const void> lease) {
    const std::lock_guard lock(mutex_);
    unused_bytes_ += mapping.size_bytes();
    unused_.push_back({std::move(lease), std::move(mapping)});
    end_use();
  }
  /// Ends the use by a communicator.
  void let_go() {
    const std::lock_guard lock(mutex_);
    end_use();
  }
  /// Beyond this, unused memory is unregistered although something is in use.
  static constexpr std::size_t most_unused_bytes = std::size_t{512} << 20;

 private:
  void end_use() {
    if (--in_use_ != 0 && unused_bytes_ <= most_unused_bytes) return;
    for (const Unused& each : unused_) unregister_(each.mapping);
    unused_.clear();
    unused_bytes_ = 0;
  }

  struct Unused {
    std::shared_ptr<const void> lease;  ///< destroyed after the mapping
    Mapping mapping;
  };
  Unregister unregister_;
  std::mutex mutex_;
  std::size_t in_use_ = 0, unused_bytes_ = 0;
  std::vector<Unused> unused_;
};

}  // namespace strait
