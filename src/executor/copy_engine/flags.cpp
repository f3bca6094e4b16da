#include "executor/copy_engine/flags.hpp"

#include <string>

namespace strait::staged {

Status Flags::agree(const StagedOptions& options) {
  std::uint64_t own = 0xcbf29ce484222325;
  for (const std::uint64_t number : {std::uint64_t{windows_.ranks}, std::uint64_t{windows_.depth},
                                     std::uint64_t{windows_.chunk_bytes}, std::uint64_t{options.reducers},
                                     std::uint64_t{options.least_chunk_bytes}, std::uint64_t{options.wanted_rounds}}) {
    own = (own ^ number) * 0x9e3779b97f4a7c15;
    own ^= own >> 29;
  }
  own |= 1;  // not that of fresh memory
  std::uint64_t first = 0;
  const std::atomic_ref geometry(*reinterpret_cast<std::uint64_t*>(host_ + windows_.geometry()));
  if (geometry.compare_exchange_strong(first, own) || first == own) return {};
  return fail(Code::mismatch, "the ranks of this host cut their shared staging memory differently: this one takes " +
                                  std::to_string(windows_.ranks) + " ranks, " + std::to_string(windows_.depth) +
                                  " slots of " + std::to_string(windows_.chunk_bytes) + " bytes, " +
                                  std::to_string(options.reducers) + " CPU reducers and at least " +
                                  std::to_string(options.wanted_rounds) + " rounds of " +
                                  std::to_string(options.least_chunk_bytes) +
                                  " bytes. Give all ranks the same settings (STRAIT_CPU_REDUCERS, for one)");
}

void Flags::raise(std::size_t offset, std::uint32_t value) {
  const auto target = word(offset);
  std::uint32_t seen = target.load();
  while (static_cast<std::int32_t>(seen - value) < 0 && !target.compare_exchange_weak(seen, value)) {
  }
}

void Flags::release_waits() {
  const auto all_rounds = static_cast<std::uint32_t>(rounds());
  for (std::uint32_t rank = 0; rank < windows_.ranks; ++rank) {
    raise(windows_.uploaded(rank), all_rounds);
    raise(windows_.downloaded(rank), all_rounds);
  }
  for (std::uint32_t slot = 0; slot < windows_.depth; ++slot)
    raise(windows_.reduced(slot), static_cast<std::uint32_t>(reduced_target(reductions(slot))));
}

void Flags::start_from(std::uint32_t own_rank, std::uint64_t rounds) {
  rounds_ = rounds;
  word(windows_.uploaded(own_rank)) = static_cast<std::uint32_t>(rounds);
  word(windows_.downloaded(own_rank)) = static_cast<std::uint32_t>(rounds);
  for (std::uint32_t slot = 0; slot < windows_.depth; ++slot) {
    reductions_[slot] = rounds / windows_.depth;
    word(windows_.reduced(slot)) = static_cast<std::uint32_t>(reduced_target(reductions(slot)));
  }
}

std::uint32_t Flags::last_rank(std::uint32_t own_rank) const {
  std::uint32_t last = own_rank == 0 && windows_.ranks > 1 ? 1 : 0;
  const auto behind = [](std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b); };
  for (std::uint32_t rank = last + 1; rank < windows_.ranks; ++rank) {
    if (rank == own_rank) continue;
    const std::int32_t downloads = behind(load(windows_.downloaded(rank)), load(windows_.downloaded(last)));
    const std::int32_t uploads = behind(load(windows_.uploaded(rank)), load(windows_.uploaded(last)));
    if (downloads < 0 || (downloads == 0 && uploads < 0)) last = rank;
  }
  return last;
}

}  // namespace strait::staged
