#include "executor/host/host_program.hpp"

#include <algorithm>
#include <array>

namespace strait {

void HostProgram::start(const Run& run) {
  run_ = run;
  foreign_.reset();
  std::fill(peers_.begin(), peers_.end(), std::nullopt);
  for (BoundLane& lane : lanes_) {
    lane.slice = lane.step = lane.ready = 0;
    lane.done = lane.steps.empty() || lane.steps.front().slices == 0;
  }
}

Result<HostProgram::State> HostProgram::progress() {
  bool advanced = false;
  bool pending = false;
  for (BoundLane& lane : lanes_) {
    while (!lane.done) {
      BoundStep& step = lane.steps[lane.step];
      STRAIT_ASSIGN(const bool ready, make_ready(lane, step));
      if (!ready) {
        pending = true;
        break;
      }
      execute(step, lane.slice);
      advanced = true;
      advance(lane);
    }
  }
  if (!pending) return State::done;
  return advanced ? State::advanced : State::idle;
}

void HostProgram::advance(BoundLane& lane) const {
  lane.ready = 0;
  const std::uint32_t slices = lane.steps[lane.step].slices;
  if (has_messages()) {
    // A message is completed before the next one begins, because the peer may post them one by one.
    if (++lane.slice < slices) return;
    lane.slice = 0;
    lane.done = ++lane.step == lane.steps.size();
  } else {
    if (++lane.step < lane.steps.size()) return;
    lane.step = 0;
    lane.done = ++lane.slice == slices;
  }
}

Result<bool> HostProgram::make_ready(BoundLane& lane, BoundStep& step) {
  const std::size_t waits = step.waits.size();
  const std::size_t sources = step.sources.size();
  const std::size_t total = waits + sources + step.destinations.size();
  for (; lane.ready < total; ++lane.ready) {
    const std::size_t index = lane.ready;
    if (index < waits) {
      if (!step.waits[index].waiter->try_take()) return false;
      continue;
    }
    BoundOperand& operand =
        index < waits + sources ? step.sources[index - waits] : step.destinations[index - waits - sources];
    STRAIT_ASSIGN(const bool acquired, acquire(step, operand, lane.slice));
    if (!acquired) return false;
  }
  return true;
}

/// Finds the slice of a local operand. Without MessagePieces it is in the user's memory, and always available.
bool HostProgram::find_piece(BoundOperand& operand, std::uint32_t slice) const {
  if (options_.pieces == nullptr || operand.kind != Operand::Kind::local) return true;
  operand.slot = options_.pieces->find(operand.chunk.offset, slice);
  return operand.slot != nullptr;
}

Result<bool> HostProgram::acquire(BoundStep& step, BoundOperand& operand, std::uint32_t slice) {
  switch (operand.kind) {
    case Operand::Kind::local:
      return find_piece(operand, slice);
    case Operand::Kind::send:
      operand.slot = operand.send->try_reserve();
      return operand.slot != nullptr;
    case Operand::Kind::receive: {
      CallSignature seen;
      const std::byte* message = nullptr;
      if (step.receives_in_place) {
        const auto place = place_of_received(step, slice);
        if (place) message = operand.receive->try_acquire_into(*place, signature_of(step), seen);
      } else {
        message = operand.receive->try_acquire(seen);
      }
      operand.slot = const_cast<std::byte*>(message);
      if (operand.slot == nullptr) return false;
      STRAIT_TRY(check_signature(step, operand.rank, seen));
      return true;
    }
    case Operand::Kind::peer: {
      // The signal that made this operand legal came after the peer's post, so the post must be visible.
      auto& peer = peers_[operand.rank];
      if (!peer) {
        peer = transport_->peer_call(run_.sequence, operand.rank);
        if (!peer)
          return fail(Code::internal_error, "rank " + std::to_string(operand.rank) + " signalled before it posted");
        STRAIT_TRY(check_signature(step, operand.rank, peer->signature));
        if (peer->input == nullptr && peer->output == nullptr)
          return fail(Code::internal_error,
                      "the buffers of rank " + std::to_string(operand.rank) + " are out of reach");
      }
      return true;
    }
  }
  return false;
}

std::optional<std::span<std::byte>> HostProgram::place_of_received(BoundStep& step, std::uint32_t slice) {
  BoundOperand& to = step.destinations.front();
  if (!find_piece(to, slice)) return std::nullopt;
  return std::span(address(to, slice), slice_count(step, slice) * element_bytes_);
}

Status HostProgram::check_signature(const BoundStep& step, std::uint32_t rank, const CallSignature& seen) {
  const CallSignature& expected = signature_of(step);
  if (seen == expected) return {};
  foreign_ = Foreign{rank, expected, seen};
  return fail(Code::mismatch, "another call arrived from rank " + std::to_string(rank));
}

std::byte* HostProgram::address(const BoundOperand& operand, std::uint32_t slice) {
  if (operand.slot != nullptr) return operand.slot;
  if (operand.buffer == Buffer::scratch) return scratch_.data() + operand.chunk.offset * element_bytes_;
  const std::size_t offset = (operand.chunk.offset + slice * layout_.slice_elements) * element_bytes_;
  const bool input = operand.buffer == Buffer::input;
  // Computed with integers: if the caller gives the extents, the base is null and the offset is the address.
  std::uintptr_t base = 0;
  if (operand.kind == Operand::Kind::peer) {
    const PeerCall& peer = *peers_[operand.rank];
    base = input ? reinterpret_cast<std::uintptr_t>(peer.input) : reinterpret_cast<std::uintptr_t>(peer.output);
  } else {
    base = input ? reinterpret_cast<std::uintptr_t>(run_.input) : reinterpret_cast<std::uintptr_t>(run_.output);
  }
  return reinterpret_cast<std::byte*>(base + offset);
}

std::size_t HostProgram::slice_count(const BoundStep& step, std::uint32_t slice) const {
  const std::size_t begin = slice * layout_.slice_elements;
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const BoundOperand& operand : *operands)
      if (operand.buffer != Buffer::scratch)
        return operand.chunk.count > begin ? std::min(layout_.slice_elements, operand.chunk.count - begin) : 0;
  return layout_.slice_elements;
}

void HostProgram::execute(const BoundStep& step, std::uint32_t slice) {
  std::size_t count = 0;
  if (!step.sources.empty() && !step.destinations.empty()) {
    count = slice_count(step, slice);
    if (count != 0) compute(step, slice, count);
  }
  finish(step, slice, count);
}

void HostProgram::compute(const BoundStep& step, std::uint32_t slice, std::size_t count) {
  sources_.clear();
  destinations_.clear();
  for (const BoundOperand& source : step.sources) sources_.push_back({address(source, slice)});
  for (const BoundOperand& destination : step.destinations)
    if (!destination.direct) destinations_.push_back({address(destination, slice), destination.streaming});

  if (destinations_.empty() || (step.receives_in_place && destinations_.front().pointer == sources_.front().pointer))
    return;
  if (step.copies) {
    copy(destinations_, sources_.front().pointer, count * element_bytes_, options_.simd);
    return;
  }
  reduce({.type = options_.arithmetic.type,
          .op = options_.arithmetic.op,
          .sources = sources_,
          .destinations = destinations_,
          .count = count,
          .final = step.final,
          .ranks = options_.averaged != 0 ? options_.averaged : ranks_},
         options_.simd);
}

void HostProgram::finish(const BoundStep& step, std::uint32_t slice, std::size_t count) {
  for (const BoundOperand& destination : step.destinations)
    if (destination.direct) {
      const BoundOperand& source = step.sources.front();
      destination.send->publish_from(signature_of(step), {address(source, slice), count * element_bytes_});
    }
  for (const BoundOperand& source : step.sources)
    if (source.kind == Operand::Kind::receive) source.receive->release();
  for (const BoundOperand& destination : step.destinations)
    if (destination.kind == Operand::Kind::send && !destination.direct)
      destination.send->publish(signature_of(step), count * element_bytes_);
  for (SignalSender* signal : step.signals) signal->add();
  if (options_.pieces != nullptr)
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const BoundOperand& operand : *operands)
        if (operand.kind == Operand::Kind::local) options_.pieces->mark_done(operand.chunk.offset, slice);
}

std::vector<std::uint32_t> HostProgram::awaited_ranks() const {
  std::vector<std::uint32_t> ranks;
  for (const BoundLane& lane : lanes_) {
    if (lane.done) continue;
    const BoundStep& step = lane.steps[lane.step];
    const std::size_t waits = step.waits.size();
    const std::size_t sources = step.sources.size();
    if (lane.ready < waits) {
      ranks.push_back(step.waits[lane.ready].rank);
    } else if (lane.ready < waits + sources) {
      const BoundOperand& source = step.sources[lane.ready - waits];
      // Else it waits for a piece of its own rank.
      if (source.kind != Operand::Kind::local) ranks.push_back(source.rank);
    } else if (lane.ready < waits + sources + step.destinations.size()) {
      const BoundOperand& send = step.destinations[lane.ready - waits - sources];
      if (send.kind != Operand::Kind::send) continue;
      for (std::size_t reader : send.send->holders()) ranks.push_back(send.readers[reader]);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace strait
