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

/// Counts the host memory that the communicators of this process have pinned, of which all communicators of a host
/// together are to stay within a bound (STRAIT_HOST_MEMORY_BYTES). A communicator counts with the memory of all its
/// ranks, because each of them maps all of it, and it counts once, however many of its ranks are threads of this
/// process. Thread-safe.
class StagingAccount {
 public:
  /// One rank's hold on its communicator's entry, which counts until its last lease in this process ends. All memory
  /// holds a lease until it is unpinned, which may be after the communicator's end.
  class Lease {
   public:
    ~Lease() { account_.end(communicator_); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    /// Returns the bytes for which the communicator can be laid out, as far as this process knows.
    std::size_t granted_bytes() const { return granted_bytes_; }
    /// Makes `bytes`, what the communicator pins, count from now on. The same on all its ranks.
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
    std::string communicator;  ///< its unique name, which all its ranks know
    std::size_t bound_bytes;   ///< for all communicators together
    std::uint32_t ranks;
    bool has_reducers, has_windows;
  };

  static StagingAccount& of_process();
  /// Grants memory to a communicator. Until the lease is settled, everything granted counts, so that communicators that
  /// are made at the same time do not both take what is left. The account must outlive the lease.
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

/// The host memory for which all ranks of a communicator lay out their arenas: what the fullest of their processes has
/// left.
struct StagingShare {
  std::size_t bytes = 0;
  std::shared_ptr<const StagingAccount::Lease> lease;
};
/// Takes a lease and agrees with the other ranks on the least grant. Collective.
Result<StagingShare> agree_on_staging(const DeviceRank::Request& request, bool has_reducers, bool has_windows);
/// Makes `bytes` count from now on. If that exceeds the bound, logs a warning, once per process.
void settle_staging(const DeviceRank::Request& request, const StagingShare& share, std::size_t bytes);

}  // namespace strait
