#include "executor/copy_engine/flags.hpp"

#include <string>

#include "base/hash.hpp"

namespace strait::copy_engine {
namespace {

/// Compares counters that may wrap.
bool is_behind(std::uint32_t counter, std::uint32_t other) { return static_cast<std::int32_t>(counter - other) < 0; }

}  // namespace

Status Flags::agree(const StagedOptions& options) {
  std::uint64_t own = 0;
  for (const std::uint64_t number :
       {std::uint64_t{windows_.ranks}, std::uint64_t{windows_.depth}, std::uint64_t{windows_.chunk_bytes},
        std::uint64_t{options.least_chunk_bytes}, std::uint64_t{options.wanted_rounds}})
    own = mix(own ^ number);
  own |= 1;  // differs from the 0 of fresh memory
  std::uint64_t first = 0;
  const std::atomic_ref geometry(*reinterpret_cast<std::uint64_t*>(host_ + windows_.geometry()));
  if (geometry.compare_exchange_strong(first, own) || first == own) return {};
  return fail(Code::mismatch, "the ranks of this host cut their shared staging memory differently: this one takes " +
                                  std::to_string(windows_.ranks) + " ranks, " + std::to_string(windows_.depth) +
                                  " slots of " + std::to_string(windows_.chunk_bytes) + " bytes, and at least " +
                                  std::to_string(options.wanted_rounds) + " rounds of " +
                                  std::to_string(options.least_chunk_bytes) +
                                  " bytes. Run the same version of Strait on all ranks");
}

void Flags::raise(std::size_t offset, std::uint32_t value) {
  const auto target = word(offset);
  std::uint32_t seen = target.load();
  while (is_behind(seen, value) && !target.compare_exchange_weak(seen, value)) {
  }
}

void Flags::release_waits() {
  const auto all_rounds = static_cast<std::uint32_t>(rounds());
  for (std::uint32_t rank = 0; rank < windows_.ranks; ++rank) {
    raise(windows_.uploaded(rank), all_rounds);
    raise(windows_.downloaded(rank), all_rounds);
  }
}

void Flags::start_from(std::uint64_t rounds) {
  rounds_ = rounds;
  for (const std::size_t offset : {windows_.uploaded(rank_), windows_.downloaded(rank_), windows_.begun(rank_)})
    word(offset) = static_cast<std::uint32_t>(rounds);
}

/// Reads begun() first, so that the value with which the others are compared does not grow in between.
bool Flags::is_running() const {
  const std::uint32_t end = load(windows_.begun(rank_));
  return is_behind(load(windows_.uploaded(rank_)), end) || is_behind(load(windows_.downloaded(rank_)), end);
}

std::uint32_t Flags::progress() const {
  std::uint32_t sum = 0;
  for (std::uint32_t rank = 0; rank < windows_.ranks; ++rank)
    sum += load(windows_.uploaded(rank)) + load(windows_.downloaded(rank));
  return sum;
}

std::uint32_t Flags::last_rank() const {
  std::uint32_t last = rank_ == 0 ? 1 : 0;
  for (std::uint32_t rank = last + 1; rank < windows_.ranks; ++rank) {
    if (rank == rank_) continue;
    const std::uint32_t downloads = load(windows_.downloaded(rank)), least = load(windows_.downloaded(last));
    if (is_behind(downloads, least) ||
        (downloads == least && is_behind(load(windows_.uploaded(rank)), load(windows_.uploaded(last)))))
      last = rank;
  }
  return last;
}

}  // namespace strait::copy_engine
