#include "transports/slots/segment.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "base/hash.hpp"

namespace strait::slots {
namespace {

constexpr std::size_t page_bytes = 4096;
/// The number of links that a rank may open with each peer, counting both directions, in the life of a communicator.
constexpr std::size_t links_per_pair = 6;

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::uint64_t Key::hash() const {
  // Links and signals with a single reader or waiter, the common case, have an exact key; others have a hash.
  if (to.size() == 1 && from < (1u << 20) && to[0] < (1u << 20))
    return std::uint64_t(kind) << 62 | std::uint64_t(tag) << 40 | std::uint64_t(from) << 20 | to[0];
  std::uint64_t mixed = mix(from);
  for (std::uint32_t rank : to) mixed = mix(mixed + rank);
  // The top bits separate links, signals and exact keys. With 61 hashed bits a collision is practically impossible.
  return std::uint64_t(kind) << 62 | 1ull << 61 | mix(mixed + tag) >> 3;
}

RankControl& Segment::rank_control(std::uint32_t rank) const {
  return reinterpret_cast<RankControl*>(memory_ + round_up(sizeof(Control), cache_line_bytes))[rank];
}

std::size_t Segment::directory_entries(const Geometry& geometry) {
  const std::size_t n = geometry.ranks;
  return std::bit_ceil(std::max<std::size_t>(256, 4 * n * n * links_per_pair));
}

std::size_t Segment::directory_offset(const Geometry& geometry) {
  return round_up(sizeof(Control), cache_line_bytes) + geometry.ranks * sizeof(RankControl);
}

std::size_t Segment::blocks_offset(const Geometry& geometry) {
  return round_up(directory_offset(geometry) + sizeof(Directory) + directory_entries(geometry) * sizeof(DirectoryEntry),
                  page_bytes);
}

std::size_t Segment::link_bytes(std::size_t readers) const {
  return round_up(readers * sizeof(Counter), cache_line_bytes) + geometry_.depth * slot_stride_bytes();
}

std::size_t Segment::size_bytes(const Geometry& geometry) {
  const Segment sizes(nullptr, geometry);
  const std::size_t n = geometry.ranks;
  const std::size_t links = n * n * links_per_pair + 16;
  return blocks_offset(geometry) + links * round_up(sizes.link_bytes(n), page_bytes);
}

Result<std::byte*> Segment::find_or_make(const Key& key, std::size_t bytes) const {
  auto& directory = *reinterpret_cast<Directory*>(memory_ + directory_offset(geometry_));
  const std::size_t capacity = directory_entries(geometry_);
  const std::uint64_t hash = key.hash();
  const std::size_t start = mix(hash);
  for (std::size_t probe = 0; probe < capacity; ++probe) {
    DirectoryEntry& entry = directory.entries[(start + probe) & (capacity - 1)];
    std::uint64_t seen = entry.key.load(std::memory_order_acquire);
    if (seen == 0 && entry.key.compare_exchange_strong(seen, hash)) seen = hash;
    if (seen == hash) return block_of(entry, bytes);
  }
  return fail(Code::internal_error, "the directory of shared links is full (" + std::to_string(capacity) + " entries)");
}

Result<std::byte*> Segment::block_of(DirectoryEntry& entry, std::size_t bytes) const {
  if (const std::uint64_t made = entry.offset.load(std::memory_order_acquire)) return memory_ + made;
  auto& directory = *reinterpret_cast<Directory*>(memory_ + directory_offset(geometry_));
  // Small blocks (signals) share pages. A link starts on a page boundary, so that its slots stay together; its size
  // includes the slack that this needs.
  const std::size_t unit = bytes >= page_bytes ? page_bytes : cache_line_bytes;
  const std::size_t size = round_up(bytes, unit) + (unit - cache_line_bytes);
  const std::size_t begin =
      round_up(blocks_offset(geometry_) + directory.used_bytes.fetch_add(round_up(size, cache_line_bytes)), unit);
  // Ranks that arrive at the same time each take an address range; the first to store its offset wins, and the other
  // ranges stay unused. So no rank depends on the one that made the entry, which may have been killed since.
  std::uint64_t offset = 0;
  if (begin + bytes <= size_bytes(geometry_)) {
    if (entry.offset.compare_exchange_strong(offset, begin, std::memory_order_acq_rel)) offset = begin;
  } else {
    offset = entry.offset.load(std::memory_order_acquire);
  }
  if (offset != 0) return memory_ + offset;
  return fail(Code::out_of_memory, "the shared segment of the communicator is full (" +
                                       std::to_string(size_bytes(geometry_) >> 20) +
                                       " MB of addresses). Use fewer lanes or fewer split communicators' plans");
}

}  // namespace strait::slots
