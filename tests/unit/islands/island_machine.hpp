#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "host/collective_case.hpp"
#include "launches/device_islands.hpp"
#include "support/calls.hpp"
#include "support/island_reference.hpp"

/// Runs the steps of calls over islands for all ranks, without a GPU, to check their joint result.
namespace strait::testing {

/// A rank's buffers and steps, of which the first `done` have been made.
struct Rank {
  Bytes memory[2], scratch;
  std::byte *send = nullptr, *receive = nullptr;
  std::vector<IslandStep> steps;
  std::size_t done = 0;
};

/// Runs the steps of all ranks: a step is made when all its members have reached it.
class Machine {
 public:
  using Among = IslandStep::Among;
  Machine(Islands islands, std::size_t scratch_bytes) : islands_(std::move(islands)), scratch_bytes_(scratch_bytes) {
    for (const auto& island : islands_) ranks_ += static_cast<std::uint32_t>(island.size());
  }
  std::uint32_t ranks() const { return ranks_; }
  /// Number of elements that ranks contributed to steps across islands, or sent to ranks of other islands.
  std::size_t crossings() const { return crossings_; }
  /// Number of elements that ranks sent to others of their island in steps among all ranks.
  std::size_t strays() const { return strays_; }
  bool carries(const Call& call) const { return DeviceIslands(0, islands_, nullptr, scratch_bytes_).carries(call); }

  void run(std::vector<Rank>& ranks, const std::vector<Call>& calls) {
    crossings_ = strays_ = 0;
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      ranks[rank].scratch.assign(scratch_bytes_ + guard_bytes, poison);
      const DeviceIslands islands(rank, islands_, ranks[rank].scratch.data(), scratch_bytes_);
      ranks[rank].steps = islands.steps_of(calls[rank]);
    }
    for (bool advances = true; advances;) {
      advances = false;
      for (std::uint32_t rank = 0; rank < ranks_; ++rank)
        if (ranks[rank].done < ranks[rank].steps.size() && step(ranks, rank)) advances = true;
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      EXPECT_EQ(ranks[rank].done, ranks[rank].steps.size()) << "rank " << rank << " waits for ever";
      EXPECT_TRUE(std::all_of(ranks[rank].scratch.end() - guard_bytes, ranks[rank].scratch.end(),
                              [](std::byte b) { return b == poison; }));
    }
  }

 private:
  Island members_of(std::uint32_t rank, Among among) const {
    const auto [island, place] = place_of(islands_, rank);
    if (among == Among::island) return islands_[island];
    Island members;
    for (const Island& each : islands_) {
      if (among == Among::all)
        members.insert(members.end(), each.begin(), each.end());
      else
        members.push_back(each.at(place));
    }
    if (among == Among::all) std::sort(members.begin(), members.end());
    return members;
  }

  /// Makes the next step of `rank`, together with all members of the step. Returns false if some have not reached it.
  bool step(std::vector<Rank>& ranks, std::uint32_t rank) {
    const Among among = ranks[rank].steps[ranks[rank].done].among;
    const Island members = members_of(rank, among);
    std::vector<const Call*> calls;
    for (const std::uint32_t member : members) {
      const Rank& each = ranks[member];
      if (each.done == each.steps.size() || each.steps[each.done].among != among) return false;
      calls.push_back(&each.steps[each.done].call);
    }
    for (const Call* call : calls) EXPECT_EQ(signature(*call), signature(*calls.front()));
    if (is_exchange(calls.front()->collective))
      exchange(calls, members);
    else
      carry_out(calls, among == Among::island ? static_cast<std::uint32_t>(members.size()) : ranks_);
    for (const std::uint32_t member : members) ++ranks[member].done;
    const std::vector<std::size_t>& counts =
        calls[0]->send_counts.empty() ? calls[0]->receive_counts : calls[0]->send_counts;
    const std::size_t elements = std::accumulate(counts.begin(), counts.end(), counts.empty() ? calls[0]->count : 0);
    if (among == Among::across) crossings_ += calls.size() * elements;
    return true;
  }

  static bool is_exchange(Collective collective) {
    return collective == Collective::all_to_all || collective == Collective::all_to_all_v ||
           collective == Collective::gather || collective == Collective::scatter;
  }

  /// A block, as named by one of its two ends.
  struct Block {
    std::size_t first = 0, count = 0;  ///< elements
  };
  static Block block_of(const Call& call, std::uint32_t peer, const std::vector<std::size_t>& offsets,
                        const std::vector<std::size_t>& counts) {
    return {offsets.empty() ? peer * call.count : offsets[peer], counts.empty() ? call.count : counts[peer]};
  }
  /// Delivers messages from rank to rank. All are read before any is written.
  void exchange(const std::vector<const Call*>& calls, const Island& members) {
    std::vector<std::pair<std::byte*, Bytes>> writes;
    for (std::uint32_t from = 0; from < calls.size(); ++from)
      for (std::uint32_t to = 0; to < calls.size(); ++to) {
        const Call &sender = *calls[from], &receiver = *calls[to];
        const bool gathers = sender.collective == Collective::gather,
                   scatters = sender.collective == Collective::scatter;
        if ((gathers && to != sender.root) || (scatters && from != sender.root)) continue;
        Block sent = block_of(sender, to, sender.send_offsets, sender.send_counts);
        Block received = block_of(receiver, from, receiver.receive_offsets, receiver.receive_counts);
        if (gathers) sent = {0, block_of(sender, from, {}, sender.receive_counts).count};
        if (scatters) received = {0, block_of(receiver, to, {}, receiver.send_counts).count};
        ASSERT_EQ(sent.count, received.count) << "from " << members[from] << " to " << members[to];
        if (sent.count == 0) continue;
        const std::size_t element = size_bytes(sender.type);
        const auto* data = static_cast<const std::byte*>(sender.send) + sent.first * element;
        writes.emplace_back(static_cast<std::byte*>(receiver.receive) + received.first * element,
                            Bytes(data, data + sent.count * element));
        const bool crosses = place_of(islands_, members[from]).island != place_of(islands_, members[to]).island;
        if (crosses) crossings_ += sent.count;
        if (!crosses && from != to && calls.size() == ranks_) strays_ += sent.count;
      }
    for (const auto& [to, bytes] : writes) std::copy(bytes.begin(), bytes.end(), to);
  }

  /// Carries out a collective by plain loops. Inputs are read before any output is written.
  static void carry_out(const std::vector<const Call*>& calls, std::uint32_t averaged) {
    const auto count = static_cast<std::uint32_t>(calls.size());
    if (!calls[0]->receive_counts.empty()) return gather_uneven(calls);
    if (!calls[0]->send_counts.empty()) return reduce_uneven(calls, averaged);
    std::vector<Bytes> inputs, scalars;
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      inputs.push_back(input_of(*calls[rank], rank, count));
      scalars.push_back(scalar_of(*calls[rank]));
    }
    for (std::uint32_t rank = 0; rank < count; ++rank) {
      const Call& call = *calls[rank];
      ReferenceCall reference{.collective = call.collective,
                              .type = call.type,
                              .op = call.op,
                              .root = call.root,
                              .premul_scalars = scalars,
                              .inputs = inputs};
      Bytes output = call.wire == WireFormat::off ? reference_output(reference, rank)
                                                  : wire_reference_output(call.wire, reference, rank, averaged);
      if (call.wire == WireFormat::off && is_reduction(call.collective) && call.op == ReduceOp::avg && !output.empty())
        output = average(reference, rank, averaged);
      write(call, output);
    }
  }

  static Bytes scalar_of(const Call& call) {
    const auto* element = static_cast<const std::byte*>(call.premul_scalar.element());
    return {element, element + size_bytes(call.type)};
  }

  /// Carries out an all-gather of blocks of different lengths.
  static void gather_uneven(const std::vector<const Call*>& calls) {
    std::vector<Bytes> blocks;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const auto* send = static_cast<const std::byte*>(calls[rank]->send);
      blocks.emplace_back(send, send + calls[rank]->receive_counts[rank] * size_bytes(calls[rank]->type));
    }
    for (const Call* call : calls)
      for (std::size_t from = 0; from < calls.size(); ++from)
        std::copy(blocks[from].begin(), blocks[from].end(),
                  static_cast<std::byte*>(call->receive) + call->receive_offsets[from] * size_bytes(call->type));
  }
  /// Carries out a reduce-scatter of blocks of different lengths.
  static void reduce_uneven(const std::vector<const Call*>& calls, std::uint32_t averaged) {
    for (std::uint32_t rank = 0; rank < calls.size(); ++rank) {
      EXPECT_EQ(calls[rank]->send_counts, calls[0]->send_counts);
      EXPECT_LE(calls[0]->send_counts[rank], calls[0]->count);
    }
    std::vector<Bytes> outputs, scalars;
    for (const Call* call : calls) scalars.push_back(scalar_of(*call));
    for (std::uint32_t rank = 0; rank < calls.size(); ++rank) {
      std::vector<Bytes> blocks;
      for (const Call* call : calls) {
        const auto* block =
            static_cast<const std::byte*>(call->send) + call->send_offsets[rank] * size_bytes(call->type);
        blocks.emplace_back(block, block + call->send_counts[rank] * size_bytes(call->type));
      }
      const ReferenceCall reference{.collective = Collective::all_reduce,
                                    .type = calls[rank]->type,
                                    .op = calls[rank]->op,
                                    .root = 0,
                                    .premul_scalars = scalars,
                                    .inputs = blocks};
      outputs.push_back(reference.op == ReduceOp::avg ? average(reference, 0, averaged)
                                                      : reference_reduction(reference));
    }
    for (std::size_t rank = 0; rank < calls.size(); ++rank)
      std::copy(outputs[rank].begin(), outputs[rank].end(), static_cast<std::byte*>(calls[rank]->receive));
  }

  /// Like reference_output(), but divides by the number of all ranks.
  static Bytes average(const ReferenceCall& call, std::uint32_t rank, std::uint32_t averaged) {
    std::vector<ReduceSource> sources;
    for (const Bytes& input : call.inputs) sources.push_back({.pointer = input.data()});
    const ReduceDestination destination;
    const Bytes all = reference_step({.type = call.type,
                                      .op = call.op,
                                      .sources = sources,
                                      .destinations = {&destination, 1},
                                      .count = call.inputs[0].size() / size_bytes(call.type),
                                      .final = true,
                                      .ranks = averaged})[0];
    return call.collective == Collective::reduce_scatter ? detail::block(all, rank, call.inputs.size()) : all;
  }

  static Bytes input_of(const Call& call, std::uint32_t rank, std::uint32_t ranks) {
    const auto* send = static_cast<const std::byte*>(call.send);
    const std::size_t block = call.count * size_bytes(call.type);
    Bytes input(send, send + (send == nullptr ? 0 : buffer_sizes(call, rank, ranks).send_bytes));
    for (std::uint32_t to = 0; to < call.send_offsets.size(); ++to)
      std::copy_n(send + call.send_offsets[to] * size_bytes(call.type), block, input.begin() + to * block);
    return input;
  }

  static void write(const Call& call, const Bytes& output) {
    auto* const receive = static_cast<std::byte*>(call.receive);
    const std::size_t block = call.count * size_bytes(call.type);
    if (call.receive_offsets.empty()) std::copy(output.begin(), output.end(), receive);
    for (std::uint32_t from = 0; from < call.receive_offsets.size(); ++from)
      std::copy_n(output.begin() + from * block, block, receive + call.receive_offsets[from] * size_bytes(call.type));
  }

  Islands islands_;
  std::size_t scratch_bytes_;
  std::uint32_t ranks_ = 0;
  std::size_t crossings_ = 0, strays_ = 0;
};

}  // namespace strait::testing
