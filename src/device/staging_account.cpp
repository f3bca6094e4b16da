#include "device/staging_account.hpp"

#include <algorithm>
#include <atomic>

#include "base/log.hpp"
#include "device/staging_budget.hpp"

namespace strait {

StagingAccount& StagingAccount::of_process() {
  static auto* const account = new StagingAccount;  // communicators may be freed while the process ends
  return *account;
}

std::shared_ptr<const StagingAccount::Lease> StagingAccount::lease(const Wish& wish) {
  const std::lock_guard lock(mutex_);
  const std::size_t pinned = sum();
  Entry& entry = entries_[wish.communicator];
  if (entry.leases++ == 0) {
    entry.granted_bytes =
        StagingBudget::left(wish.bound_bytes, pinned, wish.ranks, wish.has_reducers || wish.has_windows);
    entry.pinned_bytes = StagingBudget::of(entry.granted_bytes, wish.has_reducers, wish.has_windows).total_bytes();
  }
  return std::shared_ptr<const Lease>(new Lease(*this, wish.communicator, entry.granted_bytes));
}

std::size_t StagingAccount::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return sum();
}

void StagingAccount::settle(const std::string& communicator, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  entries_.at(communicator).pinned_bytes = bytes;
}

void StagingAccount::end(const std::string& communicator) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(communicator);
  if (--entry->second.leases == 0) entries_.erase(entry);
}

std::size_t StagingAccount::sum() const {
  std::size_t bytes = 0;
  for (const auto& [communicator, entry] : entries_) bytes += entry.pinned_bytes;
  return bytes;
}

Result<StagingShare> agree_on_staging(const DeviceRank::Request& request, bool has_reducers, bool has_windows) {
  constexpr std::size_t unit_bytes = 4096;  // gather() exchanges words of 32 bits
  StagingShare share;
  share.lease = StagingAccount::of_process().lease(
      {request.communicator, request.options.host_memory_bytes, request.ranks, has_reducers, has_windows});
  STRAIT_ASSIGN(const auto units,
                request.gather(static_cast<std::uint32_t>(share.lease->granted_bytes() / unit_bytes)));
  share.bytes = *std::min_element(units.begin(), units.end()) * unit_bytes;
  return share;
}

void settle_staging(const DeviceRank::Request& request, const StagingShare& share, std::size_t bytes) {
  static std::atomic<bool> was_told = false;
  share.lease->settle(bytes);
  const std::size_t pinned = StagingAccount::of_process().pinned_bytes();
  if (pinned <= request.options.host_memory_bytes || was_told.exchange(true)) return;
  const auto in_mb = [](std::size_t count) { return std::to_string(count >> 20) + " MB"; };
  log_warn(static_cast<int>(request.rank),
           "this process's communicators, and those that it has destroyed but not unpinned yet, pin " + in_mb(pinned) +
               " of host memory; STRAIT_HOST_MEMORY_BYTES is " + in_mb(request.options.host_memory_bytes) +
               ". However little of it is left, a communicator of " + std::to_string(request.ranks) +
               " ranks is laid out for " + in_mb(StagingBudget::least_bytes(request.ranks)) +
               ". Destroy communicators that are not needed, or allow more. This is said once");
}

}  // namespace strait
