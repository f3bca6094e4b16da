#include "calls/premul_contribution.hpp"

namespace strait {

Call PremulContribution::make(const Call& call, std::uint32_t rank, std::uint32_t ranks, Simd simd) {
  const std::size_t bytes = buffer_sizes(call, rank, ranks).send_bytes;
  if (bytes > memory_bytes_) {
    memory_bytes_ = 0;
    memory_.reset();  // first, so that the old and the new memory are never held at once
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    memory_bytes_ = bytes;
  }
  premultiply(call.type, memory_.get(), call.send, call.premul_scalar.element(), bytes / size_bytes(call.type), simd);
  Call multiplied = call;
  multiplied.send = memory_.get();
  return multiplied;
}

}  // namespace strait
