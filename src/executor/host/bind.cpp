// Binding: makes a HostProgram of a plan, a layout and a transport.
#include <algorithm>

#include "executor/host/host_program.hpp"

namespace strait {
namespace {

bool has_wide_form(DataType type) { return is_floating(type) && size_bytes(type) < HostProgram::accumulator_bytes; }

}  // namespace

Result<std::unique_ptr<HostProgram>> HostProgram::bind(const RankPlan& plan, const Options& options,
                                                       Transport& transport) {
  auto program = std::unique_ptr<HostProgram>(new HostProgram);
  program->options_ = options;
  program->ranks_ = plan.ranks;
  program->transport_ = &transport;
  program->element_bytes_ = size_bytes(options.arithmetic.type);
  program->peers_.resize(plan.ranks);

  // A wide slot needs more bytes for the same number of elements, so all slices shrink to what fits.
  const bool wide = has_wide_form(options.arithmetic.type) &&
                    (plan.wide_scratch ||
                     std::any_of(plan.links.begin(), plan.links.end(), [](const LinkEnd& end) { return end.wide; }));
  const std::size_t widening = wide ? accumulator_bytes / program->element_bytes_ : 1;
  const std::size_t slice_bytes = std::min(options.slice_bytes, transport.slot_bytes()) / widening;
  program->layout_ = Layout(plan, options.count, program->element_bytes_, slice_bytes);
  program->scratch_chunk_bytes_ = program->layout_.slice_elements * program->element_bytes_ * widening;
  program->scratch_.resize(plan.scratch_chunks * program->scratch_chunk_bytes_);

  for (const Lane& lane : plan.lanes) {
    BoundLane bound;
    for (const Step& step : lane.steps) {
      STRAIT_ASSIGN(BoundStep bound_step, program->bind_step(plan, step, transport));
      bound.steps.push_back(std::move(bound_step));
    }
    program->lanes_.push_back(std::move(bound));
  }
  if (options.stream_outputs) program->mark_streaming();
  return program;
}

Result<HostProgram::BoundStep> HostProgram::bind_step(const RankPlan& plan, const Step& step,
                                                      Transport& transport) const {
  BoundStep bound;
  bound.reduces = step.reduces;
  bound.final = step.final;
  for (std::uint16_t index : step.waits) {
    const SignalEnd& end = plan.signals[index];
    STRAIT_ASSIGN(SignalWaiter * waiter, transport.open_wait(end));
    bound.waits.push_back({waiter, end.credits, end.from});
  }
  for (const Operand& operand : step.sources) {
    STRAIT_ASSIGN(BoundOperand source, bind_operand(plan, operand, transport));
    bound.sources.push_back(source);
  }
  for (const Operand& operand : step.destinations) {
    STRAIT_ASSIGN(BoundOperand destination, bind_operand(plan, operand, transport));
    bound.destinations.push_back(destination);
  }
  bound.copies = !bound.reduces && bound.sources.size() == 1 &&
                 std::all_of(bound.destinations.begin(), bound.destinations.end(),
                             [&](const BoundOperand& to) { return to.wide == bound.sources.front().wide; });
  for (BoundOperand& to : bound.destinations)
    to.direct = bound.copies && to.kind == Operand::Kind::send && to.send->sends_from_anywhere();
  // Only with a single destination, for which nothing else must be waited for: when the message was sent, everything
  // that was at its destination had been read.
  bound.receives_in_place = bound.copies && bound.sources.front().kind == Operand::Kind::receive &&
                            bound.sources.front().receive->receives_anywhere() && bound.destinations.size() == 1 &&
                            bound.destinations.front().kind == Operand::Kind::local;
  if (has_messages() && !step.sources.empty()) {  // a step may also consist of signals alone
    const Operand& named = step.sources.front();
    bound.signature =
        (named.buffer == Buffer::input ? options_.input_messages : options_.output_messages)[named.chunk].signature;
  }
  for (std::uint16_t index : step.signals) {
    STRAIT_ASSIGN(SignalSender * sender, transport.open_signal(plan.signals[index]));
    bound.signals.push_back(sender);
  }
  bound.slices = slices_of(bound);
  return bound;
}

Result<HostProgram::BoundOperand> HostProgram::bind_operand(const RankPlan& plan, const Operand& operand,
                                                            Transport& transport) const {
  BoundOperand bound;
  bound.kind = operand.kind;
  bound.buffer = operand.buffer;
  bound.rank = operand.peer;
  bound.chunk = chunk_extent(operand.buffer, operand.chunk);
  const bool widens = has_wide_form(options_.arithmetic.type);
  switch (operand.kind) {
    case Operand::Kind::local:
      bound.wide = widens && operand.buffer == Buffer::scratch && plan.wide_scratch;
      bound.rank = plan.rank;
      break;
    case Operand::Kind::peer:
      if (operand.buffer == Buffer::scratch)
        return fail(Code::unsupported, "the host executor does not reach peers' scratch memory; the plan " +
                                           plan.algorithm + " asks for it");
      break;
    case Operand::Kind::send: {
      const LinkEnd& end = plan.links[operand.link];
      STRAIT_ASSIGN(bound.send, transport.open_send(end));
      bound.wide = widens && end.wide;
      bound.readers = end.readers;
      break;
    }
    case Operand::Kind::receive: {
      const LinkEnd& end = plan.links[operand.link];
      STRAIT_ASSIGN(bound.receive, transport.open_receive(end));
      bound.wide = widens && end.wide;
      bound.rank = end.writer;
      break;
    }
  }
  return bound;
}

Extent HostProgram::chunk_extent(Buffer buffer, std::uint32_t chunk) const {
  if (buffer == Buffer::scratch) return {chunk * layout_.slice_elements, layout_.slice_elements};
  if (has_messages())
    return (buffer == Buffer::input ? options_.input_messages : options_.output_messages)[chunk].extent;
  return layout_.chunk(chunk);
}

std::uint32_t HostProgram::slices_of(const BoundStep& step) const {
  if (!has_messages()) return layout_.slices;
  std::size_t longest = 1;  // an empty send is a message, too: its slot carries the signature
  for (const auto* operands : {&step.sources, &step.destinations})
    for (const BoundOperand& operand : *operands) longest = std::max(longest, operand.chunk.count);
  return static_cast<std::uint32_t>((longest + layout_.slice_elements - 1) / layout_.slice_elements);
}

void HostProgram::mark_streaming() {
  // Non-temporal stores pay off only for bytes that no later step reads. An output chunk that is a source anywhere
  // stays in the cache, and so do all outputs if peers read outputs in place.
  std::vector<std::size_t> read_offsets;
  for (const BoundLane& lane : lanes_)
    for (const BoundStep& step : lane.steps)
      for (const BoundOperand& source : step.sources) {
        if (source.buffer != Buffer::output || source.kind == Operand::Kind::receive) continue;
        if (source.kind == Operand::Kind::peer) return;
        read_offsets.push_back(source.chunk.offset);
      }
  for (BoundLane& lane : lanes_)
    for (BoundStep& step : lane.steps)
      for (BoundOperand& destination : step.destinations)
        destination.streaming =
            destination.kind == Operand::Kind::local && destination.buffer == Buffer::output &&
            std::find(read_offsets.begin(), read_offsets.end(), destination.chunk.offset) == read_offsets.end();
}

}  // namespace strait
