#include "device/registered_ranges.hpp"

#include <algorithm>
#include <tuple>

namespace strait {
namespace {

std::int64_t distance_between(std::uintptr_t from, std::uintptr_t to) { return static_cast<std::int64_t>(to - from); }

}  // namespace

std::vector<RegisteredRanges::Overlap> RegisteredRanges::overlaps(const void* begin, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  std::vector<Overlap> found;
  for (const auto& [number, range] : all_)
    if (address < range.begin + range.bytes && range.begin < address + bytes)
      found.push_back({range.frame, range.distance + distance_between(range.begin, address)});
  std::sort(found.begin(), found.end(), [](const Overlap& a, const Overlap& b) {
    return std::tie(a.frame, a.distance) < std::tie(b.frame, b.distance);
  });
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool RegisteredRanges::add(std::uint64_t number, const void* begin, std::size_t bytes,
                           const std::vector<std::vector<Overlap>>& overlaps) {
  const std::vector<Overlap>& first = overlaps.front();
  const bool alike = std::all_of(overlaps.begin(), overlaps.end(), [&](const auto& each) { return each == first; });
  Range fresh{reinterpret_cast<std::uintptr_t>(begin), bytes, number, 0, alike};
  if (alike && !first.empty()) {
    fresh.frame = first.front().frame;
    fresh.distance = first.front().distance;
  }
  std::map<std::uint64_t, std::int64_t> frames;  // frames overlapped on any rank, and where the range begins in them
  for (const std::vector<Overlap>& of_rank : overlaps)
    for (const Overlap& overlap : of_rank) frames.emplace(overlap.frame, overlap.distance);
  std::vector<Range*> ranges;
  for (auto& [of_range, range] : all_)
    if (frames.count(range.frame) != 0) ranges.push_back(&range);
  for (const Range* range : ranges) fresh.counts = fresh.counts && range->counts;
  for (Range* range : ranges) {
    range->counts = fresh.counts;
    if (!alike) continue;
    range->distance += fresh.distance - frames.at(range->frame);  // frames that the range overlaps become one
    range->frame = fresh.frame;
  }
  all_.insert_or_assign(number, fresh);
  return fresh.counts;
}

std::optional<RegisteredRanges::Place> RegisteredRanges::find(const void* begin, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (auto entry = all_.rbegin(); entry != all_.rend(); ++entry) {
    const auto& [number, range] = *entry;
    if (!range.counts || address < range.begin || address - range.begin > range.bytes ||
        bytes > range.bytes - (address - range.begin))
      continue;
    const std::size_t offset = address - range.begin;
    return Place{number, offset, range.frame, range.distance + static_cast<std::int64_t>(offset)};
  }
  return std::nullopt;
}

}  // namespace strait
