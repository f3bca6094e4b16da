#include "launches/device_quantized.hpp"

#include <algorithm>
#include <cstring>

#include "executor/cpu_reducers/reducer_memory.hpp"

namespace strait {
namespace {

using kernels::WireKernel;
using kernels::WirePass;

/// Runs consist of whole granules, so that the exchange moves 16 bytes at a time.
constexpr std::size_t run_grain_bytes = 16;
/// Limit of the blocks of one launch; more gain nothing, because the exchange takes most of the time.
constexpr std::uint32_t most_blocks = 1024;

constexpr std::size_t round_up(std::size_t value, std::size_t grain) { return (value + grain - 1) / grain * grain; }

std::size_t run_bytes(WireFormat format, std::size_t blocks) {
  return round_up(blocks * wire::block_bytes(format), run_grain_bytes);
}

Call exchange(const Call& part_of, Collective collective, const std::byte* send, std::byte* receive,
              std::size_t bytes) {
  Call call;
  call.collective = collective;
  call.type = DataType::uint8;
  call.count = bytes;
  call.send = send;
  call.receive = receive;
  call.stream = part_of.stream;
  // These exchanges have no root. In its place in the signature, ranks compare the call for which the bytes are
  // exchanged.
  call.root = hash_of(signature(part_of));
  call.max_sms = part_of.max_sms;
  return call;
}

}  // namespace

/// A part of a call for which scratch has room.
struct DeviceQuantized::Turn {
  std::size_t first = 0;     ///< first element, in the whole buffer (all-reduce) or in each rank's block
  std::size_t elements = 0;  ///< number of elements, counted in the same way
  std::size_t run_elements = 0;
  std::uint32_t run_blocks = 0;
  std::size_t run_bytes = 0;
};

DeviceQuantized::DeviceQuantized(std::uint32_t rank, std::uint32_t ranks, std::uint32_t averaged, std::byte* scratch,
                                 std::size_t size_bytes, std::uint32_t max_sms)
    : rank_(rank),
      ranks_(ranks),
      averaged_(averaged),
      sent_(scratch),
      received_(scratch + size_bytes / 2 / run_grain_bytes * run_grain_bytes),
      run_limit_bytes_(size_bytes / 2 / ranks / run_grain_bytes * run_grain_bytes),
      scratch_bytes_(size_bytes),
      max_blocks_(max_sms == 0 ? most_blocks : std::min(blocks_of(max_sms, true), most_blocks)) {}

std::vector<QuantizedStep> DeviceQuantized::steps_of(const Call& call) const {
  std::vector<QuantizedStep> steps;
  const std::size_t in_a_turn = turn_elements(call);
  for (std::size_t first = 0; first < call.count; first += in_a_turn) {
    const Turn turn = turn_of(call, first);
    std::byte* const own = sent_ + rank_ * turn.run_bytes;
    steps.push_back(encode(call, turn, call.collective == Collective::all_gather ? 1 : ranks_));
    if (call.collective != Collective::all_gather)
      steps.push_back(exchange(call, Collective::all_to_all, sent_, received_, turn.run_bytes));
    if (is_reduction(call.collective)) steps.push_back(sum_own(call, turn));
    if (call.collective == Collective::all_reduce || call.collective == Collective::all_gather)
      steps.push_back(exchange(call, Collective::all_gather, own, sent_, turn.run_bytes));
    if (call.collective != Collective::reduce_scatter)
      steps.push_back(decode(call, turn, call.collective == Collective::all_to_all ? received_ : sent_, ranks_));
  }
  return steps;
}

std::vector<QuantizedStep> DeviceQuantized::steps_by_reducers(const Call& call) const {
  using Memory = cpu_reducers::ReducerMemory;
  Turn turn;
  turn.run_blocks = Memory::run_blocks;
  turn.run_elements = Memory::run_blocks * wire::block_elements;
  turn.run_bytes = Memory::run_bytes(call.wire);
  const std::size_t in_a_turn = scratch_bytes_ / turn.run_bytes * turn.run_elements;
  std::vector<QuantizedStep> steps;
  for (turn.first = 0; turn.first < call.count; turn.first += in_a_turn) {
    turn.elements = std::min(in_a_turn, call.count - turn.first);
    const std::size_t runs = (turn.elements + turn.run_elements - 1) / turn.run_elements;
    Call sum = exchange(call, Collective::all_reduce, sent_, sent_, runs * turn.run_bytes);
    sum.op = call.op == ReduceOp::avg ? ReduceOp::avg : ReduceOp::sum;
    sum.wire = call.wire;
    steps.push_back(encode(call, turn, static_cast<std::uint32_t>(runs)));
    steps.push_back(sum);
    steps.push_back(decode(call, turn, sent_, static_cast<std::uint32_t>(runs)));
  }
  return steps;
}

/// A turn consists of whole blocks, so that blocks are the same as those of the whole call.
std::size_t DeviceQuantized::turn_elements(const Call& call) const {
  const std::size_t run_blocks = run_limit_bytes_ / wire::block_bytes(call.wire);
  return run_blocks * wire::block_elements * (call.collective == Collective::all_reduce ? ranks_ : 1);
}

DeviceQuantized::Turn DeviceQuantized::turn_of(const Call& call, std::size_t first) const {
  Turn turn;
  turn.first = first;
  turn.elements = std::min(turn_elements(call), call.count - first);
  std::size_t blocks = wire::blocks_of(turn.elements);
  turn.run_elements = turn.elements;
  if (call.collective == Collective::all_reduce) {
    blocks = (blocks + ranks_ - 1) / ranks_;
    turn.run_elements = blocks * wire::block_elements;
  }
  turn.run_blocks = static_cast<std::uint32_t>(blocks);
  turn.run_bytes = run_bytes(call.wire, blocks);
  return turn;
}

/// Returns the elements of a turn in a user buffer. The slices of an all-reduce are contiguous; other runs lie in the
/// ranks' blocks, `call.count` elements apart.
WirePass DeviceQuantized::user_runs(const Call& call, const Turn& turn, const void* buffer, std::uint32_t runs) const {
  WirePass pass{};
  pass.elements = static_cast<std::byte*>(const_cast<void*>(buffer)) + turn.first * size_bytes(call.type);
  pass.run_bytes = turn.run_bytes;
  pass.run_blocks = turn.run_blocks;
  pass.run_elements = turn.run_elements;
  pass.runs = runs;
  pass.sources = 1;
  const bool slices = call.collective == Collective::all_reduce;
  pass.stride = slices ? turn.run_elements : call.count;
  pass.total_elements = slices ? turn.elements : (runs - 1) * pass.stride + turn.elements;
  return pass;
}

QuantizedStep DeviceQuantized::encode(const Call& call, const Turn& turn, std::uint32_t runs) const {
  WirePass pass = user_runs(call, turn, call.send, runs);
  pass.encoded = call.collective == Collective::all_gather ? sent_ + rank_ * turn.run_bytes : sent_;
  pass.residual = call.residual == nullptr ? nullptr : call.residual + turn.first;
  pass.premultiplies = is_reduction(call.collective) && call.op == ReduceOp::premul_sum;
  pass.premul_scalar = call.premul_scalar;
  return launch(WireKernel::encode, call, pass);
}

/// Sums this rank's slice of what all ranks sent, into one encoded run (all-reduce) or into elements (reduce-scatter).
QuantizedStep DeviceQuantized::sum_own(const Call& call, const Turn& turn) const {
  WirePass pass = user_runs(call, turn, call.receive, 1);
  pass.encoded = received_;
  pass.sources = ranks_;
  pass.averaged = call.op == ReduceOp::avg ? averaged_ : 0;
  if (call.collective == Collective::reduce_scatter) return launch(WireKernel::decode, call, pass);
  const std::size_t before = std::min(turn.elements, rank_ * turn.run_elements);
  pass.elements = nullptr;
  pass.recoded = sent_ + rank_ * turn.run_bytes;  // the run's former contents have been sent by now
  pass.total_elements = std::min(turn.elements - before, turn.run_elements);
  return launch(WireKernel::recode, call, pass);
}

QuantizedStep DeviceQuantized::decode(const Call& call, const Turn& turn, std::byte* encoded,
                                      std::uint32_t runs) const {
  WirePass pass = user_runs(call, turn, call.receive, runs);
  pass.encoded = encoded;
  return launch(WireKernel::decode, call, pass);
}

QuantizedStep DeviceQuantized::launch(WireKernel kernel, const Call& call, const WirePass& pass) const {
  constexpr std::size_t at_once = kernels::wire_threads / kernels::wire_lanes;
  const std::size_t blocks = std::size_t{pass.runs} * pass.run_blocks;
  const std::size_t wanted = (blocks + at_once - 1) / at_once;
  const std::uint32_t most = call.max_sms == 0 ? max_blocks_ : std::min(blocks_of(call.max_sms, true), most_blocks);
  return WireLaunch{kernel, call.wire, call.type, pass,
                    static_cast<std::uint32_t>(std::min<std::size_t>(wanted, most))};
}

}  // namespace strait
