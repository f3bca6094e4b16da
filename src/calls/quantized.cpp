#include "calls/quantized.hpp"

#include <algorithm>
#include <span>

namespace strait {
namespace {

/// Sums are made and used in pieces that stay in the first-level cache.
constexpr std::size_t piece_blocks = 32;
constexpr std::size_t piece_elements = piece_blocks * wire::block_elements;

std::byte* at(const void* buffer, std::size_t element, DataType type) {
  return static_cast<std::byte*>(const_cast<void*>(buffer)) + element * size_bytes(type);
}

}  // namespace

Call QuantizedCall::begin(const Call& call, Simd simd) {
  call_ = call;
  simd_ = simd;
  second_hop_ = false;
  run_blocks_ = wire::blocks_of(call.count);
  if (call.collective == Collective::all_reduce) run_blocks_ = (run_blocks_ + ranks_ - 1) / ranks_;
  const std::size_t memory_bytes = ranks_ * encoded_bytes(call.wire, run_blocks_);
  const bool gathers = call.collective == Collective::all_gather;
  if (sent_.size() < memory_bytes) sent_.resize(memory_bytes);
  if (!gathers && received_.size() < memory_bytes) received_.resize(memory_bytes);
  sums_.resize(piece_elements);
  in_progress_ = true;
  if (gathers) {
    encode(run_at(sent_, rank_), call.type, call.send, call.count, nullptr, simd_);
    return exchange(Collective::all_gather, run_at(sent_, rank_).memory, sent_.data());
  }
  for (std::uint32_t to = 0; to < ranks_; ++to) {
    const Slice part = slice(to);
    float* const residual = call.residual == nullptr ? nullptr : call.residual + part.first;
    encode(run_at(sent_, to), call.type, at(call.send, part.first, call.type), part.count, residual, simd_);
  }
  return exchange(Collective::all_to_all, sent_.data(), received_.data());
}

std::optional<Call> QuantizedCall::next() {
  const bool sums_first = call_.collective == Collective::all_reduce && !second_hop_;
  if (sums_first) {
    second_hop_ = true;
    EncodedRun own = run_at(sent_, rank_);  // its memory is free: all inputs have been sent
    sum_own_slice([&](std::size_t first, std::size_t count) {
      own.first_block = first / wire::block_elements;
      encode(own, DataType::float32, sums_.data(), count, nullptr, simd_);
    });
    return exchange(Collective::all_gather, run_at(sent_, rank_).memory, sent_.data());
  }
  in_progress_ = false;
  if (call_.collective == Collective::reduce_scatter) {
    const ReduceSource sums{.pointer = sums_.data(), .wide = true};
    sum_own_slice([&](std::size_t first, std::size_t count) {
      const ReduceDestination result{.pointer = at(call_.receive, first, call_.type)};
      reduce({.type = call_.type, .sources = {&sums, 1}, .destinations = {&result, 1}, .count = count}, simd_);
    });
  } else {
    decode_outputs(call_.collective == Collective::all_to_all ? received_ : sent_);
  }
  return std::nullopt;
}

EncodedRun QuantizedCall::run_at(std::vector<std::byte>& memory, std::uint32_t rank) {
  return {call_.wire, memory.data() + rank * encoded_bytes(call_.wire, run_blocks_), run_blocks_};
}

QuantizedCall::Slice QuantizedCall::slice(std::uint32_t rank) const {
  if (call_.collective != Collective::all_reduce) return {rank * call_.count, call_.count};
  const std::size_t length = run_blocks_ * wire::block_elements;
  const std::size_t first = std::min(call_.count, rank * length);
  return {first, std::min(call_.count - first, length)};
}

Call QuantizedCall::exchange(Collective collective, const void* send, void* receive) const {
  Call bytes;
  bytes.collective = collective;
  bytes.type = DataType::uint8;
  bytes.count = encoded_bytes(call_.wire, run_blocks_);
  bytes.send = send;
  bytes.receive = receive;
  return bytes;
}

void QuantizedCall::decode_outputs(std::vector<std::byte>& memory) {
  for (std::uint32_t from = 0; from < ranks_; ++from) {
    const Slice part = slice(from);
    decode(call_.type, at(call_.receive, part.first, call_.type), part.count, run_at(memory, from), simd_);
  }
}

/// Calls use(first element of the slice, count) for each piece of this rank's slice, whose sums lie in sums_.
template <class Use>
void QuantizedCall::sum_own_slice(Use&& use) {
  const std::size_t total = slice(rank_).count;
  for (std::size_t first = 0; first < total; first += piece_elements) {
    const std::size_t count = std::min(piece_elements, total - first);
    for (std::uint32_t from = 0; from < ranks_; ++from) {
      EncodedRun run = run_at(received_, from);
      run.first_block = first / wire::block_elements;
      accumulate(sums_.data(), count, run, from == 0, simd_);
    }
    if (call_.op == ReduceOp::avg) {
      const ReduceSource sums{.pointer = sums_.data()};
      const ReduceDestination average{.pointer = sums_.data()};
      reduce({.type = DataType::float32,
              .op = ReduceOp::avg,
              .sources = {&sums, 1},
              .destinations = {&average, 1},
              .count = count,
              .final = true,
              .ranks = averaged_},
             simd_);
    }
    use(first, count);
  }
}

}  // namespace strait
