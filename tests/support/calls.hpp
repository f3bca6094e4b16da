#pragma once

#include <cstddef>

#include "calls/call.hpp"
#include "host/collective_case.hpp"
#include "support/random_data.hpp"

/// Converts cases of tests/host/collective_case.hpp to calls of one rank; and the guards around their buffers.
namespace strait::testing {

inline constexpr std::size_t guard_bytes = 64;
inline constexpr std::byte poison{0xa5};

inline Call call_of(const CollectiveCase& c, const std::byte* input, std::byte* output, const Bytes& scalar) {
  Call call;
  call.collective = c.collective;
  call.type = c.type;
  call.op = c.op;
  call.root = c.root;
  call.count = c.count;
  call.send = input;
  call.receive = output;
  call.max_sms = c.max_sms;
  call.wire = c.wire;
  call.premul_scalar = premul_scalar(c, scalar);
  return call;
}

}  // namespace strait::testing
