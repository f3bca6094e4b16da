#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "plan/plan.hpp"
#include "transport/control.hpp"

/// A segment is memory that all ranks of a communicator on one host can address. It begins with the control words. A
/// directory follows, in which ranks look up the block of a link or signal under a key that both ends compute alike.
/// Then come the blocks, which are allocated once and never freed. Pages are touched only when used.
namespace strait::slots {

/// The header of a slot lies directly before its payload, so a small message costs the reader two adjacent cache lines.
struct alignas(cache_line_bytes) SlotHeader {
  std::atomic<std::uint64_t> sequence{0};  ///< 1 + the index of the message that fills the slot
  CallSignature signature;
};

struct alignas(cache_line_bytes) Counter {
  std::atomic<std::uint64_t> value{0};
};

/// The directory key of a link or a signal: its identity across all ranks' plans.
struct Key {
  enum class Kind : std::uint8_t { link = 1, signal = 2 };
  Kind kind;
  std::uint16_t tag;
  std::uint32_t from;
  std::vector<std::uint32_t> to;  ///< readers of a link, or the one waiter of a signal

  static Key of(const LinkEnd& end) { return {Kind::link, end.tag, end.writer, end.readers}; }
  static Key of(const SignalEnd& end) { return {Kind::signal, end.tag, end.from, {end.to}}; }
  std::uint64_t hash() const;
};

struct Geometry {
  std::uint32_t ranks = 0;
  std::uint32_t depth = 4;             ///< slots of a link
  std::size_t slot_bytes = 128 << 10;  ///< payload of a slot; measured best between 32 and 128 KB (perf/copy_paths)
};

/// A view of a segment; does not own its memory. All ranks construct it with the same geometry over zeroed memory.
class Segment {
 public:
  /// Returns the address space in bytes that a communicator of this geometry needs. Pages that are never touched take
  /// no memory.
  static std::size_t size_bytes(const Geometry& geometry);

  Segment(std::byte* memory, const Geometry& geometry) : memory_(memory), geometry_(geometry) {}

  const Geometry& geometry() const { return geometry_; }
  Control& control() const { return *reinterpret_cast<Control*>(memory_); }
  RankControl& rank_control(std::uint32_t rank) const;

  /// Returns the zeroed block of `bytes` that belongs to `key`, the same for every rank that asks. Lock-free: if a peer
  /// was killed in the middle of this, the next rank that asks completes it. Fails if the segment is full.
  Result<std::byte*> find_or_make(const Key& key, std::size_t bytes) const;

  std::size_t slot_stride_bytes() const { return sizeof(SlotHeader) + geometry_.slot_bytes; }
  std::size_t link_bytes(std::size_t readers) const;

 private:
  struct DirectoryEntry {
    std::atomic<std::uint64_t> key{0};
    std::atomic<std::uint64_t> offset{0};  ///< of the block; 0 until it is allocated
  };
  struct Directory {
    alignas(cache_line_bytes) std::atomic<std::uint64_t> used_bytes{0};
    alignas(cache_line_bytes) DirectoryEntry entries[1];
  };
  static std::size_t directory_entries(const Geometry& geometry);
  static std::size_t directory_offset(const Geometry& geometry);
  static std::size_t blocks_offset(const Geometry& geometry);
  Result<std::byte*> block_of(DirectoryEntry& entry, std::size_t bytes) const;

  std::byte* memory_;
  Geometry geometry_;
};

}  // namespace strait::slots
