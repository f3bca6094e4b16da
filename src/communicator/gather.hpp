#pragma once

#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/channel.hpp"

namespace strait {

/// Returns all ranks' values of a plain struct, by rank. Collective.
template <class T>
Result<std::vector<T>> gather(Channel& channel, const T& own, const Deadline& deadline) {
  STRAIT_ASSIGN(const auto blocks, channel.all_gather(std::as_bytes(std::span(&own, 1)), {deadline, nullptr}));
  std::vector<T> values(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size() != sizeof(T))
      return fail(Code::remote_error,
                  "rank " + std::to_string(i) + " sent a message of the wrong length during set-up");
    std::memcpy(&values[i], blocks[i].data(), sizeof(T));
  }
  return values;
}

}  // namespace strait
