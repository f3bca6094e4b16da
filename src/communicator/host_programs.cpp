#include "communicator/host_programs.hpp"

#include <string>
#include <utility>

#include "base/hash.hpp"
#include "base/log.hpp"

namespace strait {
namespace {

/// Most programs that are kept: they hold scratch memory, which a user that never repeats a size should not accumulate.
constexpr std::size_t max_programs = 1024;

/// Returns the plan for messages whose lengths are known to their two ranks only: the first that there is.
Result<RankPlan> plan_for_messages(const PlanRequest& request, std::uint32_t rank) {
  for (const Algorithm& algorithm : catalogue())
    if (algorithm.supports(request)) return algorithm.build(request, rank);
  return fail(Code::internal_error, "no algorithm for " + std::string(name(request.collective)));
}

}  // namespace

std::size_t HostPrograms::KeyHash::operator()(const Key& key) const {
  return mix(mix(key.signature.what) ^ key.signature.count ^ std::uint64_t{key.in_place} << 63);
}

SelectQuery HostPrograms::query_for(const Call& call) const {
  return {call.collective, call.type,
          call.op,         transport_.has_peer_memory() && (transport_.sees_any_memory() || call.registered),
          call.root,       call.collective == Collective::barrier ? 1 : call.count,
          call.algorithm};
}

Result<HostProgram*> HostPrograms::find(const Call& call, std::uint64_t sequence) {
  if (call.collective == Collective::all_to_all_v) {
    STRAIT_ASSIGN(of_messages_, make_for_blocks(call, sequence));
    return of_messages_.get();
  }
  const Key key{message_signature(call, call.count), is_in_place(call, setup_.rank)};  // by a round's own count
  if (last_ != nullptr && key == last_key_) return last_;
  auto found = kept_.find(key);
  if (found == kept_.end()) {
    STRAIT_ASSIGN(auto program, make(call));
    if (kept_.size() >= max_programs) kept_.clear();
    found = kept_.emplace(key, std::move(program)).first;
  }
  last_key_ = key;
  last_ = found->second.get();
  return last_;
}

/// Returns whether outputs are written around the cache, which pays once the buffers of all ranks no longer fit into it
/// (docs/performance.md).
bool HostPrograms::writes_around_cache(const Call& call) const {
  const BufferSizes sizes = buffer_sizes(call, call.root, setup_.ranks);
  return (sizes.send_bytes + sizes.receive_bytes) * setup_.ranks > setup_.cache_bytes;
}

Result<std::unique_ptr<HostProgram>> HostPrograms::make(const Call& call) {
  const SelectQuery query = query_for(call);
  STRAIT_ASSIGN(const Choice* found, selector_.choose(query));
  const Choice& choice = *found;
  log_trace(static_cast<int>(setup_.rank), describe(signature(call)) + ": " + choice.why);
  HostProgram::Options options;
  options.arithmetic = {call.type, call.op};
  options.count = query.count;
  options.slice_bytes = choice.slice_bytes;
  options.stream_outputs = writes_around_cache(call);
  options.simd = setup_.simd;
  options.averaged = setup_.averaged;
  PlanRequest chosen = selector_.request(query);
  chosen.in_place = is_in_place(call, setup_.rank);  // may differ between ranks: the choice must not depend on it
  chosen.lanes = choice.lanes;
  return HostProgram::bind(find_algorithm(choice.algorithm)->build(chosen, setup_.rank), options, transport_);
}

Result<std::unique_ptr<HostProgram>> HostPrograms::make_for_blocks(const Call& call, std::uint64_t sequence) const {
  HostProgram::Options options;
  options.arithmetic.type = call.type;
  options.slice_bytes = transport_.slot_bytes();
  options.simd = setup_.simd;
  const auto of_message = [&](std::size_t count) { return numbered(message_signature(call, count), sequence); };
  for (std::uint32_t peer = 0; peer < setup_.ranks; ++peer) {
    options.input_messages.push_back(
        {{call.send_offsets[peer], call.send_counts[peer]}, of_message(call.send_counts[peer])});
    options.output_messages.push_back(
        {{call.receive_offsets[peer], call.receive_counts[peer]}, of_message(call.receive_counts[peer])});
  }
  STRAIT_ASSIGN(const RankPlan plan, plan_for_messages(selector_.request(query_for(call)), setup_.rank));
  return HostProgram::bind(plan, options, transport_);
}

Result<HostProgram*> HostPrograms::make_for_messages(std::span<const Call> messages, MessagePieces* pieces) {
  PlanRequest request;
  request.collective = Collective::send_recv;
  request.ranks = setup_.ranks;
  HostProgram::Options options;
  options.arithmetic.type = DataType::uint8;
  options.slice_bytes = pieces == nullptr ? transport_.slot_bytes() : pieces->slice_bytes();
  options.simd = setup_.simd;
  for (const Call& message : messages) {
    request.point_to_point.push_back({message.sends, message.peer});
    const auto buffer = reinterpret_cast<std::uintptr_t>(message.sends ? message.send : message.receive);
    const auto number = static_cast<std::uintptr_t>(&message - messages.data());
    const Extent place{pieces == nullptr ? buffer : number, message.count * size_bytes(message.type)};
    (message.sends ? options.input_messages : options.output_messages).push_back({place, signature(message)});
  }
  options.pieces = pieces;
  STRAIT_ASSIGN(const RankPlan plan, plan_for_messages(request, setup_.rank));
  STRAIT_ASSIGN(of_messages_, HostProgram::bind(plan, options, transport_));
  return of_messages_.get();
}

}  // namespace strait
