#include "network/network_calls.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

namespace strait {
namespace {

using kernels::Flow;

/// The number of rounds of a collective, unless they would be too short: so that the copy from the GPU, the network
/// transfer and the copy to the GPU of neighbouring rounds overlap. More rounds only take longer (by default there are
/// no more lanes than this).
constexpr std::size_t good_rounds = 8;
constexpr std::size_t short_round_bytes = 128 << 10;
/// The length of a message's stripes, at least.
constexpr std::size_t least_stripe_bytes = 128 << 10;
/// Data that a rank sends to itself: shorter data is copied by the kernel, or travels with the messages to others,
/// which costs less than a separate copy.
constexpr std::size_t least_copy_bytes = 64 << 10;
constexpr std::size_t grain_bytes = 16;
/// The number of flows that a block serves in a launch of messages (network_messages.cuh).
constexpr std::uint32_t flows_of_a_block = 32;
static_assert(kernels::max_flows <= flows_of_a_block * most_network_blocks);

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
std::size_t round_down(std::size_t value, std::size_t unit) { return value / unit * unit; }

/// Returns the unit of piece sizes. Pieces begin with a whole element, and in a wire format with a whole block.
std::size_t grain(const Call& call) {
  return call.wire == WireFormat::off ? grain_bytes : std::size_t{wire::block_elements} * size_bytes(call.type);
}

std::byte* element_at(const void* buffer, std::size_t element, DataType type) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(buffer)) + element * size_bytes(type);
}

/// Returns the offset of a block: the given one, or without `offsets` that among consecutive blocks.
std::size_t offset_of(std::size_t block, std::size_t count, const std::vector<std::size_t>& offsets) {
  return offsets.empty() ? block * count : offsets[block];
}

void add_copy(const void* from, void* to, std::size_t bytes, std::vector<NetworkLaunch::Copy>& copies) {
  if (to != from) copies.push_back({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
}
/// Records a copy of data that stays with the rank, which the kernel makes if it is short.
void add_local_copy(const void* from, void* to, std::size_t bytes, NetworkLaunch& launch) {
  if (bytes >= least_copy_bytes) return add_copy(from, to, bytes, launch.copies);
  if (to != from) launch.local_copy = {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
}

bool comes_anything(const std::vector<Flow>& flows) {
  return std::any_of(flows.begin(), flows.end(), [](const Flow& flow) { return !flow.sends; });
}

Call message_of(const Call& call, std::uint32_t peer, bool sends, std::size_t offset, std::size_t count) {
  Call message;
  message.collective = Collective::send_recv;
  message.type = call.type;
  message.count = count;
  message.sends = sends;
  message.peer = peer;
  if (sends)
    message.send = element_at(call.send, offset, call.type);
  else
    message.receive = element_at(call.receive, offset, call.type);
  return message;
}

}  // namespace

NetworkCalls::NetworkCalls(std::uint32_t rank, std::vector<Island> hosts, const Slots& slots)
    : rank_(rank),
      hosts_(std::move(hosts)),
      host_(place_of(hosts_, rank).island),
      slot_bytes_(slots.slot_bytes),
      piece_bytes_(slots.piece_bytes),
      lanes_(slots.lanes) {
  std::size_t smallest = hosts_.front().size();
  for (const Island& host : hosts_) {
    ranks_ += static_cast<std::uint32_t>(host.size());
    smallest = std::min(smallest, host.size());
  }
  const std::size_t far = ranks_ - smallest;
  most_stripes_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(kernels::max_flows / (2 * far), 1, lanes_));
}

std::vector<NetworkLaunch> NetworkCalls::launches_of(const IslandStep& step) const {
  const Call& call = step.call;
  if (step.among == IslandStep::Among::across) return across(call, step.part);
  const bool has_counts = !call.send_counts.empty() || !call.receive_counts.empty();
  return has_counts ? exchange(call) : in_one_round(call);
}

std::uint32_t NetworkCalls::blocks_for(const NetworkLaunch& launch, std::uint32_t max_sms) {
  const std::uint32_t most = max_sms == no_sms ? 1
                             : max_sms == 0    ? most_network_blocks
                                               : std::min(max_sms, most_network_blocks);
  const auto flows = static_cast<std::uint32_t>(launch.flows.size());
  if (launch.call.collective == Collective::send_recv)  // each flow belongs to one block
    return std::max(std::min(flows, most), (flows + flows_of_a_block - 1) / flows_of_a_block);
  std::size_t sent_bytes = 0, received_bytes = 0;
  for (const Flow& flow : launch.flows)
    (flow.sends ? sent_bytes : received_bytes) += std::min<std::size_t>(flow.bytes, flow.piece_bytes);
  const std::size_t bytes = std::max(sent_bytes, received_bytes);
  return std::min(bytes <= 32 << 10 ? 1 : bytes <= 128 << 10 ? 2 : most_network_blocks, most);
}

Flow NetworkCalls::flow(const void* data, std::size_t elements, const Call& call, bool sends) const {
  Flow flow{};
  flow.data = element_at(data, 0, call.type);
  flow.bytes = elements * size_bytes(call.type);
  flow.type = call.type;
  flow.sends = sends;
  return flow;
}

/// Returns the room for a block, in block lengths: up to three in a wire format, as any rank may have a residual.
std::size_t slot_factor(const Call& call) {
  return call.wire == WireFormat::off ? 1 : 1 + sizeof(float) / size_bytes(call.type);
}

/// Returns the length of all rounds but the last one. All parts of a call have the same, and consist of whole rounds.
std::size_t NetworkCalls::piece_of_rounds(const Call& call, const Part& part) const {
  const bool has_blocks = call.collective == Collective::all_gather || call.collective == Collective::reduce_scatter;
  const std::size_t together = has_blocks ? hosts_.size() : 1;
  const std::size_t bytes = std::max(part.whole, call.count) * size_bytes(call.type);
  const std::size_t good = std::max((bytes + good_rounds - 1) / good_rounds, short_round_bytes / together);
  const std::size_t most = std::min(good, round_down(slot_bytes_ / together / slot_factor(call), grain(call)));
  if (part.whole == 0) {
    const std::size_t rounds = (bytes + most - 1) / most;
    return round_up((bytes + rounds - 1) / rounds, grain(call));
  }
  const std::size_t each = part.each * size_bytes(call.type);
  return each / std::clamp<std::size_t>(std::bit_ceil((each + most - 1) / most), 1, IslandStep::parts_grain);
}

/// Cuts a call into rounds. All its flows have one length.
NetworkLaunch NetworkCalls::in_rounds(const Call& call, const Part& part, std::vector<Flow> flows) const {
  const std::size_t piece = piece_of_rounds(call, part), first_bytes = part.first * size_bytes(call.type);
  for (Flow& each : flows) {
    each.piece_bytes = static_cast<std::uint32_t>(piece);
    if (part.whole != 0) each.bytes = part.whole * size_bytes(call.type);
    each.data -= first_bytes;  // where the whole call's data would begin
  }
  NetworkLaunch launch;
  launch.call.rounds = kernels::pieces_of(flows.front());
  launch.call.whole_count = part.whole != 0 ? part.whole : call.count;
  launch.call.root = call.root;
  launch.call.among = Among::across;
  launch.call.collective = call.collective;
  launch.call.type = call.type;
  launch.call.op = call.op;
  launch.call.wire = call.wire;
  launch.flows = std::move(flows);
  if (call.residual != nullptr) add_residual(call, part, launch);
  launch.call.is_awaited = comes_anything(launch.flows);
  const std::size_t end = part.first + call.count;
  launch.first_step = static_cast<std::uint32_t>(first_bytes / piece);
  launch.end_step = end < part.whole ? static_cast<std::uint32_t>(end * size_bytes(call.type) / piece)
                                     : kernels::steps_of(launch.call);
  return launch;
}

/// Adds flows for the residual, to the slots and back, behind the data. Its blocks are consecutive in each part.
void NetworkCalls::add_residual(const Call& call, const Part& part, NetworkLaunch& launch) const {
  const Flow& sent = launch.flows.front();
  const bool has_blocks = call.collective == Collective::reduce_scatter;
  const std::uint32_t blocks = has_blocks ? static_cast<std::uint32_t>(hosts_.size()) : 1;
  launch.call.residual_blocks = blocks;
  launch.call.residual_offset = blocks * sent.piece_bytes;
  Flow each{};
  each.type = DataType::float32;
  each.bytes = sent.bytes / size_bytes(call.type) * sizeof(float);
  each.piece_bytes = static_cast<std::uint32_t>(sent.piece_bytes / size_bytes(call.type) * sizeof(float));
  each.slot_offset = launch.call.residual_offset;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    each.data = element_at(call.residual, block * call.count, DataType::float32) - part.first * sizeof(float);
    each.block = static_cast<std::uint8_t>(block);
    for (const bool sends : {true, false}) {
      each.sends = sends;
      launch.flows.push_back(each);
    }
  }
}

std::vector<NetworkLaunch> NetworkCalls::across(const Call& call, const Part& part) const {
  if (!call.send_counts.empty() || !call.receive_counts.empty()) return for_each_host(call);
  if (call.count == 0) return {};
  const bool is_root = call.root == host_;
  std::vector<Flow> flows;
  std::byte* own = nullptr;  // destination of this rank's own block
  const auto add_block = [&](std::size_t host, const void* buffer, const std::vector<std::size_t>& offsets,
                             bool sends) {
    const std::byte* const block = element_at(buffer, offset_of(host, call.count, offsets), call.type);
    flows.push_back(flow(block, call.count, call, sends));
    flows.back().block = static_cast<std::uint8_t>(host);
  };
  switch (call.collective) {
    case Collective::reduce_scatter:
      for (std::size_t host = 0; host < hosts_.size(); ++host) add_block(host, call.send, call.send_offsets, true);
      break;
    case Collective::broadcast:
      if (is_root) flows.push_back(flow(call.send, call.count, call, true));
      break;
    default:
      flows.push_back(flow(call.send, call.count, call, true));
  }
  switch (call.collective) {
    case Collective::all_gather:
      for (std::size_t host = 0; host < hosts_.size(); ++host)
        if (host != host_) add_block(host, call.receive, call.receive_offsets, false);
      own = element_at(call.receive, offset_of(host_, call.count, call.receive_offsets), call.type);
      break;
    case Collective::broadcast:
      if (is_root)
        own = element_at(call.receive, 0, call.type);
      else
        flows.push_back(flow(call.receive, call.count, call, false));
      break;
    case Collective::reduce:
      if (is_root) flows.push_back(flow(call.receive, call.count, call, false));
      break;
    default:
      flows.push_back(flow(call.receive, call.count, call, false));
  }
  NetworkLaunch launch = in_rounds(call, part, std::move(flows));
  if (own != nullptr) add_local_copy(call.send, own, call.count * size_bytes(call.type), launch);
  return {std::move(launch)};
}

/// Blocks of different lengths: each one is reduced to its host, or broadcast from its host.
std::vector<NetworkLaunch> NetworkCalls::for_each_host(const Call& call) const {
  const bool reduces = call.collective == Collective::reduce_scatter;
  Launches launches;
  for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
    const std::size_t count = (reduces ? call.send_counts : call.receive_counts)[host];
    const std::size_t offset = offset_of(host, call.count, reduces ? call.send_offsets : call.receive_offsets);
    Call part = call;
    part.collective = reduces ? Collective::reduce : Collective::broadcast;
    part.root = host;
    part.count = count;
    part.send_counts = part.send_offsets = part.receive_counts = part.receive_offsets = {};
    part.send = element_at(reduces ? call.send : call.receive, offset, call.type);
    if (!reduces) part.receive = element_at(call.receive, offset, call.type);
    for (NetworkLaunch& launch : across(part, {})) launches.push_back(std::move(launch));
  }
  return launches;
}

/// Makes a single round of a short call.
std::vector<NetworkLaunch> NetworkCalls::in_one_round(const Call& call) const {
  const BufferSizes sizes = buffer_sizes(call, rank_, ranks_);
  NetworkLaunch launch;
  const auto add = [&](const void* data, std::size_t bytes, bool sends) {
    if (bytes == 0) return;
    launch.flows.push_back(flow(data, bytes / size_bytes(call.type), call, sends));
    launch.flows.back().piece_bytes = static_cast<std::uint32_t>(round_up(bytes, grain_bytes));
  };
  add(call.send, sizes.send_bytes, true);
  if (call.collective == Collective::broadcast && rank_ == call.root)
    add_local_copy(call.send, call.receive, sizes.receive_bytes, launch);
  else
    add(call.receive, sizes.receive_bytes, false);
  launch.call.rounds = 1;
  launch.call.is_awaited = launch.flows.empty() || comes_anything(launch.flows);
  launch.end_step = kernels::steps_of(launch.call);
  launch.call.root = call.root;
  launch.call.count = call.count;
  launch.call.among = Among::all;
  launch.call.collective = call.collective;
  launch.call.type = call.type;
  launch.call.op = call.op;
  return {std::move(launch)};
}

/// Makes messages of blocks that go from rank to rank, with the call's counts; 0: the block is not exchanged here.
std::vector<NetworkLaunch> NetworkCalls::exchange(const Call& call) const {
  std::vector<Call> messages;
  const auto add = [&](std::uint32_t peer, bool sends, std::size_t offset, std::size_t count) {
    if (count != 0) messages.push_back(message_of(call, peer, sends, offset, count));
  };
  const bool is_root = rank_ == call.root;
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    const auto sent = [&] { return offset_of(peer, call.count, call.send_offsets); };
    const auto received = [&] { return offset_of(peer, call.count, call.receive_offsets); };
    if (call.collective == Collective::gather) {
      if (peer == call.root) add(peer, true, 0, call.receive_counts[rank_]);
      if (is_root) add(peer, false, received(), call.receive_counts[peer]);
    } else if (call.collective == Collective::scatter) {
      if (is_root) add(peer, true, sent(), call.send_counts[peer]);
      if (peer == call.root) add(peer, false, 0, call.send_counts[rank_]);
    } else {
      add(peer, true, sent(), call.send_counts[peer]);
      add(peer, false, received(), call.receive_counts[peer]);
    }
  }
  return launches_of_messages(messages);
}

/// Takes out long messages. The nth send to itself goes to the nth receive, of equal length (check_own_messages).
std::vector<NetworkLaunch::Copy> NetworkCalls::extract_self_copies(std::vector<Call>& messages) const {
  std::vector<NetworkLaunch::Copy> copies;
  std::vector<const Call*> sends, receives;
  const auto is_extracted = [this](const Call& message) {
    return message.peer == rank_ && message.count * size_bytes(message.type) >= least_copy_bytes;
  };
  for (const Call& message : messages)
    if (is_extracted(message)) (message.sends ? sends : receives).push_back(&message);
  for (std::size_t i = 0; i < sends.size(); ++i)
    add_copy(sends[i]->send, receives.at(i)->receive, sends[i]->count * size_bytes(sends[i]->type), copies);
  std::erase_if(messages, is_extracted);
  return copies;
}

std::vector<NetworkLaunch> NetworkCalls::launches_of_messages(std::span<const Call> given) const {
  std::vector<Call> messages(given.begin(), given.end());
  std::vector<NetworkLaunch::Copy> copies = extract_self_copies(messages);
  struct Place {
    std::uint32_t apart;  ///< cyclic distance between the two ranks, whichever is the sender
    std::uint32_t nth;    ///< number among the messages from one to the other
    const Call* message;
  };
  std::vector<Place> places;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> found;
  for (const Call& message : messages) {
    if (message.count == 0) continue;
    const std::uint32_t after = (message.peer + ranks_ - rank_) % ranks_;
    places.push_back({std::min(after, ranks_ - after), found[{message.peer, message.sends}]++, &message});
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return std::tie(a.apart, a.nth) < std::tie(b.apart, b.nth); });
  Launches launches;
  for (auto next = places.begin(); next != places.end();) {
    // Messages with the same distance and number wait only for such messages of other ranks, and a receive may
    // overwrite a send's buffer. So they go together.
    std::vector<Flow> flows;
    for (const auto [apart, nth, first] = *next; next != places.end() && next->apart == apart && next->nth == nth;
         ++next)
      add_stripes(*next->message, flows);
    if (launches.empty() || launches.back().flows.size() + flows.size() > kernels::max_flows) {
      launches.emplace_back();
      launches.back().call.collective = Collective::send_recv;
      launches.back().call.among = Among::all;
    }
    launches.back().flows.insert(launches.back().flows.end(), flows.begin(), flows.end());
  }
  if (launches.empty() && !copies.empty()) launches.emplace_back().call.collective = Collective::send_recv;
  if (!launches.empty()) launches.front().copies = std::move(copies);
  for (NetworkLaunch& launch : launches) {
    share_slots(launch.flows);
    order_in_place_flows(launch.flows);
    launch.call.is_awaited = comes_anything(launch.flows);
  }
  return launches;
}

/// For exchanges in place: lets a receive that overwrites a send wait for it.
void NetworkCalls::order_in_place_flows(std::vector<Flow>& flows) {
  for (Flow& each : flows) {
    if (each.sends) continue;
    const auto is_there = [&](const Flow& sent) {
      return sent.sends && sent.data == each.data && sent.bytes == each.bytes;
    };
    const auto sent = std::find_if(flows.begin(), flows.end(), is_there);
    if (sent != flows.end()) each.after = static_cast<std::uint8_t>(sent - flows.begin() + 1);
  }
}

/// The first stripe's lane depends only on the pair of ranks, so that there both ends can compare the lengths.
void NetworkCalls::add_stripes(const Call& message, std::vector<Flow>& flows) const {
  const Flow whole = flow(message.sends ? message.send : message.receive, message.count, message, message.sends);
  const std::size_t stripes = std::clamp<std::size_t>(whole.bytes / least_stripe_bytes, 1, most_stripes_);
  const std::size_t each = round_up((whole.bytes + stripes - 1) / stripes, piece_bytes_);
  std::uint32_t lane = rank_ + message.peer;
  for (std::size_t first = 0; first < whole.bytes; first += each) {
    Flow& stripe = flows.emplace_back(whole);
    stripe.data += first;
    stripe.bytes = std::min(each, whole.bytes - first);
    stripe.whole_bytes = whole.bytes;
    stripe.peer = static_cast<std::uint16_t>(message.peer);
    stripe.lane = static_cast<std::uint8_t>(lane++ % lanes_);
  }
}

void NetworkCalls::share_slots(std::vector<Flow>& flows) const {
  if (flows.empty()) return;
  const std::size_t most = kernels::network_slots_bytes(slot_bytes_) / (flows.size() * piece_bytes_);
  const auto depth = static_cast<std::uint8_t>(std::min<std::size_t>(most, kernels::network_depth));
  for (std::size_t i = 0; i < flows.size(); ++i) {
    flows[i].piece_bytes = piece_bytes_;
    flows[i].depth = depth;
    flows[i].slot_offset = static_cast<std::uint32_t>(i * depth * piece_bytes_);
  }
}

}  // namespace strait
