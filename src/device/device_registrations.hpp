#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "device/device_rank.hpp"
#include "device/memory/user_memory.hpp"
#include "device/registered_ranges.hpp"
#include "kernels/launch.hpp"

namespace strait {

/// GPU memory that ranks have registered (straitCommRegister): all peers map it, and calls may write directly into it.
class DeviceRegistrations {
 public:
  /// An address for each rank, as this rank's device addresses it.
  using Addresses = std::array<std::byte*, kernels::max_ranks>;

  /// Registers memory of all ranks under `number`, or of none of them. Lengths may differ between ranks. Collective.
  Status add(const DeviceRank::Request& request, std::uint64_t number, void* pointer, std::size_t bytes);
  /// Ends a registration. No work that uses it may be under way on this rank's device.
  void remove(std::uint64_t number);
  bool has(std::uint64_t number) const { return all_.count(number) != 0; }
  /// Returns whether there ever were registrations. That is the same on all ranks, whereas each rank ends its own
  /// registrations at a time of its own.
  bool were_any() const { return were_any_; }

  /// Where in registered memory a buffer lies, in terms that are the same on all ranks, and the addresses of the same
  /// place in the peers' memory.
  struct Place {
    std::uint64_t frame;  ///< see RegisteredRanges
    std::int64_t distance;
    Addresses addresses;
  };
  /// Returns the place of a buffer; nothing if it is not registered, or if registrations overlap so that ranks cannot
  /// tell which one is meant. Code::invalid_usage: the memory was freed after its registration.
  Result<std::optional<Place>> find(const void* pointer, std::size_t bytes) const;
  /// Returns the offer by which the sender of a message to `pointer` learns where it may write (kernels::offer_of()).
  /// 0: nowhere, as the buffer is not registered, or its registration is not among the last kernels::most_registered.
  /// Errors: those of find().
  Result<std::uint64_t> offer(const void* pointer, std::size_t bytes) const;
  /// Returns where this rank may write if peers offer it.
  const kernels::RegisteredPlaces& at_peers() const { return at_peers_; }
  /// Keeps what is mapped now mapped until the communicator ends: a graph contains at_peers(), and may be launched at
  /// any time.
  void stay_for_graphs();

 private:
  struct Registration {
    std::byte* begin;
    UserMemory own;
    std::vector<PeerMemory> peers;  ///< by rank; this rank's is empty
    Addresses addresses;            ///< where the ranks' registered memory begins
    bool stays = false;             ///< remains mapped when the registration ends (stay_for_graphs())
  };
  static Status map_peers(const DeviceRank::Request& request, Registration& registration);
  Result<std::optional<RegisteredRanges::Place>> find_range(const void* pointer, std::size_t bytes) const;
  Status add_range(const DeviceRank::Request& request, std::uint64_t number, const void* pointer, std::size_t bytes);

  std::map<std::uint64_t, Registration> all_;
  bool were_any_ = false;
  kernels::RegisteredPlaces at_peers_{};
  std::vector<PeerMemory> staying_;  ///< kept for graphs though no longer registered
  RegisteredRanges ranges_;
};

}  // namespace strait
