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

/// Memory of GPU ranks that is registered (straitCommRegister): mapped by all peers, which may write into it in place.
class DeviceRegistrations {
 public:
  /// Of each rank, as this rank's device addresses it.
  using Addresses = std::array<std::byte*, kernels::max_ranks>;

  /// Collective: all ranks' memory is registered with that number, or that of none. It need not be of one length.
  Status add(const DeviceRank::Request& request, std::uint64_t number, void* pointer, std::size_t bytes);
  /// Nothing that uses it may be under way on this rank's device.
  void remove(std::uint64_t number);
  bool has(std::uint64_t number) const { return all_.count(number) != 0; }
  /// Since the communicator began: all ranks know alike, while each undoes its own in its own time.
  bool were_any() const { return were_any_; }

  /// Memory that lies in what is registered: where, as all ranks tell it, and what peers have at that place of theirs.
  struct Place {
    std::uint64_t frame;  ///< RegisteredRanges
    std::int64_t distance;
    Addresses addresses;
  };
  /// Nothing: it is not registered, or so that ranks could not tell where. Code::invalid_usage: it was freed since
  /// then.
  Result<std::optional<Place>> find(const void* pointer, std::size_t bytes) const;
  /// Where who sends a message to `pointer` may write it (kernels::offer_of). 0: nowhere, as in what was not
  /// registered, or not among the last. Errors: as of find().
  Result<std::uint64_t> offer(const void* pointer, std::size_t bytes) const;
  /// Where this rank may write, if they offer it.
  const kernels::RegisteredPlaces& at_peers() const { return at_peers_; }
  /// A graph has at_peers(): what is mapped stays so, as long as the communicator, for it may be launched later on.
  void stay_for_graphs();

 private:
  struct Registration {
    std::byte* begin;
    UserMemory own;
    std::vector<PeerMemory> peers;  ///< by rank; this rank's is empty
    Addresses addresses;            ///< where the registered memory begins
    bool stays = false;             ///< stay_for_graphs()
  };
  static Status map_peers(const DeviceRank::Request& request, Registration& registration);
  Result<std::optional<RegisteredRanges::Place>> find_range(const void* pointer, std::size_t bytes) const;
  Status add_range(const DeviceRank::Request& request, std::uint64_t number, const void* pointer, std::size_t bytes);

  std::map<std::uint64_t, Registration> all_;
  bool were_any_ = false;
  kernels::RegisteredPlaces at_peers_{};
  std::vector<PeerMemory> staying_;  ///< of what is no longer registered
  RegisteredRanges ranges_;
};

}  // namespace strait
