#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"

/// Kernels for the wire formats of base/wire_format.hpp. Some encode within this device's memory, for whatever carries
/// bytes from rank to rank; others encode while data goes through slots. Plain data and addresses of kernels, for host
/// and device.
namespace strait::kernels {

/// The argument of one launch: runs of elements in user memory, and encoded runs of as many blocks in scratch, which
/// are contiguous. The sums of decode and recode are over encoded runs.
struct WirePass {
  std::byte* elements;    ///< the first run; encode reads the elements, decode writes them
  float* residual;        ///< encode: one float for each element (error feedback), or null
  std::byte* encoded;     ///< the first encoded run
  std::byte* recoded;     ///< recode: the encoded run to which the sum is written
  std::size_t run_bytes;  ///< distance from an encoded run to the next one
  std::size_t stride;  ///< distance in elements from the start of a run to that of the next one; at least run_elements
  std::size_t run_elements;    ///< elements of each run; the last ones may be cut short by total_elements
  std::size_t total_elements;  ///< elements from the beginning of the first run to the end of the last one
  PremulScalar premul_scalar;  ///< encode: this rank's scalar
  std::uint32_t run_blocks;    ///< blocks of an encoded run
  std::uint32_t runs;
  std::uint32_t sources;   ///< decode, recode: runs that are added up, in order, for each run of the result
  std::uint32_t averaged;  ///< decode, recode: number by which sums are divided; 0: they are not divided
  bool premultiplies;      ///< encode: whether elements are multiplied by the scalar first
};

inline constexpr std::uint32_t wire_threads = 256;  ///< threads of a thread block
/// Threads that share a block of elements; each has eight of them.
inline constexpr std::uint32_t wire_lanes = 16;

enum class WireKernel : std::uint8_t {
  encode,  ///< elements to encoded runs
  decode,  ///< sums of encoded runs to elements
  recode,  ///< the sum of encoded runs to one encoded run
};

/// Returns a kernel for cudaLaunchKernel, whose one argument is a WirePass. `type` must be a wire type, and `format`
/// not off.
const void* wire_kernel(WireKernel kernel, WireFormat format, DataType type);
/// Returns the kernels that encode data on its way (EncodedExchange, EncodedTwoHop). They are launched like those of
/// bulk (kernels.hpp).
enum class EncodedKernel : std::uint8_t { copy, sum, two_hop_sum };
const void* encoded_kernel(EncodedKernel kernel, WireFormat format, DataType type);
/// Returns every kernel of this header. They are to be loaded before other kernels wait for peers.
std::vector<const void*> all_wire_kernels();

}  // namespace strait::kernels
