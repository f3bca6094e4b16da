/// The quantisation kernels of one instruction set. Each quantize_<name>.cpp includes this once, compiled for its
/// processors with STRAIT_VECTOR_BYTES and STRAIT_QUANTIZE_TABLE set. All of it has internal linkage, and it calls no
/// inline function from elsewhere (see KernelCall).
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "executor/host/quantize_kernels.hpp"
#include "executor/host/reduce_vectors.inl"

namespace strait::host {
namespace {

constexpr std::size_t block_elements = wire::block_elements;
constexpr int block_vectors = static_cast<int>(block_elements) / float_lanes;
constexpr int half_vectors = block_vectors / 2;

/// The values of one block.
struct Values {
  Floats vectors[block_vectors];
};

template <DataType type>
constexpr std::size_t element_bytes = sizeof(spec::ElementType<type>);

template <DataType type>
[[gnu::always_inline]] inline Values load_values(const unsigned char* elements) {
  Values values;
  for (int v = 0; v < block_vectors; ++v) {
    const unsigned char* from = elements + v * float_lanes * element_bytes<type>;
    if constexpr (type == DataType::float32) values.vectors[v] = load_unaligned<Floats>(from);
    if constexpr (type != DataType::float32) values.vectors[v] = load_small<spec::ElementType<type>>(from);
  }
  return values;
}

template <DataType type>
[[gnu::always_inline]] inline void store_values(unsigned char* elements, const Values& values) {
  constexpr int vector_elements_bytes = float_lanes * static_cast<int>(element_bytes<type>);
  for (int v = 0; v < block_vectors; ++v) {
    Floats value = values.vectors[v];
    unsigned char* to = elements + v * vector_elements_bytes;
    if constexpr (type == DataType::float32) {
      const Floats nan = as<Floats>(Words{} + FloatFormat<float>::canonical_nan);
      value = value != value ? nan : value;
      std::memcpy(to, &value, sizeof value);
    } else {
      store_block<vector_elements_bytes>(to, round_small<spec::ElementType<type>>(value), false);
    }
  }
}

[[gnu::always_inline]] inline std::uint32_t largest_magnitude(const Values& values) {
  Integers largest = {};
  for (int v = 0; v < block_vectors; ++v) {
    const Integers magnitude = as<Integers>(as<Words>(values.vectors[v]) & FloatFormat<float>::magnitude_mask);
    largest = magnitude > largest ? magnitude : largest;
  }
  std::int32_t result = 0;
  for (int i = 0; i < float_lanes; ++i) result = largest[i] > result ? largest[i] : result;
  return static_cast<std::uint32_t>(result);
}

/// Returns the scale of a block without infinities and NaN, as wire::scale_of does.
template <WireFormat format>
[[gnu::always_inline]] inline float scale_of(std::uint32_t largest) {
  const float scale = __builtin_bit_cast(float, largest) / wire::largest_code<format>;
  if (scale < wire::smallest_scale) return wire::smallest_scale;
  const bool overflows = __builtin_isinf(scale * wire::largest_code<format>) != 0;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, scale) - (overflows ? 1u : 0u));
}

/// Returns value * inverse, rounded to whole numbers, in the low bits of each lane.
[[gnu::always_inline]] inline Words whole(Floats value, float inverse) {
  return as<Words>(value * inverse + wire::rounder);
}

template <WireFormat format>
[[gnu::always_inline]] inline void store_codes(std::uint8_t* payload, const Values& values, float inverse) {
  constexpr int vectors = format == WireFormat::int4 ? half_vectors : block_vectors;
  for (int v = 0; v < vectors; ++v) {
    Block<float_lanes> codes;
    if constexpr (format == WireFormat::fp8) {
      codes = round_small<Float8E4M3>(values.vectors[v] * inverse);
    } else if constexpr (format == WireFormat::int8) {
      codes = narrow<Float8E4M3>(whole(values.vectors[v], inverse) & 0xffu);
    } else {
      codes = narrow<Float8E4M3>((whole(values.vectors[v], inverse) & 0xfu) |
                                 (whole(values.vectors[v + half_vectors], inverse) & 0xfu) << 4);
    }
    std::memcpy(payload + v * float_lanes, &codes, sizeof codes);
  }
}

/// Loads float_lanes bytes and extends each with its sign.
[[gnu::always_inline]] inline Integers load_signed_bytes(const std::uint8_t* pointer) {
#if STRAIT_VECTOR_BYTES == 64
  return as<Integers>(_mm512_maskz_cvtepi8_epi32(all, load_unaligned<__m128i>(pointer)));
#elif STRAIT_VECTOR_BYTES == 32
  return as<Integers>(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(pointer))));
#else
  return __builtin_convertvector(load_unaligned<Vector<std::int8_t, float_lanes>>(pointer), Integers);
#endif
}

template <WireFormat format>
[[gnu::always_inline]] inline Values load_codes(const std::uint8_t* payload, float scale) {
  Values values;
  for (int v = 0; v < block_vectors; ++v) {
    if constexpr (format == WireFormat::fp8) {
      values.vectors[v] = load_small<Float8E4M3>(payload + v * float_lanes) * scale;
    } else if constexpr (format == WireFormat::int8) {
      values.vectors[v] = __builtin_convertvector(load_signed_bytes(payload + v * float_lanes), Floats) * scale;
    } else {
      const Integers bytes = load_signed_bytes(payload + v % half_vectors * float_lanes);
      const Integers codes = v < half_vectors ? bytes << 28 >> 28 : bytes >> 4;
      values.vectors[v] = __builtin_convertvector(codes, Floats) * scale;
    }
  }
  return values;
}

/// Encodes a block: stores its scale and codes. If there is a residual, adds it to the values first, and stores in it
/// what the encoding lost. A block with an infinity or NaN gets the scale NaN, and its residual stays as it is.
template <WireFormat format>
[[gnu::always_inline]] inline void encode_values(Values values, std::uint8_t* payload, float* scale,
                                                 unsigned char* residual) {
  if (residual != nullptr) {
    const Values carried = load_values<DataType::float32>(residual);
    for (int v = 0; v < block_vectors; ++v) values.vectors[v] = values.vectors[v] + carried.vectors[v];
  }
  const std::uint32_t largest = largest_magnitude(values);
  if (largest >= FloatFormat<float>::infinity) {
    constexpr std::uint32_t nan = FloatFormat<float>::canonical_nan;
    std::memcpy(scale, &nan, sizeof nan);
    std::memset(payload, 0, format == WireFormat::int4 ? block_elements / 2 : block_elements);
    return;
  }
  *scale = scale_of<format>(largest);
  store_codes<format>(payload, values, 1.0F / *scale);
  if (residual != nullptr) {
    const Values decoded = load_codes<format>(payload, *scale);
    for (int v = 0; v < block_vectors; ++v) values.vectors[v] = values.vectors[v] - decoded.vectors[v];
    store_values<DataType::float32>(residual, values);
  }
}

template <WireFormat format, DataType type>
struct Kernel {
  static constexpr std::size_t width = element_bytes<type>;
  static constexpr std::size_t payload_bytes = format == WireFormat::int4 ? block_elements / 2 : block_elements;

  static void encode(const EncodeCall& call) {
    const auto* elements = static_cast<const unsigned char*>(call.elements);
    auto* residual = reinterpret_cast<unsigned char*>(call.residual);
    std::size_t block = 0;
    std::size_t first = 0;
    for (; first + block_elements <= call.count; first += block_elements, ++block) {
      unsigned char* const carried = residual == nullptr ? nullptr : residual + first * sizeof(float);
      encode_values<format>(load_values<type>(elements + first * width), call.payload + block * payload_bytes,
                            call.scales + block, carried);
    }
    if (first == call.count) return;
    const std::size_t rest = call.count - first;
    unsigned char padded[block_elements * width] = {};
    unsigned char carried[block_elements * sizeof(float)] = {};
    std::memcpy(padded, elements + first * width, rest * width);
    if (residual != nullptr) std::memcpy(carried, residual + first * sizeof(float), rest * sizeof(float));
    encode_values<format>(load_values<type>(padded), call.payload + block * payload_bytes, call.scales + block,
                          residual == nullptr ? nullptr : carried);
    if (residual != nullptr) std::memcpy(residual + first * sizeof(float), carried, rest * sizeof(float));
  }

  template <bool adds>
  [[gnu::always_inline]] static void decode_block(unsigned char* elements, const std::uint8_t* payload, float scale) {
    Values values = load_codes<format>(payload, scale);
    if constexpr (adds) {
      const Values sums = load_values<type>(elements);
      for (int v = 0; v < block_vectors; ++v) values.vectors[v] = sums.vectors[v] + values.vectors[v];
    }
    store_values<type>(elements, values);
  }

  template <bool adds>
  static void decode(const DecodeCall& call) {
    auto* elements = static_cast<unsigned char*>(call.elements);
    std::size_t block = 0;
    std::size_t first = 0;
    for (; first + block_elements <= call.count; first += block_elements, ++block)
      decode_block<adds>(elements + first * width, call.payload + block * payload_bytes, call.scales[block]);
    if (first == call.count) return;
    const std::size_t rest = call.count - first;
    unsigned char padded[block_elements * width] = {};
    std::memcpy(padded, elements + first * width, rest * width);
    decode_block<adds>(padded, call.payload + block * payload_bytes, call.scales[block]);
    std::memcpy(elements + first * width, padded, rest * width);
  }
};

template <WireFormat format>
struct Recoder {
  static constexpr std::size_t payload_bytes = format == WireFormat::int4 ? block_elements / 2 : block_elements;

  /// Returns the sum of one block over all sources, divided by the divisor if there is one. In every source, `payload`
  /// and `scale` are the byte offsets of the block's codes and scale.
  [[gnu::always_inline]] static Values sum(const RecodeCall& call, std::size_t payload, std::size_t scale) {
    Values sums = load_codes<format>(call.sources[0] + payload, load_unaligned<float>(call.sources[0] + scale));
    for (std::size_t s = 1; s < call.source_count; ++s) {
      const std::uint8_t* const source = call.sources[s];
      const Values next = load_codes<format>(source + payload, load_unaligned<float>(source + scale));
      for (int v = 0; v < block_vectors; ++v) sums.vectors[v] = sums.vectors[v] + next.vectors[v];
    }
    if (call.divisor != 0)
      for (int v = 0; v < block_vectors; ++v) sums.vectors[v] = sums.vectors[v] / static_cast<float>(call.divisor);
    return sums;
  }

  static void recode(const RecodeCall& call) {
    const std::size_t run_bytes = call.run_blocks * (payload_bytes + sizeof(float));
    for (std::size_t run = 0; run < call.runs; ++run)
      for (std::size_t block = 0; block < call.run_blocks; ++block) {
        const std::size_t payload = run * run_bytes + block * payload_bytes;
        const std::size_t scale = run * run_bytes + call.run_blocks * payload_bytes + block * sizeof(float);
        float result = 0;
        encode_values<format>(sum(call, payload, scale), call.result + payload, &result, nullptr);
        std::memcpy(call.result + scale, &result, sizeof result);
      }
  }
};

template <WireFormat format, DataType type>
constexpr void fill_type(QuantizeTable& table) {
  constexpr int f = static_cast<int>(format);
  table.encode[f][wire_type_index(type)] = Kernel<format, type>::encode;
  table.decode[f][wire_type_index(type)] = Kernel<format, type>::template decode<false>;
}

template <WireFormat format>
constexpr void fill_format(QuantizeTable& table) {
  fill_type<format, DataType::float32>(table);
  fill_type<format, DataType::bfloat16>(table);
  fill_type<format, DataType::float16>(table);
  table.set[static_cast<int>(format)] = Kernel<format, DataType::float32>::template decode<false>;
  table.add[static_cast<int>(format)] = Kernel<format, DataType::float32>::template decode<true>;
  table.recode[static_cast<int>(format)] = Recoder<format>::recode;
}

constexpr QuantizeTable make_table() {
  QuantizeTable table = {};
  fill_format<WireFormat::int8>(table);
  fill_format<WireFormat::fp8>(table);
  fill_format<WireFormat::int4>(table);
  return table;
}

}  // namespace

extern constexpr QuantizeTable STRAIT_QUANTIZE_TABLE = make_table();

}  // namespace strait::host
