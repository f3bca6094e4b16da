#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "calls/call.hpp"
#include "executor/host/reduce.hpp"

namespace strait {

/// What a host rank contributes to a premul_sum. Plans do not know of scalars, so the rank's input is first multiplied
/// by its scalar into memory of this object, which is kept for the next call.
class PremulContribution {
 public:
  /// Returns the call with the multiplied input as its send buffer, which is valid until the next one is made. May
  /// throw bad_alloc.
  Call make(const Call& call, std::uint32_t rank, std::uint32_t ranks, Simd simd);

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t memory_bytes_ = 0;
};

}  // namespace strait
