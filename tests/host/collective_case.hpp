#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"
#include "strait/strait.h"
#include "support/random_data.hpp"

namespace strait::testing {

/// One collective call, to be made by all ranks and compared with the reference bit by bit.
struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count = 0;
  std::uint32_t root = 0;
  bool in_place = false;
  std::size_t misalignment_bytes = 0;  ///< of both buffers
  std::uint64_t seed = 1;
  WireFormat wire = WireFormat::off;
  std::uint32_t max_sms = 0;                        ///< of the call's options
  std::string algorithm;                            ///< likewise
  std::vector<std::vector<std::uint32_t>> islands;  ///< of GPU ranks that form some
};

std::string describe(const CollectiveCase& c);

/// A rank's send buffer: any bits, but where there is a wire format most blocks of moderate numbers.
Bytes random_input(const CollectiveCase& c, std::uint32_t ranks, std::uint32_t rank);
/// A rank's scalar for premul_sum, another on every rank.
Bytes random_scalar(const CollectiveCase& c, std::uint32_t rank);
/// Whether it is named by its address: of every other count.
bool has_scalar_address(const CollectiveCase& c);
PremulScalar premul_scalar(const CollectiveCase& c, const Bytes& scalar);
/// What the reference gives a rank.
Bytes expected_output(const CollectiveCase& c, const std::vector<Bytes>& inputs, const std::vector<Bytes>& scalars,
                      std::uint32_t rank);

/// Bytes of the two buffers of a rank.
struct BufferBytes {
  std::size_t send;
  std::size_t receive;
};
BufferBytes buffer_bytes(const CollectiveCase& c, std::uint32_t ranks);
/// Where the in-place form puts the smaller buffer inside the larger one.
std::size_t own_offset(const CollectiveCase& c, std::uint32_t rank);
/// The call itself, with options if the case has any.
straitResult_t call_collective(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                               straitComm_t comm, straitStream_t stream = nullptr);

/// The call with what the case says as its options.
straitResult_t call_with_options(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                                 straitComm_t comm, straitStream_t stream = nullptr, float* residual = nullptr);

/// Makes the call on this rank with random inputs and poisoned outputs; EXPECTs the bits of the reference, an unchanged
/// send buffer (out of place) and untouched bytes around the receive buffer.
void check_collective(straitComm_t comm, int rank, int ranks, const CollectiveCase& c);

}  // namespace strait::testing
