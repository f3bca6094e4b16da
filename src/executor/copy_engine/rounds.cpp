#include "executor/copy_engine/rounds.hpp"

#include <algorithm>

namespace strait::copy_engine {
namespace {
constexpr std::size_t grain_bytes = 64;  ///< a multiple of every element's size

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }
}  // namespace

bool Rounds::supports(Collective collective) {
  switch (collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
    case Collective::broadcast:
    case Collective::gather:
    case Collective::scatter:
      return true;
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::reduce:
    case Collective::all_to_all_v:
    case Collective::send_recv:
    case Collective::barrier:
      break;
  }
  return false;
}

Rounds::Rounds(const CopyCall& call, const StagedWindows& windows, const StagedOptions& options, std::uint32_t rank)
    : call_(call), windows_(windows), rank_(rank), block_bytes_(call.count * size_bytes(call.type)) {
  const std::size_t pieces = scatters() ? windows_.ranks : 1;
  const std::size_t most = windows_.chunk_bytes / pieces / grain_bytes * grain_bytes;
  const std::size_t least = std::min(most, round_up(options.least_chunk_bytes / pieces, grain_bytes));
  const std::size_t wanted = round_up(block_bytes_ / std::max(1u, options.wanted_rounds), grain_bytes);
  piece_bytes_ = std::clamp(wanted, std::max(least, grain_bytes), most);
  count_ = (block_bytes_ + piece_bytes_ - 1) / piece_bytes_;
}

std::size_t Rounds::piece_bytes(std::uint64_t round) const {
  return std::min(piece_bytes_, block_bytes_ - round * piece_bytes_);
}

bool Rounds::uploads(std::uint32_t rank) const {
  switch (call_.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return rank == call_.root;
    case Collective::gather:
      return rank != call_.root;
    default:
      return true;
  }
}

bool Rounds::downloads(std::uint32_t rank) const {
  switch (call_.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return rank != call_.root;
    case Collective::gather:
      return rank == call_.root;
    default:
      return true;
  }
}

void Rounds::append_rows_but_own(RowCopy rows, std::vector<RowCopy>& copies) const {
  const auto append = [&](std::uint32_t first, std::uint32_t end) {
    if (first >= end) return;
    RowCopy part = rows;
    part.from = static_cast<const std::byte*>(rows.from) + first * rows.from_pitch_bytes;
    part.to = static_cast<std::byte*>(rows.to) + first * rows.to_pitch_bytes;
    part.rows = end - first;
    copies.push_back(part);
  };
  append(0, rank_);
  append(rank_ + 1, windows_.ranks);
}

void Rounds::append_uploads(std::uint64_t round, std::uint32_t slot, std::byte* window,
                            std::vector<RowCopy>& copies) const {
  const std::size_t bytes = piece_bytes(round);
  const RowCopy copy{.to = window + windows_.upload(slot, rank_),
                     .to_pitch_bytes = bytes,
                     .from = static_cast<const std::byte*>(call_.send) + round * piece_bytes_,
                     .from_pitch_bytes = block_bytes_,
                     .row_bytes = bytes};
  if (scatters())
    append_rows_but_own(copy, copies);
  else
    copies.push_back(copy);
}

void Rounds::append_downloads(std::uint64_t round, std::uint32_t slot, std::byte* window,
                              std::vector<RowCopy>& copies) const {
  const std::size_t bytes = piece_bytes(round), own_part = scatters() ? rank_ * bytes : 0;
  RowCopy copy{.to = static_cast<std::byte*>(call_.receive) + round * piece_bytes_,
               .to_pitch_bytes = block_bytes_,
               .from_pitch_bytes = windows_.chunk_bytes,
               .row_bytes = bytes};
  if (call_.collective == Collective::broadcast || call_.collective == Collective::scatter) {
    copy.from = window + windows_.upload(slot, call_.root) + own_part;
    copies.push_back(copy);
  } else {
    copy.from = window + windows_.upload(slot, 0) + own_part;
    append_rows_but_own(copy, copies);
  }
}

void Rounds::append_own(std::vector<RowCopy>& copies) const {
  const bool is_root = rank_ == call_.root;
  const std::size_t own_block = rank_ * block_bytes_;
  std::size_t from = 0, to = 0;
  switch (call_.collective) {
    case Collective::all_gather:
      to = own_block;
      break;
    case Collective::all_to_all:
      from = to = own_block;
      break;
    case Collective::broadcast:
      if (!is_root) return;
      break;
    case Collective::gather:
      if (!is_root) return;
      to = own_block;
      break;
    case Collective::scatter:
      if (!is_root) return;
      from = own_block;
      break;
    default:
      return;
  }
  const RowCopy copy{.to = static_cast<std::byte*>(call_.receive) + to,
                     .from = static_cast<const std::byte*>(call_.send) + from,
                     .row_bytes = block_bytes_};
  if (copy.to != copy.from) copies.push_back(copy);
}

}  // namespace strait::copy_engine
