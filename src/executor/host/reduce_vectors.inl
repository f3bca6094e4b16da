/// Vectors of accumulators, and their conversion from and to elements. Included by reduce_kernels.inl and
/// quantize_kernels.inl.
namespace strait::host {
namespace {

constexpr int vector_bytes = STRAIT_VECTOR_BYTES;

template <class T, int lanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(lanes * sizeof(T))));
};
template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::Type;

/// Number of 32-bit lanes of a vector, in which small floats are converted.
constexpr int float_lanes = vector_bytes / 4;
using Floats = Vector<float, float_lanes>;
using Words = Vector<std::uint32_t, float_lanes>;
using Integers = Vector<std::int32_t, float_lanes>;

template <int size_bytes>
using Block = Vector<std::uint8_t, size_bytes>;

#if STRAIT_VECTOR_BYTES == 64
/// Selects all lanes. The masked forms of the intrinsics start from zeros, the others from a variable that is not
/// initialised, about which GCC 12 warns.
constexpr __mmask16 all = 0xffff;
#endif

template <class To, class From>
[[gnu::always_inline]] inline To as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

template <class T>
[[gnu::always_inline]] inline T load_unaligned(const void* pointer) {
  T value;
  std::memcpy(&value, pointer, sizeof(T));
  return value;
}

/// Loads `float_lanes` elements and zero-extends them. Elements have 2 bytes; in the portable code also 1.
template <class E>
[[gnu::always_inline]] inline Words widen(const void* pointer) {
#if STRAIT_VECTOR_BYTES == 64
  static_assert(sizeof(E) == 2);
  return as<Words>(_mm512_maskz_cvtepu16_epi32(all, load_unaligned<__m256i>(pointer)));
#elif STRAIT_VECTOR_BYTES == 32
  static_assert(sizeof(E) == 2);
  return as<Words>(_mm256_cvtepu16_epi32(load_unaligned<__m128i>(pointer)));
#else
  using Bits = typename FloatFormat<E>::Bits;
  return __builtin_convertvector(load_unaligned<Vector<Bits, float_lanes>>(pointer), Words);
#endif
}

/// Returns the low 1 or 2 bytes of each lane. The other bytes must be zero.
template <class E>
[[gnu::always_inline]] inline Block<float_lanes * sizeof(E)> narrow(Words words) {
  using Result = Block<float_lanes * sizeof(E)>;
#if STRAIT_VECTOR_BYTES == 64
  if constexpr (sizeof(E) == 2) return as<Result>(_mm512_maskz_cvtepi32_epi16(all, as<__m512i>(words)));
  if constexpr (sizeof(E) == 1) return as<Result>(_mm512_maskz_cvtepi32_epi8(all, as<__m512i>(words)));
#elif STRAIT_VECTOR_BYTES == 32
  const __m256i pairs = as<__m256i>(words);
  const __m128i shorts = _mm_packus_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  if constexpr (sizeof(E) == 2) return as<Result>(shorts);
  if constexpr (sizeof(E) == 1) return as<Result>(_mm_cvtsi128_si64(_mm_packus_epi16(shorts, shorts)));
#else
  using Bits = typename FloatFormat<E>::Bits;
  return as<Result>(__builtin_convertvector(words, Vector<Bits, float_lanes>));
#endif
}

/// Like strait::to_float, except that a NaN keeps its payload; it becomes canonical when it is stored.
template <class E>
[[gnu::always_inline]] inline Floats to_floats(Words bits) {
  using Format = FloatFormat<E>;
  using Wide = Widening<E>;
  if constexpr (!Wide::subnormals_become_normal) {
    return as<Floats>(bits << Wide::shift);
  } else {
    const Words magnitude = bits & Format::magnitude_mask;
    const Words sign = (bits & Format::sign_mask) << (32 - 8 * static_cast<int>(sizeof(E)));
    const Words normal = (magnitude << Wide::shift) + Wide::rebias;
    const Words one_up = normal + (1u << 23);
    const Words smallest_normal = Words{} + Wide::smallest_normal;
    const Words subnormal = as<Words>(as<Floats>(one_up) - as<Floats>(smallest_normal));
    const Integers is_subnormal = as<Integers>(magnitude) < (1 << Format::mantissa_bits);
    Words value = is_subnormal ? subnormal : normal;
    // Infinity and NaN (in e4m3, only NaN) get the float's highest exponent. The NaN of e4m3 already has a mantissa.
    const Integers is_special = as<Integers>(magnitude) >= Format::infinity;
    value = is_special ? (normal | FloatFormat<float>::infinity) : value;
    return as<Floats>(value | sign);
  }
}

/// Like strait::from_float. The element is in the low bits of its lane.
template <class E>
[[gnu::always_inline]] inline Words from_floats(Floats value) {
  using Format = FloatFormat<E>;
  using Wide = Widening<E>;
  const Words bits = as<Words>(value);
  const Words magnitude = bits & 0x7fffffffu;
  const Words half = ((bits >> Wide::shift) & 1u) + ((1u << (Wide::shift - 1)) - 1);
  const Words nan = Words{} + static_cast<std::uint32_t>(Format::canonical_nan);
  if constexpr (!Wide::subnormals_become_normal) {
    return value != value ? nan : (bits + half) >> Wide::shift;  // a carry reaches infinity at most, never the sign
  } else {
    const Words rounder = Words{} + Wide::rounder;
    const Words subnormal = as<Words>(as<Floats>(magnitude) + as<Floats>(rounder)) - rounder;
    const Integers is_subnormal = as<Integers>(magnitude) < static_cast<std::int32_t>(Wide::smallest_normal);
    Words rounded = is_subnormal ? subnormal : (magnitude - Wide::rebias + half) >> Wide::shift;
    const Words overflow = Words{} + static_cast<std::uint32_t>(Format::infinity);
    rounded = as<Integers>(rounded) > static_cast<std::int32_t>(Format::infinity) ? overflow : rounded;
    const Words sign = (bits >> (32 - 8 * static_cast<int>(sizeof(E)))) & Format::sign_mask;
    if constexpr (Format::has_infinity) return value != value ? nan : rounded | sign;
    if constexpr (!Format::has_infinity) return rounded == nan ? nan : rounded | sign;
  }
}

#if STRAIT_VECTOR_BYTES >= 32
/// Lanes of float16, which the processor converts in hardware.
using Halves = Vector<std::uint16_t, float_lanes>;

[[gnu::always_inline]] inline Floats to_floats(Halves halves) {
#if STRAIT_VECTOR_BYTES == 64
  return as<Floats>(_mm512_maskz_cvtph_ps(all, as<__m256i>(halves)));
#else
  return as<Floats>(_mm256_cvtph_ps(as<__m128i>(halves)));
#endif
}

/// Loads elements of one byte into the upper bytes of lanes: an e5m2 is the upper byte of a float16.
[[gnu::always_inline]] inline Halves load_upper_bytes(const void* pointer) {
#if STRAIT_VECTOR_BYTES == 64
  return as<Halves>(_mm256_cvtepu8_epi16(load_unaligned<__m128i>(pointer))) << 8;
#else
  return as<Halves>(_mm_cvtepu8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(pointer)))) << 8;
#endif
}
#endif

/// Loads elements of a small float as floats. A NaN may have any payload.
template <class E>
[[gnu::always_inline]] inline Floats load_small(const void* pointer) {
#if STRAIT_VECTOR_BYTES >= 32
  constexpr int mantissa_bits = FloatFormat<E>::mantissa_bits;
  if constexpr (mantissa_bits == 10) return to_floats(load_unaligned<Halves>(pointer));
  if constexpr (mantissa_bits == 2) return to_floats(load_upper_bytes(pointer));
  if constexpr (mantissa_bits == 3) {
    // Shifted right by one bit, e4m3 is a float16 that is too small by a factor of 2^8. Its NaN comes out as 480, a
    // value that no other element has.
    const Halves upper = load_upper_bytes(pointer);
    const Floats value = to_floats((upper & 0x8000) | ((upper & 0x7fff) >> 1)) * 256.0F;
    const Floats nan = as<Floats>(Words{} + FloatFormat<float>::canonical_nan);
    const Words magnitude = as<Words>(value) & 0x7fffffffu;
    return magnitude == 0x43f00000u ? nan : value;
  }
  if constexpr (mantissa_bits == 7) return to_floats<E>(widen<E>(pointer));
#else
  return to_floats<E>(widen<E>(pointer));
#endif
}

/// Rounds floats to elements of a small float.
template <class E>
[[gnu::always_inline]] inline Block<float_lanes * sizeof(E)> round_small(Floats value) {
#if STRAIT_VECTOR_BYTES >= 32
  if constexpr (FloatFormat<E>::mantissa_bits == 10) {
    const Floats nan = as<Floats>(Words{} + FloatFormat<float>::canonical_nan);
    value = value != value ? nan : value;
#if STRAIT_VECTOR_BYTES == 64
    return as<Block<32>>(_mm512_maskz_cvtps_ph(all, as<__m512>(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    return as<Block<16>>(_mm256_cvtps_ph(as<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
#endif
  } else
#endif
    return narrow<E>(from_floats<E>(value));
}

template <int size_bytes>
[[gnu::always_inline]] inline void store_block(void* pointer, Block<size_bytes> block, bool streaming) {
#if defined(__x86_64__)
  if (streaming && reinterpret_cast<std::uintptr_t>(pointer) % size_bytes == 0) {
#if STRAIT_VECTOR_BYTES == 64
    if constexpr (size_bytes == 64) return _mm512_stream_si512(static_cast<__m512i*>(pointer), as<__m512i>(block));
#endif
#if STRAIT_VECTOR_BYTES >= 32
    if constexpr (size_bytes == 32) return _mm256_stream_si256(static_cast<__m256i*>(pointer), as<__m256i>(block));
#endif
    if constexpr (size_bytes == 16) return _mm_stream_si128(static_cast<__m128i*>(pointer), as<__m128i>(block));
    if constexpr (size_bytes == 8) return _mm_stream_si64(static_cast<long long*>(pointer), as<long long>(block));
    if constexpr (size_bytes == 4) return _mm_stream_si32(static_cast<int*>(pointer), as<int>(block));
  }
#endif
  static_cast<void>(streaming);
  std::memcpy(pointer, &block, size_bytes);
}

}  // namespace
}  // namespace strait::host
