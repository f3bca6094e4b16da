#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "calls/call.hpp"
#include "support/random_data.hpp"

/// All-to-all-v calls whose blocks differ in length, for tests.
namespace strait::testing {

/// The length in elements of the block that rank `from` sends to rank `to`.
using Length = std::function<std::size_t(std::uint32_t from, std::uint32_t to)>;

/// Every rank's part of an all-to-all-v of floats. The blocks are separated by gaps of three floats, which the call
/// must not write.
struct BlocksOfLengths {
  BlocksOfLengths(std::uint32_t ranks, const Length& length) : inputs(ranks), expected(ranks), calls(ranks) {
    const auto append = [&](Bytes& all, std::uint32_t from, std::uint32_t to, auto& counts, auto& offsets) {
      const Bytes data = random_elements(DataType::float32, length(from, to), from * 10 + to);
      all.resize(all.size() + 3 * sizeof(float), std::byte{0xa5});
      offsets.push_back(all.size() / sizeof(float));
      counts.push_back(data.size() / sizeof(float));
      all.insert(all.end(), data.begin(), data.end());
    };
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      Call& call = calls[rank];
      call.collective = Collective::all_to_all_v;
      call.type = DataType::float32;
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        append(inputs[rank], rank, peer, call.send_counts, call.send_offsets);
        append(expected[rank], peer, rank, call.receive_counts, call.receive_offsets);
      }
      outputs.emplace_back(expected[rank].size(), std::byte{0xa5});
      call.send = inputs[rank].data();
      call.receive = outputs[rank].data();
    }
  }
  std::vector<Bytes> inputs, outputs, expected;
  std::vector<Call> calls;
};

}  // namespace strait::testing
