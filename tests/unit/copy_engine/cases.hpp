#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "executor/copy_engine/rounds.hpp"
#include "support/random_data.hpp"
#include "support/reference.hpp"

/// Calls for the copy engines, with their buffers and the expected outputs.
namespace strait::testing {

using copy_engine::CopyCall;

inline constexpr Collective collectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                             Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                                             Collective::gather,     Collective::scatter};

/// A call and the inputs of all ranks.
struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t root = 0;
  std::size_t count = 0;
  bool in_place = false;
  bool aligned = false;
  std::vector<Bytes> inputs;

  std::string text() const {
    return std::string(name(collective)) + " " + std::string(name(type)) + " " + std::string(name(op)) + " count " +
           std::to_string(count) + " root " + std::to_string(root) + (in_place ? " in place" : "");
  }
  Bytes expected(std::uint32_t rank) const {
    return reference_output(
        {.collective = collective, .type = type, .op = op, .root = root, .premul_scalars = {}, .inputs = inputs}, rank);
  }
};

inline Case make_case(std::uint64_t seed, std::uint32_t ranks, std::size_t most_bytes) {
  Case c;
  c.collective = collectives[mix(seed) % std::size(collectives)];
  c.type = static_cast<DataType>(mix(seed + 1) % data_type_count);
  c.op = static_cast<ReduceOp>(mix(seed + 2) % reduce_op_count);
  c.root = static_cast<std::uint32_t>(mix(seed + 3) % ranks);
  const std::size_t most = most_bytes / size_bytes(c.type);
  c.count = mix(seed + 4) % 4 == 0 ? 1 + mix(seed + 5) % 40 : 1 + mix(seed + 5) % most;
  c.in_place = mix(seed + 6) % 2 == 0;
  c.aligned = mix(seed + 9) % 2 == 0;
  const bool blocks = c.collective == Collective::reduce_scatter || c.collective == Collective::all_to_all ||
                      c.collective == Collective::scatter;
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    c.inputs.push_back(random_elements(c.type, c.count * (blocks ? ranks : 1), mix(seed + 7) + rank));
  return c;
}

/// A rank's buffers for a call: at unaligned addresses unless `c.aligned`, with guard bytes around the output.
class Buffers {
 public:
  Buffers(const Case& c, std::uint32_t rank, std::uint32_t ranks) : case_(c), rank_(rank), guard_(c.aligned ? 64 : 67) {
    const Bytes& input = c.inputs[rank];
    const std::size_t block_bytes = c.count * size_bytes(c.type);
    const bool gathers = c.collective == Collective::all_gather || c.collective == Collective::gather;
    const std::size_t output_bytes =
        gathers || c.collective == Collective::all_to_all ? ranks * block_bytes : block_bytes;
    const std::size_t own_input = gathers ? rank * block_bytes : 0;
    const std::size_t own_output =
        c.collective == Collective::reduce_scatter || c.collective == Collective::scatter ? rank * block_bytes : 0;
    send_.assign(
        guard_ + (c.in_place ? own_input + std::max(input.size(), output_bytes) + own_output : input.size()) + guard_,
        fill);
    std::byte* const send = send_.data() + guard_ + (c.in_place ? own_input : 0);
    std::copy(input.begin(), input.end(), send);
    receive_.assign(guard_ + output_bytes + guard_, fill);
    output_ = c.in_place ? send_.data() + guard_ + own_output : receive_.data() + guard_;
    call_ = {.collective = c.collective,
             .type = c.type,
             .op = c.op,
             .root = c.root,
             .count = c.count,
             .send = send,
             .receive = output_};
  }
  const CopyCall& call() const { return call_; }
  /// Only for calls that are not in place.
  void wipe_output() { std::fill(receive_.begin(), receive_.end(), fill); }

  void check() const {
    const Bytes expected = case_.expected(rank_);
    EXPECT_EQ(first_difference(expected, {output_, expected.size()}, case_.type, case_.inputs), "")
        << case_.text() << " on rank " << rank_;
    if (case_.in_place) return;
    EXPECT_TRUE(std::equal(case_.inputs[rank_].begin(), case_.inputs[rank_].end(), send_.data() + guard_));
    for (std::size_t i = 0; i < receive_.size(); ++i) {
      const bool is_output = i >= guard_ && i < guard_ + expected.size();
      ASSERT_TRUE(is_output || receive_[i] == fill)
          << case_.text() << ": wrote outside of the output of rank " << rank_;
    }
  }

 private:
  static constexpr std::byte fill{0xa5};
  const Case& case_;
  std::uint32_t rank_;
  std::size_t guard_;  ///< odd if buffers must be unaligned
  Bytes send_, receive_;
  std::byte* output_ = nullptr;
  CopyCall call_;
};

}  // namespace strait::testing
