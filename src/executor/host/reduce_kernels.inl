/// The reduction kernels of one instruction set. Each reduce_<name>.cpp includes this once, compiled for its processors
/// with STRAIT_VECTOR_BYTES and STRAIT_KERNEL_TABLE set. All of it has internal linkage, and it calls no inline
/// function from elsewhere (see KernelCall).
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/reduce_spec.hpp"
#include "executor/host/reduce_kernels.hpp"
#include "executor/host/reduce_vectors.inl"

namespace strait::host {
namespace {

/// The unsigned type of an accumulator's size. Integers wrap around in it, whereas signed overflow would be undefined;
/// floats are handled in it bit by bit.
template <class Accumulator, bool floating>
struct Wraps {
  using Type = typename spec::detail::Unsigned<Accumulator>::Type;
};
template <class Accumulator>
struct Wraps<Accumulator, true> {
  using Type = typename FloatFormat<Accumulator>::Bits;
};

template <DataType type, Combine combination>
struct Kernel {
  using Element = spec::ElementType<type>;
  using Accumulator = spec::AccumulatorType<type>;
  static constexpr bool floating = is_floating(type);
  static constexpr bool small = floating && sizeof(Element) < sizeof(Accumulator);
  static constexpr int lanes = vector_bytes / sizeof(Accumulator);
  static constexpr int block_bytes = lanes * sizeof(Element);
  using Values = Vector<Accumulator, lanes>;
  using Wrapping = Vector<typename Wraps<Accumulator, floating>::Type, lanes>;

  static constexpr std::size_t width(bool wide) { return wide ? sizeof(Accumulator) : sizeof(Element); }

  [[gnu::always_inline]] static Values load_vector(const void* pointer, bool wide) {
    if constexpr (small) {
      if (!wide) return load_small<Element>(pointer);
    }
    static_cast<void>(wide);
    return load_unaligned<Values>(pointer);
  }

  [[gnu::always_inline]] static void store_vector(void* pointer, Values value, bool streaming) {
    if constexpr (small) {
      store_block<block_bytes>(pointer, round_small<Element>(value), streaming);
    } else {
      if constexpr (floating) {
        const Values nan = as<Values>(Wrapping{} + FloatFormat<Accumulator>::canonical_nan);
        value = value != value ? nan : value;
      }
      store_block<vector_bytes>(pointer, as<Block<vector_bytes>>(value), streaming);
    }
  }

  [[gnu::always_inline]] static Values multiply(Values a, Values b) {
    if constexpr (floating) return a * b;
    if constexpr (!floating) return as<Values>(as<Wrapping>(a) * as<Wrapping>(b));
  }

  [[gnu::always_inline]] static Values combine(Values a, Values b) {
    if constexpr (combination == Combine::prod) return multiply(a, b);
    if constexpr (combination == Combine::sum && floating) return a + b;
    if constexpr (combination == Combine::sum && !floating) return as<Values>(as<Wrapping>(a) + as<Wrapping>(b));
    if constexpr (combination == Combine::min && !floating) return b < a ? b : a;
    if constexpr (combination == Combine::max && !floating) return a < b ? b : a;
    if constexpr ((combination == Combine::min || combination == Combine::max) && floating) {
      // Each selection yields its second operand if the two are equal or one is NaN. So the OR of both is NaN if either
      // operand is, and -0 for zeros of different signs. max is min with all signs flipped.
      constexpr Wrapping no_flip = {};
      const Wrapping flip = combination == Combine::max ? no_flip + FloatFormat<Accumulator>::sign_mask : no_flip;
      const Values x = as<Values>(as<Wrapping>(a) ^ flip), y = as<Values>(as<Wrapping>(b) ^ flip);
      const Values one = x < y ? x : y, other = y < x ? y : x;
      return as<Values>((as<Wrapping>(one) | as<Wrapping>(other)) ^ flip);
    }
  }

  [[gnu::always_inline]] static Values divide(Values sum, std::uint32_t divisor) {
    if constexpr (floating) {
      return sum / static_cast<Accumulator>(divisor);
    } else {
      constexpr bool is_signed = Accumulator(-1) < Accumulator(0);
      for (int i = 0; i < lanes; ++i) {
        if constexpr (is_signed) sum[i] = static_cast<Accumulator>(static_cast<std::int64_t>(sum[i]) / divisor);
        if constexpr (!is_signed) sum[i] = static_cast<Accumulator>(static_cast<std::uint64_t>(sum[i]) / divisor);
      }
      return sum;
    }
  }

  /// Loads the last `rest` elements of a buffer (fewer than a vector); the other lanes are zero.
  static Values load_rest(const void* pointer, bool wide, std::size_t rest) {
    alignas(vector_bytes) unsigned char padded[vector_bytes] = {};
    std::memcpy(padded, pointer, rest * width(wide));
    return load_vector(padded, wide);
  }

  static void store_rest(void* pointer, Values value, std::size_t rest) {
    alignas(vector_bytes) unsigned char padded[vector_bytes];
    store_vector(padded, value, false);
    std::memcpy(pointer, padded, rest * sizeof(Element));
  }

  /// Reads a block from a source: `vectors` vectors, or if `rest` is not 0, `rest` elements of one vector.
  template <int vectors>
  [[gnu::always_inline]] static void read(const KernelCall& call, std::size_t source_index, std::size_t first,
                                          std::size_t rest, Values (&values)[vectors]) {
    const ReduceSource& source = call.sources[source_index];
    const auto* pointer = static_cast<const unsigned char*>(source.pointer) + first * width(source.wide);
    if (rest != 0) {
      values[0] = load_rest(pointer, source.wide, rest);
    } else if (small && source.wide) {
      for (int v = 0; v < vectors; ++v) values[v] = load_vector(pointer + v * vector_bytes, true);
    } else {
      for (int v = 0; v < vectors; ++v) values[v] = load_vector(pointer + v * block_bytes, false);
    }
  }

  template <int vectors>
  [[gnu::always_inline]] static void write(ReduceDestination destination, std::size_t first, std::size_t rest,
                                           const Values (&values)[vectors]) {
    auto* pointer = static_cast<unsigned char*>(destination.pointer) + first * sizeof(Element);
    if (rest != 0) {
      store_rest(pointer, values[0], rest);
    } else {
      for (int v = 0; v < vectors; ++v) store_vector(pointer + v * block_bytes, values[v], destination.streaming);
    }
  }

  /// Reduces one block from all sources to all destinations: `vectors` full vectors, or if `rest` is not 0, `rest`
  /// elements.
  template <int vectors>
  [[gnu::always_inline]] static void block(const KernelCall& call, std::size_t first, std::size_t rest) {
    Values sum[vectors];
    read(call, 0, first, rest, sum);
    for (std::size_t s = 1; s < call.source_count; ++s) {
      Values next[vectors];
      read(call, s, first, rest, next);
      for (int v = 0; v < vectors; ++v) sum[v] = combine(sum[v], next[v]);
    }
    if (combination == Combine::sum && call.divisor != 0) {
      for (int v = 0; v < vectors; ++v) sum[v] = divide(sum[v], call.divisor);
    }
    for (std::size_t d = 0; d < call.destination_count; ++d) write(call.destinations[d], first, rest, sum);
  }

  static void range(const KernelCall& call, std::size_t first, std::size_t end) {
    constexpr int unroll = 4;
    std::size_t i = first;
    for (; i + unroll * lanes <= end; i += unroll * lanes) block<unroll>(call, i, 0);
    for (; i + lanes <= end; i += lanes) block<1>(call, i, 0);
    if (i < end) block<1>(call, i, end - i);
  }

  static void run(const KernelCall& call) {
    const std::size_t head = elements_before_line(call);
    if (head != 0) range(call, 0, head);
    range(call, head, call.count);
  }

  /// Returns the number of elements before the first streaming destination reaches the start of a cache line.
  static std::size_t elements_before_line(const KernelCall& call) {
    constexpr std::size_t line_bytes = 64;
    for (std::size_t d = 0; d < call.destination_count; ++d) {
      const ReduceDestination& destination = call.destinations[d];
      if (!destination.streaming) continue;
      const std::size_t bytes = (0 - reinterpret_cast<std::uintptr_t>(destination.pointer)) % line_bytes;
      const std::size_t elements = bytes / sizeof(Element);
      return elements < call.count ? elements : call.count;
    }
    return 0;
  }
};

/// Copies with non-temporal stores to whole cache lines of the destination, whatever the alignment of the source.
void stream(void* destination, const void* source, std::size_t size_bytes) {
  constexpr std::size_t line_bytes = 64;
  auto* to = static_cast<unsigned char*>(destination);
  const auto* from = static_cast<const unsigned char*>(source);
  std::size_t i = (0 - reinterpret_cast<std::uintptr_t>(destination)) % line_bytes;
  if (i > size_bytes) i = size_bytes;
  std::memcpy(to, from, i);
  for (; i + line_bytes <= size_bytes; i += line_bytes) {
    Block<vector_bytes> line[line_bytes / vector_bytes];
    std::memcpy(line, from + i, line_bytes);
    for (std::size_t v = 0; v < line_bytes / vector_bytes; ++v)
      store_block<vector_bytes>(to + i + v * vector_bytes, line[v], true);
  }
  std::memcpy(to + i, from + i, size_bytes - i);
}

template <int type>
constexpr void fill_row(KernelTable& table) {
  constexpr DataType t = static_cast<DataType>(type);
  table.reduce[type][static_cast<int>(Combine::sum)] = Kernel<t, Combine::sum>::run;
  table.reduce[type][static_cast<int>(Combine::prod)] = Kernel<t, Combine::prod>::run;
  table.reduce[type][static_cast<int>(Combine::max)] = Kernel<t, Combine::max>::run;
  table.reduce[type][static_cast<int>(Combine::min)] = Kernel<t, Combine::min>::run;
  if constexpr (type + 1 < data_type_count) fill_row<type + 1>(table);
}

constexpr KernelTable make_table() {
  KernelTable table = {};
  fill_row<0>(table);
  table.stream = stream;
  return table;
}

}  // namespace

extern constexpr KernelTable STRAIT_KERNEL_TABLE = make_table();

}  // namespace strait::host
