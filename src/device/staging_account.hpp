#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.hpp"
#include "device/device_rank.hpp"

namespace strait {

/// What the communicators of a process have pinned of the host memory that all of a host are to keep to
/// (STRAIT_HOST_MEMORY_BYTES). A communicator counts with all that its ranks pin together, for each of them maps it
/// all, and once, however many of its ranks are threads of this process.
class StagingAccount {
 public:
  /// Of one rank. What its communicator pins counts until the last lease of it in this process ends: all memory holds
  /// one until it is unpinned, which may be after the communicator's end.
  class Lease {
   public:
    ~Lease() { account_.end(communicator_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// What the communicator is laid out for, as far as this process knows.
    std::size_t granted_bytes() const { return granted_bytes_; }
    /// What it pins, which counts from now on. The same on all its ranks.
    void settle(std::size_t bytes) const { account_.settle(communicator_, bytes); }

   private:
    friend StagingAccount;
    Lease(StagingAccount& account, std::string communicator, std::size_t granted_bytes)
        : account_(account), communicator_(std::move(communicator)), granted_bytes_(granted_bytes) {}

    StagingAccount& account_;
    std::string communicator_;
    std::size_t granted_bytes_;
  };
  struct Wish {
    std::string communicator;  ///< a name that no other has, and all its ranks know
    std::size_t bound_bytes;   ///< for all communicators together
    std::uint32_t ranks;
    bool has_reducers, has_windows;
  };

  static StagingAccount& of_process();
  /// Until it is settled, all that was granted counts, so that communicators that are made at the same time do not both
  /// take what is left. The account outlives the lease.
  std::shared_ptr<const Lease> lease(const Wish& wish);
  std::size_t pinned_bytes() const;

 private:
  struct Entry {
    std::size_t granted_bytes = 0, pinned_bytes = 0;
    std::uint32_t leases = 0;
  };
  void settle(const std::string& communicator, std::size_t bytes);
  void end(const std::string& communicator);
  std::size_t sum() const;

  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;  ///< by communicator
};

/// What all ranks of a communicator lay their host memory out for: what the fullest of their processes has left.
struct StagingShare {
  std::size_t bytes = 0;
  std::shared_ptr<const StagingAccount::Lease> lease;
};
/// Collective.
Result<StagingShare> agree_on_staging(const DeviceRank::Request& request, bool has_reducers, bool has_windows);
/// From here on `bytes` count. Goes they beyond the bound, a warning says so, once a process.
void settle_staging(const DeviceRank::Request& request, const StagingShare& share, std::size_t bytes);

}  // namespace strait
