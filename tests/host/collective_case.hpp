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
  std::size_t misalignment_bytes = 0;  ///< offset of both buffers from an aligned address
  std::uint64_t seed = 1;
  WireFormat wire = WireFormat::off;
  std::uint32_t max_sms = 0;                        ///< limit in the call's options; 0: none
  std::string algorithm;                            ///< named in the call's options; empty: none
  std::vector<std::vector<std::uint32_t>> islands;  ///< for GPU ranks that form islands: the ranks of each
};

std::string describe(const CollectiveCase& c);

/// Returns a rank's send buffer: any bits, but mostly blocks of moderate numbers if there is a wire format.
Bytes random_input(const CollectiveCase& c, std::uint32_t ranks, std::uint32_t rank);
/// Returns a rank's scalar for premul_sum, which differs between ranks.
Bytes random_scalar(const CollectiveCase& c, std::uint32_t rank);
/// Returns whether the scalar is passed by address; alternates with the count.
bool has_scalar_address(const CollectiveCase& c);
PremulScalar premul_scalar(const CollectiveCase& c, const Bytes& scalar);
/// Returns the reference's result for a rank.
Bytes expected_output(const CollectiveCase& c, const std::vector<Bytes>& inputs, const std::vector<Bytes>& scalars,
                      std::uint32_t rank);

/// Sizes of a rank's two buffers in bytes.
struct BufferBytes {
  std::size_t send;
  std::size_t receive;
};
BufferBytes buffer_bytes(const CollectiveCase& c, std::uint32_t ranks);
/// Returns the offset in the larger buffer at which the in-place form has the smaller one.
std::size_t own_offset(const CollectiveCase& c, std::uint32_t rank);
/// Makes the call, with options if the case has any.
straitResult_t call_collective(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                               straitComm_t comm, straitStream_t stream = nullptr);

/// Makes the call with the case's settings as its options.
straitResult_t call_with_options(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                                 straitComm_t comm, straitStream_t stream = nullptr, float* residual = nullptr);

/// Makes the call on this rank with random inputs and poisoned outputs. EXPECTs the reference's bits, an unchanged send
/// buffer (if out of place), and unchanged bytes around the receive buffer.
void check_collective(straitComm_t comm, int rank, int ranks, const CollectiveCase& c);

}  // namespace strait::testing
