#include "executor/plan_on_gpu/program.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace strait::cuda {
namespace {

/// Identifies an end of a channel, the same on both sides: signal or link, writer, reader, tag, the link's readers, and
/// which end.
using EndKey = std::tuple<bool, std::uint32_t, std::uint32_t, std::uint16_t, std::vector<std::uint32_t>, bool>;

struct End {
  std::uint32_t rank;
  std::uint32_t channel;
};

std::string where(const RankPlan& plan, std::size_t lane) {
  return "plan " + plan.algorithm + ", rank " + std::to_string(plan.rank) + ", lane " + std::to_string(lane);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

/// Flattens the plan of one rank. connect() fills in the addresses of the other ends later.
class RankCompiler {
 public:
  RankCompiler(const RankPlan& plan, const ProgramOptions& options, std::map<EndKey, End>& ends)
      : plan_(plan), options_(options), ends_(ends) {
    program_.rank = plan.rank;
  }

  Result<RankProgram> compile() {
    STRAIT_TRY(check_plan());
    allocate(std::uint64_t{plan_.scratch_chunks} * options_.max_blocks * options_.block_slot_bytes);
    for (std::size_t lane = 0; lane < plan_.lanes.size(); ++lane) STRAIT_TRY(add_lane(lane));
    program_.state_offset = allocate(sizeof(ChannelState) * program_.channels.size() * options_.max_blocks).offset;
    program_.arena_bytes = arena_bytes_;
    return std::move(program_);
  }

 private:
  Status check_plan() const {
    const auto unsupported = [&](const std::string& what) {
      return fail(Code::unsupported, "the CUDA executor cannot run plan " + plan_.algorithm + ": " + what);
    };
    if (plan_.ranks > max_ranks) return unsupported("it has more than " + std::to_string(max_ranks) + " ranks");
    if (plan_.lanes.size() > max_lanes) return unsupported("it has more than " + std::to_string(max_lanes) + " lanes");
    if (plan_.collective == Collective::all_to_all_v || plan_.collective == Collective::send_recv)
      return unsupported("chunks of caller-given lengths");
    return {};
  }

  Status add_lane(std::size_t index) {
    const Lane& lane = plan_.lanes[index];
    FlatLane flat;
    flat.first_step = static_cast<std::uint32_t>(program_.steps.size());
    flat.first_operand = static_cast<std::uint32_t>(program_.operands.size());
    flat.first_item = static_cast<std::uint32_t>(program_.items.size());
    flat.first_channel = static_cast<std::uint32_t>(program_.channels.size());
    lane_ = flat;
    link_channels_.clear();
    signal_channels_.clear();
    for (const Step& step : lane.steps) STRAIT_TRY(add_step(step));
    flat.steps = static_cast<std::uint32_t>(program_.steps.size()) - flat.first_step;
    flat.operands = static_cast<std::uint32_t>(program_.operands.size()) - flat.first_operand;
    flat.items = static_cast<std::uint32_t>(program_.items.size()) - flat.first_item;
    flat.channels = static_cast<std::uint32_t>(program_.channels.size()) - flat.first_channel;
    if (flat.steps > max_lane_steps || flat.operands > max_lane_operands || flat.items > max_lane_items ||
        flat.channels > max_lane_channels)
      return fail(Code::unsupported, "the CUDA executor cannot run " + where(plan_, index) + ": it has " +
                                         std::to_string(flat.steps) + " steps, " + std::to_string(flat.operands) +
                                         " operands and " + std::to_string(flat.channels) + " channels");
    program_.lanes.push_back(flat);
    return {};
  }

  Status add_step(const Step& step) {
    FlatStep flat;
    flat.first_operand = static_cast<std::uint16_t>(program_.operands.size() - lane_.first_operand);
    flat.first_item = static_cast<std::uint16_t>(program_.items.size() - lane_.first_item);
    flat.reduces = step.reduces;
    flat.final = step.final;
    posts_.clear();
    for (const std::uint16_t signal : step.waits) {
      STRAIT_ASSIGN(const std::uint16_t channel, signal_channel(signal));
      program_.items.push_back(use(channel));
    }
    for (const Operand& operand : step.sources) STRAIT_TRY(add_operand(operand));
    flat.sources = static_cast<std::uint16_t>(program_.operands.size() - lane_.first_operand - flat.first_operand);
    for (const Operand& operand : step.destinations) STRAIT_TRY(add_operand(operand));
    const std::size_t operands = program_.operands.size() - lane_.first_operand - flat.first_operand;
    flat.destinations = static_cast<std::uint16_t>(operands - flat.sources);
    if (options_.rotate && flat.destinations > 1) {
      const auto first = program_.operands.end() - flat.destinations;
      std::rotate(first, first + plan_.rank % flat.destinations, program_.operands.end());
    }
    flat.waits = static_cast<std::uint16_t>(program_.items.size() - lane_.first_item - flat.first_item);
    for (const std::uint16_t signal : step.signals) {
      STRAIT_ASSIGN(const std::uint16_t channel, signal_channel(signal));
      posts_.push_back(use(channel));
    }
    flat.posts = static_cast<std::uint16_t>(posts_.size());
    program_.items.insert(program_.items.end(), posts_.begin(), posts_.end());
    if (flat.sources > max_sources || operands > max_operands)
      return fail(Code::unsupported, "the CUDA executor cannot run plan " + plan_.algorithm + ": a step of rank " +
                                         std::to_string(plan_.rank) + " has " + std::to_string(operands) + " operands");
    set_length(step, flat);
    program_.steps.push_back(flat);
    return {};
  }

  static void set_length(const Step& step, FlatStep& flat) {
    for (const auto* operands : {&step.sources, &step.destinations})
      for (const Operand& operand : *operands)
        if (operand.buffer != Buffer::scratch) {
          flat.length_chunk = operand.chunk;
          return;
        }
    flat.whole_slice = true;
  }

  Status add_operand(const Operand& operand) {
    FlatOperand flat;
    flat.chunk = operand.chunk;
    if (operand.kind == Operand::Kind::local || operand.kind == Operand::Kind::peer) {
      flat.kind = static_cast<FlatOperand::Kind>(operand.buffer);
      flat.rank = static_cast<std::uint16_t>(operand.kind == Operand::Kind::peer ? operand.peer : plan_.rank);
      program_.operands.push_back(flat);
      return {};
    }
    const bool sends = operand.kind == Operand::Kind::send;
    const bool packet = options_.protocol == Protocol::packet;
    STRAIT_ASSIGN(const std::vector<std::uint16_t> channels, link_channels(operand.link, sends));
    for (const std::uint16_t channel : channels) {
      FlatItem item = use(channel);
      flat.kind = FlatOperand::Kind::slot;
      flat.channel = channel;
      flat.ordinal = item.ordinal;
      program_.operands.push_back(flat);
      // Packets announce themselves, so the writer posts nothing. The reader still posts that it has read them, which
      // may be relaxed, because it comes after loads whose values have been tested.
      item.relaxed = packet;
      if (sends || !packet) program_.items.push_back(item);
      if (!sends || !packet) posts_.push_back(item);
    }
    return {};
  }

  FlatItem use(std::uint16_t channel) {
    Channel& c = program_.channels[lane_.first_channel + channel];
    return {.channel = channel, .ordinal = static_cast<std::uint16_t>(c.per_slice++)};
  }

  Result<std::vector<std::uint16_t>> link_channels(std::uint16_t index, bool sends) {
    if (const auto known = link_channels_.find(index); known != link_channels_.end()) return known->second;
    const LinkEnd& link = plan_.links[index];
    if (link.sends != sends)
      return fail(Code::internal_error, "plan " + plan_.algorithm + " uses a link the wrong way");
    std::vector<std::uint16_t> channels;
    for (const std::uint32_t reader : link.readers) {
      if (!sends && reader != plan_.rank) continue;
      Channel channel;
      channel.credit = sends ? options_.depth : 0;
      channel.peer = sends ? reader : link.writer;
      channel.tag = link.tag;
      if (!sends) channel.slots = allocate(slot_bytes() * options_.depth * options_.max_blocks);
      STRAIT_ASSIGN(const std::uint16_t id,
                    add_channel(channel, {false, link.writer, reader, link.tag, link.readers, sends}));
      channels.push_back(id);
    }
    return link_channels_[index] = channels;
  }

  Result<std::uint16_t> signal_channel(std::uint16_t index) {
    if (const auto known = signal_channels_.find(index); known != signal_channels_.end()) return known->second;
    const SignalEnd& signal = plan_.signals[index];
    Channel channel;
    channel.peer = signal.signals ? signal.to : signal.from;
    channel.tag = signal.tag;
    STRAIT_ASSIGN(const std::uint16_t id,
                  add_channel(channel, {true, signal.from, signal.to, signal.tag, {}, signal.signals}));
    return signal_channels_[index] = id;
  }

  Result<std::uint16_t> add_channel(Channel channel, const EndKey& key) {
    channel.waited = allocate(counter_stride * options_.max_blocks);
    const auto index = static_cast<std::uint32_t>(program_.channels.size());
    if (!ends_.insert({key, {plan_.rank, index}}).second)
      return fail(Code::internal_error, "plan " + plan_.algorithm + ", rank " + std::to_string(plan_.rank) +
                                            ": two lanes, or two links or signals of one name, share an end");
    program_.channels.push_back(channel);
    return static_cast<std::uint16_t>(index - lane_.first_channel);
  }

  std::uint64_t slot_bytes() const {
    return std::uint64_t{options_.block_slot_bytes} * (options_.protocol == Protocol::packet ? 2 : 1);
  }

  Address allocate(std::uint64_t bytes) {
    const Address address{arena_bytes_, plan_.rank};
    arena_bytes_ += round_up(bytes, counter_stride);
    return address;
  }

  const RankPlan& plan_;
  const ProgramOptions& options_;
  std::map<EndKey, End>& ends_;
  RankProgram program_;
  FlatLane lane_;
  std::map<std::uint16_t, std::vector<std::uint16_t>> link_channels_;
  std::map<std::uint16_t, std::uint16_t> signal_channels_;
  std::vector<FlatItem> posts_;
  std::uint64_t arena_bytes_ = 0;
};

Status connect(const std::map<EndKey, End>& ends, const Plan& plan, Program& program) {
  for (const auto& [key, end] : ends) {
    EndKey other_key = key;
    std::get<5>(other_key) = !std::get<5>(key);
    const auto other = ends.find(other_key);
    Channel& channel = program.ranks[end.rank].channels[end.channel];
    if (other == ends.end())
      return fail(Code::internal_error, "plan " + plan[0].algorithm + ": rank " + std::to_string(channel.peer) +
                                            " lacks its end of a link or signal of rank " + std::to_string(end.rank));
    const Channel& peer = program.ranks[other->second.rank].channels[other->second.channel];
    if (peer.per_slice != channel.per_slice)
      return fail(Code::unsupported, "plan " + plan[0].algorithm + ": ranks " + std::to_string(end.rank) + " and " +
                                         std::to_string(channel.peer) + " use a link or signal unequally often");
    channel.posted = peer.waited;
    if (!std::get<0>(key) && std::get<5>(key)) channel.slots = peer.slots;
  }
  return {};
}

}  // namespace

Result<Program> compile(const Plan& plan, const ProgramOptions& options) {
  if (options.max_blocks == 0 || options.depth == 0 || options.block_slot_bytes == 0 ||
      options.block_slot_bytes % unit_bytes != 0)
    return fail(Code::invalid_argument, "blocks and depth must be positive, and slots multiples of 16 bytes");
  Program program;
  program.options = options;
  std::map<EndKey, End> ends;
  for (const RankPlan& rank_plan : plan) {
    STRAIT_ASSIGN(RankProgram rank, RankCompiler(rank_plan, options, ends).compile());
    program.ranks.push_back(std::move(rank));
    program.bounded_slices |= !rank_plan.links.empty() || rank_plan.scratch_chunks > 0;
  }
  STRAIT_TRY(connect(ends, plan, program));
  return program;
}

}  // namespace strait::cuda
