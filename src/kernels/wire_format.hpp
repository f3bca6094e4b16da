#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/types.hpp"
#include "base/wire_format.hpp"

/// The wire formats of base/wire_format.hpp: encoded in this device's memory, for whatever carries bytes from rank to
/// rank, or on the way through slots. Plain data and addresses of kernels: for host and device.
namespace strait::kernels {

/// What one launch works on: runs of elements in the user's memory, and encoded runs of as many blocks in scratch, one
/// after the other. What is summed (decode, recode) are encoded runs.
struct WirePass {
  std::byte* elements;         ///< of the first run; encode reads them, decode writes them
  float* residual;             ///< encode: one float an element (error feedback); or null
  std::byte* encoded;          ///< the first run
  std::byte* recoded;          ///< recode: the run that the sum becomes
  std::size_t run_bytes;       ///< from an encoded run to the next one
  std::size_t stride;          ///< elements from the start of a run to that of the next one, at least run_elements
  std::size_t run_elements;    ///< of each run, as far as there are elements
  std::size_t total_elements;  ///< from the first run's first to the last one's last
  PremulScalar premul_scalar;  ///< encode
  std::uint32_t run_blocks;    ///< of an encoded run
  std::uint32_t runs;
  std::uint32_t sources;   ///< decode, recode: runs that are added up, in order, for each that comes out
  std::uint32_t averaged;  ///< decode, recode: sums are divided by this; 0: they are not
  bool premultiplies;      ///< encode: elements are multiplied by the scalar first
};

inline constexpr std::uint32_t wire_threads = 256;  ///< of a thread block
/// Threads that share a block of elements: eight each.
inline constexpr std::uint32_t wire_lanes = 16;

enum class WireKernel : std::uint8_t {
  encode,  ///< elements to encoded runs
  decode,  ///< sums of encoded runs to elements
  recode,  ///< the sum of encoded runs to one encoded run
};

/// For cudaLaunchKernel; the one argument is a WirePass. A wire type, and a format that is not off.
const void* wire_kernel(WireKernel kernel, WireFormat format, DataType type);
/// The kernels that encode on the way (EncodedExchange, EncodedTwoHop), launched as those of bulk (kernels.hpp).
enum class EncodedKernel : std::uint8_t { copy, sum, two_hop_sum };
const void* encoded_kernel(EncodedKernel kernel, WireFormat format, DataType type);
/// Every one of them, to be loaded before others wait for peers.
std::vector<const void*> all_wire_kernels();

}  // namespace strait::kernels
