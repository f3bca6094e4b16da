#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace strait {

/// Which registration a buffer of this rank lies in, and at what distance: what all ranks must find alike, though each
/// looks at addresses of its own. Where registrations overlap, a buffer lies in several. That does no harm if they lie
/// alike on all ranks: these form a frame, in which each has its place, and whichever a rank finds, the frame and the
/// distance from its beginning are the same. Where they overlap on some ranks only, or otherwise, nobody could tell
/// which one a peer means: none of these counts any more, on any rank.
///
/// Registering is collective, undoing it is not: a rank may have undone a registration that others still have.
class RegisteredRanges {
 public:
  /// Of a range that is to be registered: where it would begin in a frame that it overlaps.
  struct Overlap {
    std::uint64_t frame;
    std::int64_t distance;
    friend bool operator==(const Overlap&, const Overlap&) = default;
  };
  /// In order; each frame once. `bytes`: those that all ranks have of it.
  std::vector<Overlap> overlaps(const void* begin, std::size_t bytes) const;
  /// Collective: `overlaps` are those of all ranks. False: the range overlaps others, and not alike on all ranks.
  bool add(std::uint64_t number, const void* begin, std::size_t bytes,
           const std::vector<std::vector<Overlap>>& overlaps);
  void remove(std::uint64_t number) { all_.erase(number); }

  struct Place {
    std::uint64_t number;   ///< of a registration that the buffer lies in; ranks may find different ones
    std::size_t offset;     ///< from where that begins
    std::uint64_t frame;    ///< the same on all ranks,
    std::int64_t distance;  ///< and this, too
  };
  /// In the latest one, whose memory is there if that of earlier ones at this address was freed. `bytes` is not 0.
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
