#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace strait {

/// Tells in which registration a buffer of this rank lies, and how far from its beginning. All ranks must come to the
/// same result, though each looks at its own addresses. If registrations overlap, a buffer lies in several. That does
/// no harm if they overlap in the same way on all ranks: they then form a frame, in which each has its place, and
/// whichever registration a rank finds, the frame and the distance from its beginning are the same. If they overlap on
/// some ranks only, or differently, no rank could tell which one a peer means; then none of these registrations counts
/// any more, on any rank.
///
/// Registering is collective, deregistering is not: a rank may have ended a registration that others still have.
class RegisteredRanges {
 public:
  /// A frame that a new range overlaps, and where in that frame the range would begin.
  struct Overlap {
    std::uint64_t frame;
    std::int64_t distance;
    friend bool operator==(const Overlap&, const Overlap&) = default;
  };
  /// Returns the frames that a new range overlaps, sorted, each once. `bytes`: as many as the range has on all ranks.
  std::vector<Overlap> overlaps(const void* begin, std::size_t bytes) const;
  /// Adds a range. Collective: `overlaps` are those of all ranks. Returns false if the range does not count, because it
  /// or a range that it overlaps does not overlap in the same way on all ranks.
  bool add(std::uint64_t number, const void* begin, std::size_t bytes,
           const std::vector<std::vector<Overlap>>& overlaps);
  void remove(std::uint64_t number) { all_.erase(number); }

  struct Place {
    std::uint64_t number;   ///< number of a registration in which it lies; ranks may find different ones
    std::size_t offset;     ///< distance from the beginning of that registration
    std::uint64_t frame;    ///< the same on all ranks
    std::int64_t distance;  ///< distance from the frame's beginning; the same on all ranks
  };
  /// Returns the place of a buffer in the latest registration that counts and contains it: that one's memory exists
  /// even if memory of earlier ones at this address was freed. `bytes` must not be 0.
  std::optional<Place> find(const void* begin, std::size_t bytes) const;

 private:
  struct Range {
    std::uintptr_t begin;
    std::size_t bytes;
    std::uint64_t frame;
    std::int64_t distance;  ///< from the frame's beginning
    bool counts;
  };
  std::map<std::uint64_t, Range> all_;  ///< by number
};

}  // namespace strait
