#include "plan/clock_memory.hpp"

#include <algorithm>

namespace strait {
namespace {

bool is_memory(const Operand& operand) {
  return operand.kind == Operand::Kind::local || operand.kind == Operand::Kind::peer;
}

std::uint32_t owner_of(std::uint32_t rank, const Operand& operand) {
  return operand.kind == Operand::Kind::peer ? operand.peer : rank;
}

}  // namespace

double share_beyond(double cache_bytes, double used_bytes) {
  return std::clamp((used_bytes - cache_bytes) / (2 * cache_bytes), 0.0, 1.0);
}

ClockMemory::ClockMemory(const Plan& plan, const ClockSize& size, const ClockModel& model, const Layout& layout,
                         std::uint32_t slices)
    : model_(model),
      layout_(layout),
      element_bytes_(size.element_bytes),
      slice_bytes_(std::min(size.slice_bytes, layout.chunk_elements * size.element_bytes)),
      slices_(slices) {
  for (const RankPlan& mine : plan) chunks_ = std::max({chunks_, mine.input_chunks(), mine.output_chunks()});
  uses_.resize(2 * plan.size() * chunks_);
  cells_.resize(uses_.size() * slices);
  double buffers = 0;
  double slots = 0;
  for (const RankPlan& mine : plan) {
    buffers += (mine.input_blocks() + mine.output_blocks()) * static_cast<double>(size.count * size.element_bytes);
    for (const LinkEnd& end : mine.links)
      if (end.sends) slots += static_cast<double>(model.slots * slice_bytes_);
    for (const Lane& lane : mine.lanes)
      for (const Step& step : lane.steps)
        for (const Operand& source : step.sources) note_use(mine.rank, source);
  }
  streams_ = model.memory.stream_gbps > 0 && buffers > static_cast<double>(model.cache_bytes);
  dram_share_ = share_beyond(static_cast<double>(model.cache_bytes), buffers + slots);
  const double ranks = model.ranks;
  const double a_core = model.cores > 0 ? std::max(1.0, ranks / model.cores) : 1;
  if (ranks > 1) remote_share_ = 1 - (a_core - 1) / (ranks - 1);
  for (const RankPlan& mine : plan)
    beyond_own_.push_back(
        model.memory.core_cache_bytes == 0
            ? 0
            : share_beyond(static_cast<double>(model.memory.core_cache_bytes), a_core * working_set_bytes(mine)));
}

std::size_t ClockMemory::chunk_index(std::uint32_t owner, const Operand& operand) const {
  return (2 * std::size_t{owner} + (operand.buffer == Buffer::output ? 1 : 0)) * chunks_ + operand.chunk;
}

void ClockMemory::note_use(std::uint32_t rank, const Operand& source) {
  if (!is_memory(source) || source.buffer == Buffer::scratch) return;
  Use& use = uses_[chunk_index(owner_of(rank, source), source)];
  use.several_readers |= use.reader != nobody && use.reader != rank;
  use.reader = rank;
}

double ClockMemory::working_set_bytes(const RankPlan& mine) const {
  std::vector<bool> counted(uses_.size());
  double bytes = static_cast<double>(model_.slots * slice_bytes_ * mine.links.size());
  for (const Lane& lane : mine.lanes)
    for (const Step& step : lane.steps)
      for (const auto* operands : {&step.sources, &step.destinations})
        for (const Operand& operand : *operands) {
          if (!is_memory(operand) || operand.buffer == Buffer::scratch) continue;
          const std::size_t chunk = chunk_index(owner_of(mine.rank, operand), operand);
          if (counted[chunk]) continue;
          counted[chunk] = true;
          bytes += static_cast<double>(layout_.chunk(operand.chunk).count * element_bytes_);
        }
  return bytes;
}

ClockMemory::Cost ClockMemory::read(std::uint32_t rank, const Operand& source, std::uint32_t slice, double bytes) {
  const ClockRates& rates = model_.memory;
  if (source.kind == Operand::Kind::receive) return {remote_share_ * model_.extra_us(bytes, rates.fetch_gbps), 0};
  if (source.buffer == Buffer::scratch) return {};
  const std::size_t chunk = chunk_index(owner_of(rank, source), source);
  Cell& cell = cells_[chunk * slices_ + slice];
  const Cell before = cell;
  cell.toucher = rank;
  if (before.toucher == rank) return {};
  if (before.written) {
    // If the writer has finished all slices of a chunk before the first one is read, it ran ahead: between the write
    // and the read of a slice many others pass through the caches.
    if (slice == 0 && slices_ > 1) uses_[chunk].far = cells_[(chunk + 1) * slices_ - 1].written;
    const double gone = uses_[chunk].far ? dram_share_ : 0;
    return {(1 - gone) * remote_share_ * model_.extra_us(bytes, rates.fetch_gbps) +
                gone * model_.extra_us(bytes, rates.dram_read_gbps),
            gone * rates.dram_read_part * bytes};
  }
  if (before.toucher != nobody) return {beyond_own_[rank] * model_.extra_us(bytes, rates.shared_read_gbps), 0};
  const double shared = std::max(0.0, beyond_own_[rank] - dram_share_);
  return {shared * model_.extra_us(bytes, rates.shared_read_gbps) +
              dram_share_ * model_.extra_us(bytes, rates.dram_read_gbps),
          dram_share_ * rates.dram_read_part * bytes};
}

ClockMemory::Cost ClockMemory::write(std::uint32_t rank, const Operand& destination, std::uint32_t slice, double bytes,
                                     Writes writes) {
  const ClockRates& rates = model_.memory;
  const double replace_us = remote_share_ * bytes * model_.replace_us_per_byte(writes);
  if (destination.kind == Operand::Kind::send) return {replace_us, 0};
  if (destination.buffer == Buffer::scratch) return {};
  const std::size_t chunk = chunk_index(owner_of(rank, destination), destination);
  Cell& cell = cells_[chunk * slices_ + slice];
  const Cell before = cell;
  cell = {rank, true};
  if (before.toucher == rank) return {};
  if (before.toucher != nobody || uses_[chunk].read_by_other_than(rank))
    return {(1 - dram_share_) * replace_us + dram_share_ * model_.extra_us(bytes, rates.dram_write_gbps),
            dram_share_ * (1 - rates.dram_read_part) * bytes};
  if (streams_ && destination.kind == Operand::Kind::local && uses_[chunk].reader == nobody)
    return {model_.extra_us(bytes, rates.stream_gbps), rates.dram_stream_part * bytes};
  const double shared = std::max(0.0, beyond_own_[rank] - dram_share_);
  return {shared * model_.extra_us(bytes, rates.shared_write_gbps) +
              dram_share_ * model_.extra_us(bytes, rates.dram_write_gbps),
          dram_share_ * (1 - rates.dram_read_part) * bytes};
}

}  // namespace strait
