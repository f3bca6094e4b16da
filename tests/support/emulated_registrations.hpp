#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "launches/device_calls.hpp"

namespace strait::testing {

/// Registered memory of an emulated machine, whose ranks share one address space. All memory counts as registered, in
/// regions of 32 GiB; a region gets its number, and becomes known to all ranks, when memory in it is first offered.
class EmulatedRegistrations {
 public:
  static std::uint64_t offer(const void* data, std::size_t /*bytes*/) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::uint64_t number = number_of(data);
    for (std::byte*& begin : places_.begins[number])
      if (begin == nullptr) begin = reinterpret_cast<std::byte*>(address & ~(region_bytes - 1));
    places_.numbers[number] = number;
    return kernels::offer_of(number, address % region_bytes);
  }
  /// Makes `peer`'s entry of the region that holds `data` unknown, until memory in that region is offered again.
  static void forget(const void* data, std::uint32_t peer) { places_.begins[number_of(data)][peer] = nullptr; }
  static const kernels::RegisteredPlaces& places() { return places_; }

 private:
  static constexpr std::uintptr_t region_bytes = std::uintptr_t{1} << 35;
  /// Returns the number of the region that holds `data`: 1, 2, ... in the order of first use. A process has few
  /// regions.
  static std::uint64_t number_of(const void* data) {
    static std::mutex mutex;
    static std::vector<std::uintptr_t> regions;
    const std::uintptr_t region = reinterpret_cast<std::uintptr_t>(data) / region_bytes;
    const std::lock_guard lock(mutex);
    const auto known = std::find(regions.begin(), regions.end(), region);
    const auto number = static_cast<std::uint64_t>(known - regions.begin()) + 1;
    if (known == regions.end()) regions.push_back(region);
    if (number >= kernels::most_registered) std::abort();
    return number;
  }
  static inline kernels::RegisteredPlaces places_{};
};

inline const MessageOffers all_memory{EmulatedRegistrations::offer, &EmulatedRegistrations::places()};
inline const MessageOffers no_memory{[](const void*, std::size_t) { return std::uint64_t{0}; },
                                     &EmulatedRegistrations::places()};

}  // namespace strait::testing
