// What GPU ranks enqueue on streams.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "device/cuda_rank.hpp"
#include "kernels/kernels.hpp"
#include "kernels/piped.hpp"
#include "kernels/wire_format.hpp"

namespace strait {

using cuda::check;

namespace {

/// Returns the kernel of a launch that is not piped.
const void* kernel_of(const DeviceLaunch& what, const Call& call) {
  using kernels::EncodedKernel;
  if (std::holds_alternative<kernels::StraightExchange>(what.argument)) return kernels::straight_copy_kernel();
  if (std::holds_alternative<kernels::OfferedMessages>(what.argument)) return kernels::offered_messages_kernel();
  if (what.encoding != WireFormat::off) {
    const bool two_hops = std::holds_alternative<kernels::EncodedTwoHop>(what.argument);
    const auto kernel = two_hops ? EncodedKernel::two_hop_sum : what.reduces ? EncodedKernel::sum : EncodedKernel::copy;
    return kernels::encoded_kernel(kernel, what.encoding, call.type);
  }
  const bool one_hop = std::holds_alternative<kernels::Exchange>(what.argument);
  if (what.prompt)
    return what.reduces ? kernels::prompt_reduce_kernel(what.protocol, call.type)
                        : kernels::prompt_copy_kernel(what.protocol);
  if (what.reduces)
    return one_hop ? kernels::exchange_reduce_kernel(what.protocol, call.type, call.op)
                   : kernels::two_hop_reduce_kernel(what.protocol, call.type, call.op);
  return one_hop ? kernels::exchange_copy_kernel(what.protocol, what.independent)
                 : kernels::two_hop_copy_kernel(what.protocol);
}

}  // namespace

Status CudaRank::launch(DeviceLaunch& what, const Call& call, LaunchOrder::Line line) {
  std::visit(
      [&](auto& argument) {
        argument.ring.finished = order_->finished();
        argument.ring.call = std::exchange(mark_, 0);
        argument.ring.is_message = call.collective == Collective::send_recv;
      },
      what.argument);
  const void* argument = std::visit([](const auto& each) { return static_cast<const void*>(&each); }, what.argument);
  cuda::LaunchShape shape{what.blocks, what.threads, overlaps_launches_};
  const void* kernel = nullptr;
  if (what.piped) {
    const bool one_hop = std::holds_alternative<kernels::Exchange>(what.argument);
    const std::uint32_t averaged = std::visit([](const auto& each) { return each.ring.averaged; }, what.argument);
    const kernels::KernelType kind = kernels::piped_kernel_type(call.type, call.op, averaged);
    const kernels::PipedKernel piped =
        what.reduces ? kernels::piped_reduce_kernel(one_hop, kind) : kernels::piped_copy_kernel(one_hop);
    kernel = piped.kernel;
    shape.memory_bytes = piped.memory_bytes;
    shape.cluster_blocks = kernels::cluster_of(what.blocks, most_clustered_blocks_);
  } else {
    kernel = kernel_of(what, call);
  }
  STRAIT_TRY(launch_in_order(line, kernel, argument, shape, call.stream));
  order_->launched(what.blocks);
  ++launches_;
  return {};
}

Status CudaRank::launch_in_order(LaunchOrder::Line line, const void* kernel, const void* argument,
                                 cuda::LaunchShape shape, void* stream) {
  if (!starts_ || order_->is_captured()) return launcher_->launch(kernel, argument, shape, stream);
  // If launches overlap, blocks of the next one wait on the GPU for the end of this one.
  return starts_->launch(line, shape.blocks * (shape.overlaps ? 2 : 1), stream, [&](void* started) {
    shape.started = started;
    return launcher_->launch(kernel, argument, shape, stream);
  });
}

Result<CallOrder::Tail> CudaRank::launch_all(std::vector<DeviceLaunch> launches, const Call& call) {
  for (DeviceLaunch& each : launches) STRAIT_TRY(launch(each, call));
  return launches.empty() ? Tail::other : Tail::counted_launch;
}

Status CudaRank::launch(AggregateLaunch& what) {
  what.argument.ring.finished = order_->finished();
  const void* const kernel = what.reduces ? kernels::aggregate_reduce_kernel(what.protocol, what.type)
                                          : kernels::aggregate_copy_kernel(what.protocol);
  STRAIT_TRY(launch_in_order(LaunchOrder::Line::main, kernel, &what.argument,
                             {what.blocks, what.threads, overlaps_launches_}, what.stream));
  order_->launched(what.blocks);
  return {};
}

/// Launched without overlap: these kernels fill a whole GPU. If they began early, they would keep kernels of other
/// communicators from running while they wait for an exchange, which may in turn wait for those kernels.
Status CudaRank::launch(const WireLaunch& what, void* stream) {
  return launcher_->launch(kernels::wire_kernel(what.kernel, what.format, what.type), &what.pass,
                           {what.blocks, kernels::wire_threads, false}, stream);
}

Status CudaRank::enqueue(const Call& call) {
  // Even a call that has nothing to do comes after the last one, and before the next.
  STRAIT_TRY(order_->begin(call.stream));
  begin_marking(call);
  Result<Tail> tail = carry_out(call);
  // Every GPU counts each collective, even one in which it has no part.
  if (tail && mark_ != 0) tail = launch_all({calls_.launch_of_nothing()}, call);
  return end(call, tail);
}

/// If a call has failed half-way, its last work is not a counted launch (Tail::other): what was enqueued before the
/// failure must still be awaited before memory is freed.
Status CudaRank::end(const Call& call, const Result<Tail>& tail) {
  if (tail) end_marking(call, *tail);
  const Status ended = order_->end(call.stream, tail.value_or(Tail::other));
  return tail ? ended : Status(tl::unexpected(tail.error()));
}

/// The same on all ranks. If outputs are not registered, an all-to-all may be in place on some ranks and not on others.
/// So all ranks decide as if it were out of place, for which more ways are possible.
std::size_t CudaRank::aggregated_calls(std::span<const Call> group) const {
  if (!request_.options.aggregates) return 1;
  const auto together = group.first(strait::aggregated_calls(calls_, group));
  const auto goes_other_way = [this](Call call) {
    if (call.collective == Collective::all_to_all) call.send = nullptr;
    return goes_by_islands(call) || is_encoded(call, request_.ranks) || reducers_.carries(call) ||
           copies_.carries(call) || copies_.carries_in_place(call) || may_go_straight(call);
  };
  const auto end = std::find_if(together.begin(), together.end(), goes_other_way);
  return std::max<std::size_t>(static_cast<std::size_t>(end - together.begin()), 1);
}

Status CudaRank::enqueue_aggregate(std::span<const Call> calls) {
  bool is_captured = false;
  for (AggregateLaunch& each : launches_of_aggregate(calls_, calls)) {
    STRAIT_TRY(order_->begin(each.stream));
    STRAIT_TRY(launch(each));
    STRAIT_TRY(order_->end(each.stream, Tail::counted_launch));
    is_captured |= order_->is_captured();
  }
  for (const Call& call : calls) started_.note_call({.signature = signature(call), .is_captured = is_captured});
  return {};
}

void CudaRank::begin_marking(const Call& call) {
  mark_ = mark_of(signature(call));
  launches_ = 0;
}

void CudaRank::end_marking(const Call& call, Tail tail) {
  mark_ = 0;
  if (launches_ == 0) return;
  started_.note_call({.signature = signature(call),
                      .is_captured = order_->is_captured(),
                      .has_parts = launches_ > 1 || tail == Tail::other});
}

/// Exchanges go by copy engines if these are wanted, because the user has asked for them. For data that goes to all
/// ranks islands save more: each byte crosses once per island, and not once per rank.
bool CudaRank::goes_by_islands(const Call& call) const {
  const bool is_exchange = call.collective == Collective::all_to_all || call.collective == Collective::gather ||
                           call.collective == Collective::scatter;
  return islands_.carries(call) && !(is_exchange && copies_.carries(call));
}

Result<CallOrder::Tail> CudaRank::carry_out(const Call& call) {
  if (call.by_slots || has_own_layout(call)) return enqueue_over(calls_, call);
  if (goes_by_islands(call)) return enqueue_in_islands(call);
  if (!is_encoded(call, request_.ranks)) return enqueue_exact(call);
  if (reducers_.carries(call)) return enqueue_to_reducers(quantized_, call);
  if (arenas_.islands().empty() && encodes_on_the_way(calls_, call))
    return launch_all(calls_.encoded_launches_of(call), call);
  return enqueue_encoded(quantized_.steps_of(call), call.stream,
                         [this](const Call& exchange) { return carry_out(exchange); });
}

template <class Exchange>
Result<CallOrder::Tail> CudaRank::enqueue_encoded(const std::vector<QuantizedStep>& steps, void* stream,
                                                  Exchange&& exchange) {
  for (const QuantizedStep& step : steps) {
    if (const auto* bytes = std::get_if<Call>(&step))
      STRAIT_TRY(exchange(*bytes));
    else
      STRAIT_TRY(launch(std::get<WireLaunch>(step), stream));
  }
  return Tail::other;
}

Result<std::optional<DeviceRegistrations::Place>> CudaRank::place_of_output(const Call& call) const {
  return registrations_.find(call.receive, buffer_sizes(call, request_.rank, request_.ranks).receive_bytes);
}

/// The same on all ranks.
bool CudaRank::may_go_straight(const Call& call) const {
  return registrations_.were_any() && !copies_.carries(call) && calls_.writes_directly(call);
}

/// What copy engines carry takes no SM, so there is no kernel that could count it: such a call is counted on no rank
/// (mark_ = 0).
Result<CallOrder::Tail> CudaRank::enqueue_exact(const Call& call) {
  if (copies_.carries_in_place(call)) {
    STRAIT_ASSIGN(const auto place, place_of_output(call));
    if (place) {
      mark_ = 0;
      return copies_.enqueue_in_place(call, *place).map([] { return Tail::other; });
    }
  }
  if (may_go_straight(call)) {
    STRAIT_ASSIGN(const auto place, place_of_output(call));
    if (place)
      return launch_all({calls_.straight_launch_of(call, place->addresses,
                                                   static_cast<std::uint16_t>(DeviceCopies::hash_at(call, *place)))},
                        call);
  }
  if (reducers_.carries(call)) return enqueue_to_reducers(quantized_, call);
  if (copies_.carries(call)) {
    if (!order_->is_captured() || copies_.can_be_captured()) {
      mark_ = 0;
      return copies_.enqueue(call).map([] { return Tail::other; });
    }
  }
  return enqueue_over(calls_, call);
}

Result<CallOrder::Tail> CudaRank::enqueue_in_islands(const Call& call) {
  const auto across = [this](const Call& part) -> Result<Tail> {
    if (reducers_.carries(part)) return enqueue_to_reducers(across_quantized_, part);
    if (part.wire == WireFormat::off) return enqueue_over(across_calls_, part);
    if (encodes_on_the_way(across_calls_, part)) return launch_all(across_calls_.encoded_launches_of(part), part);
    return enqueue_encoded(across_quantized_.steps_of(part), part.stream,
                           [this](const Call& exchange) { return enqueue_over(across_calls_, exchange); });
  };
  Tail tail = Tail::other;
  for (const IslandStep& step : islands_.steps_of(call)) {
    const DeviceCalls& calls = step.among == IslandStep::Among::island ? island_calls_ : calls_;
    STRAIT_ASSIGN(tail, step.among == IslandStep::Among::across ? across(step.call) : enqueue_over(calls, step.call));
  }
  return tail;
}

Result<CallOrder::Tail> CudaRank::enqueue_to_reducers(const DeviceQuantized& quantized, const Call& call) {
  const auto take = [&](const Call& sum) { return launch_all({reducers_.take(sum, order_->is_captured())}, sum); };
  return call.wire == WireFormat::off ? take(call)
                                      : enqueue_encoded(quantized.steps_by_reducers(call), call.stream, take);
}

Result<CallOrder::Tail> CudaRank::enqueue_over(const DeviceCalls& calls, const Call& call) {
  Status offered;
  std::vector<DeviceLaunch> launches = calls.launches_of(call, offers_into(offered));
  STRAIT_TRY(std::move(offered));
  keep_for_graphs(launches);
  const bool caller_copies_own = calls.caller_copies_own(call, launches);
  const auto launch = [&] { return launch_all(std::move(launches), call); };
  if (!caller_copies_own) return launch();
  const cuda::DeviceGuard guard(request_.device);  // a null stream means this device's default stream
  const auto copy_own = [&](void* stream) {
    return check(cudaMemcpyAsync(call.receive, call.send, call.count * size_bytes(call.type), cudaMemcpyDefault,
                                 static_cast<cudaStream_t>(stream)),
                 "cannot copy the root's own part of a broadcast");
  };
  if (!side_) {
    STRAIT_TRY(launch());
    STRAIT_TRY(copy_own(call.stream));
    return Tail::other;
  }
  STRAIT_ASSIGN(const SideStreams::Stream beside, side_->fork(call.stream));
  Status given = copy_own(beside);
  if (given) given = launch().map([](Tail) {});
  const Status joined = side_->join(call.stream);  // even after a failure: a capture must end with all forks joined
  STRAIT_TRY(std::move(given));
  STRAIT_TRY(joined);
  return Tail::other;
}

MessageOffers CudaRank::offers_into(Status& offered) const {
  if (!registrations_.were_any()) return {};
  const auto offer = [this, &offered](const void* data, std::size_t bytes) {
    const auto number = registrations_.offer(data, bytes);
    if (!number) offered = tl::unexpected(number.error());
    return number.value_or(0);
  };
  return {offer, &registrations_.at_peers()};
}

void CudaRank::keep_for_graphs(std::span<const DeviceLaunch> launches) {
  const auto has_places = [](const DeviceLaunch& launch) {
    return std::holds_alternative<kernels::OfferedMessages>(launch.argument);
  };
  if (order_->is_captured() && std::any_of(launches.begin(), launches.end(), has_places))
    registrations_.stay_for_graphs();
}

Result<CallOrder::Tail> CudaRank::carry_messages(std::span<const Call> calls) {
  if (island_messages_) {
    Call call = calls.front();
    return island_messages_->enqueue(calls, [&](DeviceLaunch& each, void* stream) {
      call.stream = stream;
      return launch(each, call, stream == calls.front().stream ? LaunchOrder::Line::main : LaunchOrder::Line::side);
    });
  }
  std::vector<Call> by_kernels, by_engines;
  for (const Call& call : calls) (copies_.carries_message(call) ? by_engines : by_kernels).push_back(call);
  Status offered;
  std::vector<DeviceLaunch> launches = calls_.launches_of(by_kernels, offers_into(offered));
  STRAIT_TRY(std::move(offered));
  keep_for_graphs(launches);
  const auto launch_others = [&] { return launch_all(std::move(launches), calls.front()); };
  if (by_engines.empty()) return launch_others();
  const auto beside = [&] { return launch_others().map([](Tail) {}); };
  return copies_.enqueue_messages(by_engines, calls.front().stream, beside).map([] { return Tail::other; });
}

Status CudaRank::enqueue_messages(std::span<const Call> calls) {
  void* const stream = calls.front().stream;
  // All messages run on the first call's stream, after earlier work on the other streams, and before later work there.
  for (const Call& call : calls)
    if (call.stream != stream) STRAIT_TRY(order_->order(call.stream, stream));
  STRAIT_TRY(order_->begin(stream));
  begin_marking(calls.front());
  Result<Tail> tail = carry_messages(calls);
  for (const Call& call : calls) {
    if (!tail || call.stream == stream) continue;
    if (Status joined = order_->order(stream, call.stream); !joined) tail = tl::unexpected(std::move(joined).error());
  }
  return end(calls.front(), tail);
}

}  // namespace strait
