#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/arithmetic.cuh"
#include "kernels/codec.cuh"
#include "kernels/user_bytes.cuh"
#include "kernels/wire_format.hpp"

/// The kernels of wire_format.hpp. Sixteen neighbouring threads share a block of 128 elements. Each thread has the four
/// elements from 4 * lane on, and the four that are 64 elements further on, because int4 puts both into the same bytes.
namespace strait::kernels {

inline constexpr int own_elements = 8;
inline constexpr int half_elements = own_elements / 2;
inline constexpr std::uint32_t half_block = wire::block_elements / 2;

/// Four elements of user memory.
template <DataType type>
class Fours {
  using Element = spec::ElementType<type>;
  struct Elements {
    Element values[half_elements];
  };

 public:
  __device__ Fours(const void* block) : bytes_(static_cast<const std::byte*>(block)) {}
  /// Loads from element `first` of the block on; `valid` elements exist, and the rest are zeros.
  __device__ __forceinline__ void load(std::uint32_t first, std::uint32_t valid, float* values) const {
    const Granule bits = bytes_.load(first * sizeof(Element), valid * sizeof(Element));
    Elements elements;
    if constexpr (sizeof elements == 16)
      elements = __builtin_bit_cast(Elements, bits);
    else
      elements = __builtin_bit_cast(Elements, bits.low);
#pragma unroll
    for (int e = 0; e < half_elements; ++e) values[e] = load_element<type>(elements.values[e]);
  }
  __device__ __forceinline__ void store(std::uint32_t first, std::uint32_t valid, const float* values) const {
    Elements elements;
#pragma unroll
    for (int e = 0; e < half_elements; ++e) elements.values[e] = store_element<type>(values[e]);
    Granule bits{};
    if constexpr (sizeof elements == 16)
      bits = __builtin_bit_cast(Granule, elements);
    else
      bits.low = __builtin_bit_cast(std::uint64_t, elements);
    bytes_.store(first * sizeof(Element), valid * sizeof(Element), bits);
  }

 private:
  UserBytes<sizeof(Elements)> bytes_;
};

/// A thread's share of a block.
struct BlockShare {
  std::uint32_t run, block, lane;
  std::size_t first;    ///< the block's first element, counted from the beginning of the first run
  std::uint32_t valid;  ///< elements of the block that exist; 0: there is no such block

  __device__ std::uint32_t first_of(int half) const {
    return lane * half_elements + static_cast<std::uint32_t>(half) * half_block;
  }
  __device__ std::uint32_t valid_of(int half) const {
    const std::uint32_t from = first_of(half);
    return valid <= from ? 0 : valid - from < half_elements ? valid - from : half_elements;
  }
};

/// Calls use(share) for every block of which this thread has a share. All threads of a warp make the same number of
/// calls.
template <class Use>
__device__ __forceinline__ void for_each_share(const WirePass& pass, Use&& use) {
  const std::uint32_t blocks = pass.runs * pass.run_blocks;
  const std::uint32_t a_turn = gridDim.x * (blockDim.x / wire_lanes);
  constexpr std::uint32_t of_a_warp = 32 / wire_lanes;
  for (std::uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / wire_lanes; i / of_a_warp * of_a_warp < blocks;
       i += a_turn) {
    BlockShare share{i / pass.run_blocks, i % pass.run_blocks, threadIdx.x % wire_lanes, 0, 0};
    const std::size_t run = share.run * pass.stride;
    const std::size_t end =
        run + pass.run_elements < pass.total_elements ? run + pass.run_elements : pass.total_elements;
    share.first = run + share.block * wire::block_elements;
    if (share.first < end)
      share.valid = static_cast<std::uint32_t>(end - share.first < wire::block_elements ? end - share.first
                                                                                        : wire::block_elements);
    use(share);
  }
}

template <WireFormat format>
__device__ __forceinline__ std::uint32_t* payload_of(std::byte* run, const BlockShare& share) {
  return reinterpret_cast<std::uint32_t*>(run + share.block * wire::payload_bytes(format)) + share.lane;
}
template <WireFormat format>
__device__ __forceinline__ float* scale_of_block(std::byte* run, const WirePass& pass, const BlockShare& share) {
  return reinterpret_cast<float*>(run + pass.run_blocks * wire::payload_bytes(format)) + share.block;
}

template <WireFormat format>
using ShareCodes = Codes<format, std::uint32_t>;
static_assert(ShareCodes<WireFormat::int8>::lanes == wire_lanes && ShareCodes<WireFormat::int8>::half == half_elements);

/// Writes the share's codes and the block's scale. Returns both, for callers that need to know what was lost.
template <WireFormat format>
__device__ __forceinline__ ShareCodes<format> write_block(const WirePass& pass, std::byte* run, const BlockShare& share,
                                                          const float (&values)[own_elements]) {
  const auto codes = ShareCodes<format>::of(values);
  if (share.valid != 0) {
    std::uint32_t* const payload = payload_of<format>(run, share);
#pragma unroll
    for (int w = 0; w < codes.words; ++w) payload[w * wire_lanes] = codes.bits[w];
    if (share.lane == 0) *scale_of_block<format>(run, pass, share) = codes.scale;
  }
  return codes;
}

/// Computes the share's sums of all sources, in their order.
template <WireFormat format>
__device__ __forceinline__ void add_sources(const WirePass& pass, const BlockShare& share,
                                            float (&sums)[own_elements]) {
  for (std::uint32_t source = 0; source < pass.sources; ++source) {
    std::byte* const run = pass.encoded + (share.run + source) * pass.run_bytes;
    ShareCodes<format> codes;
    codes.scale = *scale_of_block<format>(run, pass, share);
#pragma unroll
    for (int w = 0; w < codes.words; ++w) codes.bits[w] = payload_of<format>(run, share)[w * wire_lanes];
    float values[own_elements];
    codes.get(values);
#pragma unroll
    for (int e = 0; e < own_elements; ++e) sums[e] = source == 0 ? values[e] : spec::detail::add(sums[e], values[e]);
  }
  if (pass.averaged != 0) divide(sums, pass.averaged);
}

template <WireFormat format, DataType type>
__global__ void __launch_bounds__(wire_threads) wire_encode(const __grid_constant__ WirePass pass) {
  after_predecessor();
  for_each_share(pass, [&](const BlockShare& share) {
    const Fours<type> elements(pass.elements + share.first * sizeof(spec::ElementType<type>));
    float values[own_elements];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      elements.load(share.first_of(half), share.valid_of(half), values + half * half_elements);
    if (pass.premultiplies) premultiply<type>(pass.premul_scalar, values);
    if (pass.residual != nullptr) {
      const Fours<DataType::float32> residual(pass.residual + share.first);
      float carried[own_elements];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        residual.load(share.first_of(half), share.valid_of(half), carried + half * half_elements);
#pragma unroll
      for (int e = 0; e < own_elements; ++e) values[e] = spec::detail::add(values[e], carried[e]);
    }
    const auto codes = write_block<format>(pass, pass.encoded + share.run * pass.run_bytes, share, values);
    if (pass.residual == nullptr || is_nan(codes.scale)) return;
    const Fours<DataType::float32> residual(pass.residual + share.first);
    float sent[own_elements];
    codes.get(sent);
#pragma unroll
    for (int e = 0; e < own_elements; ++e) values[e] = spec::detail::add(values[e], -sent[e]);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      residual.store(share.first_of(half), share.valid_of(half), values + half * half_elements);
  });
}

template <WireFormat format, DataType type>
__global__ void __launch_bounds__(wire_threads) wire_decode(const __grid_constant__ WirePass pass) {
  after_predecessor();
  for_each_share(pass, [&](const BlockShare& share) {
    if (share.valid == 0) return;
    float sums[own_elements];
    add_sources<format>(pass, share, sums);
    const Fours<type> elements(pass.elements + share.first * sizeof(spec::ElementType<type>));
#pragma unroll
    for (int half = 0; half < 2; ++half)
      elements.store(share.first_of(half), share.valid_of(half), sums + half * half_elements);
  });
}

template <WireFormat format>
__global__ void __launch_bounds__(wire_threads) wire_recode(const __grid_constant__ WirePass pass) {
  after_predecessor();
  for_each_share(pass, [&](const BlockShare& share) {
    float sums[own_elements] = {};
    if (share.valid != 0) add_sources<format>(pass, share, sums);
    write_block<format>(pass, pass.recoded, share, sums);
  });
}

}  // namespace strait::kernels
