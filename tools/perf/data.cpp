#include "perf/data.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/float_formats.hpp"
#include "base/hash.hpp"
#include "base/reduce_spec.hpp"

namespace strait::perf {
namespace {

constexpr std::size_t block_elements = 1024;
static_assert(block_elements % wire::block_elements == 0);
/// That a thread makes in as much time as it takes to start some.
constexpr std::size_t least_shared_elements = 64 * block_elements;
constexpr unsigned char poison_byte = 0xa5;

/// Keeps sign and mantissa of random bits and sets the exponent so that the magnitude lies between 1/4 and 4.
template <class E>
E near_one(std::uint64_t random) {
  using Format = FloatFormat<E>;
  using Bits = typename Format::Bits;
  constexpr Bits mantissa_mask = static_cast<Bits>((Bits{1} << Format::mantissa_bits) - 1);
  const auto exponent = static_cast<Bits>(Format::bias - 2 + static_cast<int>(mix(random) & 3));
  return from_bits<E>(static_cast<Bits>((static_cast<Bits>(random) & (Format::sign_mask | mantissa_mask)) |
                                        static_cast<Bits>(exponent << Format::mantissa_bits)));
}

/// Whole numbers whose sums over as many ranks as a type's mantissa has room for are exact; factors of 1 and -1.
template <DataType type>
void generate_exact(std::uint64_t key, ReduceOp op, std::size_t first, std::size_t count, void* out) {
  using Element = spec::ElementType<type>;
  auto* elements = static_cast<Element*>(out);
  constexpr std::uint64_t most = size_bytes(type) == 1 ? 1 : 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = mix(key + first + i);
    const double value = op == ReduceOp::prod
                             ? ((random & 1) != 0 ? 1 : -1)
                             : static_cast<double>(random % (2 * most + 1)) - static_cast<double>(most);
    elements[i] = spec::store<type>(static_cast<spec::AccumulatorType<type>>(value));
  }
}

template <DataType type>
void generate(std::uint64_t key, std::uint64_t shared_key, bool tame, std::size_t first, std::size_t count, void* out) {
  using Element = spec::ElementType<type>;
  auto* elements = static_cast<Element*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t random = mix(key + first + i);
    if constexpr (is_floating(type)) {
      // Which elements are special depends on the index alone: else few sums of many ranks would be ordinary.
      const bool may_be_special = !tame || (first + i) / wire::block_elements % 4 == 0;
      const bool any_bits = may_be_special && (mix(shared_key + first + i) & 3) == 0;
      using Bits = typename FloatFormat<Element>::Bits;
      elements[i] = any_bits ? from_bits<Element>(static_cast<Bits>(random)) : near_one<Element>(random);
    } else {
      elements[i] = static_cast<Element>(random);
    }
  }
}

template <WireFormat format>
void carry(float* values, std::size_t count) {
  for (std::size_t first = 0; first < count; first += wire::block_elements) {
    std::array<float, wire::block_elements> block{};
    std::array<std::uint8_t, wire::block_elements> payload{};
    float scale = 0;
    const std::size_t some = std::min(block.size(), count - first);
    std::copy_n(values + first, some, block.begin());
    wire::encode_block<format>(block.data(), payload.data(), &scale);
    wire::decode_block<format>(payload.data(), scale, block.data());
    std::copy_n(block.begin(), some, values + first);
  }
}

/// What values become on the wire, by the specification. The first starts a block.
void carry(WireFormat format, float* values, std::size_t count) {
  if (format == WireFormat::int8) carry<WireFormat::int8>(values, count);
  if (format == WireFormat::fp8) carry<WireFormat::fp8>(values, count);
  if (format == WireFormat::int4) carry<WireFormat::int4>(values, count);
}

void generate_carried(const Operation& operation, std::uint32_t rank, std::size_t first, std::size_t count, void* out) {
  generate_input(operation, rank, first, count, out);
  spec::visit(operation.type, [&]<DataType type>() {
    if constexpr (wire::is_wire_type(type)) {
      auto* elements = static_cast<spec::ElementType<type>*>(out);
      std::array<float, block_elements> values;
      for (std::size_t i = 0; i < count; ++i) values[i] = spec::load<type>(elements[i]);
      carry(operation.wire, values.data(), count);
      for (std::size_t i = 0; i < count; ++i) elements[i] = spec::store<type>(values[i]);
    }
  });
}

template <class Element>
std::uint64_t low_bytes_of(Element element) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof element);
  return bits;
}

template <DataType type>
void premultiply(const Operation& operation, std::uint32_t rank,
                 std::array<spec::ElementType<type>, block_elements>& elements) {
  const std::uint64_t bits = premul_scalar(operation, rank);
  spec::ElementType<type> scalar;
  std::memcpy(&scalar, &bits, sizeof scalar);
  for (auto& element : elements) element = spec::premultiplied<type>(element, scalar);
}

template <DataType type, ReduceOp op>
void reduce_in_rank_order(const Operation& operation, std::size_t first, std::size_t count, void* out) {
  using Element = spec::ElementType<type>;
  std::array<Element, block_elements> input{};
  std::array<spec::AccumulatorType<type>, block_elements> values, sums;
  for (std::uint32_t rank = 0; rank < operation.ranks; ++rank) {
    generate_input(operation, rank, first, count, input.data());
    if constexpr (op == ReduceOp::premul_sum) premultiply<type>(operation, rank, input);
    for (std::size_t i = 0; i < count; ++i) values[i] = spec::load<type>(input[i]);
    if constexpr (wire::is_wire_type(type)) carry(operation.wire, values.data(), count);
    for (std::size_t i = 0; i < count; ++i) sums[i] = rank == 0 ? values[i] : spec::combine<op>(sums[i], values[i]);
  }
  for (std::size_t i = 0; i < count; ++i) sums[i] = spec::finish<op>(sums[i], operation.ranks);
  if constexpr (wire::is_wire_type(type))  // the second hop
    if (operation.collective == Collective::all_reduce) carry(operation.wire, sums.data(), count);
  auto* elements = static_cast<Element*>(out);
  for (std::size_t i = 0; i < count; ++i) elements[i] = spec::store<type>(sums[i]);
}

void generate_reduced(const Operation& operation, std::size_t first, std::size_t count, void* out) {
  spec::visit(operation.type, [&]<DataType type>() {
    switch (operation.op) {
      case ReduceOp::prod:
        return reduce_in_rank_order<type, ReduceOp::prod>(operation, first, count, out);
      case ReduceOp::max:
        return reduce_in_rank_order<type, ReduceOp::max>(operation, first, count, out);
      case ReduceOp::min:
        return reduce_in_rank_order<type, ReduceOp::min>(operation, first, count, out);
      case ReduceOp::avg:
        return reduce_in_rank_order<type, ReduceOp::avg>(operation, first, count, out);
      case ReduceOp::premul_sum:
        return reduce_in_rank_order<type, ReduceOp::premul_sum>(operation, first, count, out);
      case ReduceOp::sum:
        return reduce_in_rank_order<type, ReduceOp::sum>(operation, first, count, out);
    }
  });
}

void generate_block(const Operation& operation, const Segment& segment, std::size_t from, std::size_t count,
                    void* out) {
  switch (segment.kind) {
    case Segment::Kind::poison:
      std::memset(out, poison_byte, count * size_bytes(operation.type));
      return;
    case Segment::Kind::input:
      return generate_input(operation, segment.rank, segment.source + from, count, out);
    case Segment::Kind::carried:
      return generate_carried(operation, segment.rank, segment.source + from, count, out);
    case Segment::Kind::reduced:
      return generate_reduced(operation, segment.source + from, count, out);
  }
}

/// Calls use(offset of the block in the buffer in elements, elements in the block, segment, offset in the segment), by
/// so many threads at once.
template <class Use>
void for_each_block(const Contents& contents, std::size_t threads, Use&& use) {
  const auto take = [&](std::size_t nth) {
    std::size_t number = 0;
    for (const Segment& segment : contents)
      for (std::size_t from = 0; from < segment.count; from += block_elements)
        if (number++ % threads == nth)
          use(segment.offset + from, std::min(block_elements, segment.count - from), segment, from);
  };
  std::vector<std::jthread> others;
  for (std::size_t nth = 1; nth < threads; ++nth) others.emplace_back(take, nth);
  take(0);
}

std::size_t threads_for(const Contents& contents, std::size_t threads) {
  const std::size_t elements = contents.empty() ? 0 : contents.back().offset + contents.back().count;
  return elements < least_shared_elements ? 1 : std::max<std::size_t>(threads, 1);
}

/// Puts a segment over what the contents hold there.
void overlay(Contents& contents, const Segment& top) {
  if (top.count == 0) return;
  const std::size_t top_end = top.offset + top.count;
  Contents result;
  for (const Segment& below : contents) {
    const std::size_t below_end = below.offset + below.count;
    if (below.offset < top.offset) {
      Segment head = below;
      head.count = std::min(below_end, top.offset) - below.offset;
      result.push_back(head);
    }
    if (below.offset <= top.offset && top.offset < below_end) result.push_back(top);
    if (below_end > top_end) {
      Segment tail = below;
      tail.offset = std::max(below.offset, top_end);
      tail.count = below_end - tail.offset;
      tail.source += tail.offset - below.offset;
      result.push_back(tail);
    }
  }
  contents = std::move(result);
}

Contents poisoned(std::size_t count) { return {{0, count + guard_elements, Segment::Kind::poison, 0, 0}}; }

/// Whether this rank's call reads its send buffer.
bool reads_input(const Operation& o) {
  return (o.collective != Collective::broadcast && o.collective != Collective::scatter) || o.rank == o.root;
}

/// What the call must write, offsets counted from the receive buffer's start.
Contents written(const Operation& o) {
  using Kind = Segment::Kind;
  const Geometry g = o.geometry(o.rank);
  const Kind arrived = o.wire == WireFormat::off ? Kind::input : Kind::carried;
  Contents result;
  switch (o.collective) {
    case Collective::all_reduce:
      return {{0, g.count, Kind::reduced, 0, 0}};
    case Collective::reduce:
      if (o.rank == o.root) result.push_back({0, g.count, Kind::reduced, 0, 0});
      return result;
    case Collective::reduce_scatter:
      return {{0, g.count, Kind::reduced, 0, o.rank * g.count}};
    case Collective::gather:
      if (o.rank != o.root) return result;
      [[fallthrough]];
    case Collective::all_gather:
      for (std::uint32_t r = 0; r < o.ranks; ++r) result.push_back({r * g.count, g.count, arrived, r, 0});
      return result;
    case Collective::all_to_all:
      for (std::uint32_t r = 0; r < o.ranks; ++r)
        result.push_back({r * g.count, g.count, arrived, r, o.rank * g.count});
      return result;
    case Collective::all_to_all_v: {
      const Blocks mine = all_to_all_v_blocks(g.count, o.type, o.ranks, o.rank);
      for (std::uint32_t r = 0; r < o.ranks; ++r) {
        const Blocks theirs = all_to_all_v_blocks(g.count, o.type, o.ranks, r);
        result.push_back(
            {mine.receive_offsets[r], mine.receive_counts[r], Kind::input, r, theirs.send_offsets[o.rank]});
      }
      return result;
    }
    case Collective::broadcast:
      return {{0, g.count, Kind::input, o.root, 0}};
    case Collective::scatter:
      return {{0, g.count, Kind::input, o.root, o.rank * g.count}};
    case Collective::send_recv:
      return {{0, g.count, Kind::input, (o.rank + o.ranks - 1) % o.ranks, 0}};
    case Collective::barrier:
      return result;
  }
  return result;
}

}  // namespace

std::uint64_t premul_scalar(const Operation& o, std::uint32_t rank) {
  return spec::visit(o.type, [&]<DataType type>() {
    using Element = spec::ElementType<type>;
    if constexpr (!is_floating(type))
      return low_bytes_of(static_cast<Element>(2 * rank + 3));
    else if (o.exact)
      return low_bytes_of(spec::store<type>(rank % 2 == 0 ? 1 : -1));
    else
      return low_bytes_of(near_one<Element>(mix(rank)));
  });
}

void generate_input(const Operation& o, std::uint32_t rank, std::size_t first, std::size_t count, void* out) {
  const std::uint64_t shared_key = mix(o.seed);
  const std::uint64_t key = mix(shared_key ^ (std::uint64_t{rank} + 1));
  const bool exact = o.exact && is_floating(o.type) && is_reduction(o.collective);
  spec::visit(o.type, [&]<DataType type>() {
    if (exact)
      generate_exact<type>(key, o.op, first, count, out);
    else
      generate<type>(key, shared_key, o.wire != WireFormat::off, first, count, out);
  });
}

Contents send_contents(const Operation& o) {
  const Geometry g = o.geometry(o.rank);
  Contents contents = poisoned(g.buffer_count());
  if (reads_input(o)) overlay(contents, {0, g.send_count, Segment::Kind::input, o.rank, 0});
  return contents;
}

Contents receive_contents_before(const Operation& o) {
  const Geometry g = o.geometry(o.rank);
  Contents contents = poisoned(g.buffer_count());
  if (o.in_place && reads_input(o)) overlay(contents, {g.send_offset, g.send_count, Segment::Kind::input, o.rank, 0});
  return contents;
}

Contents receive_contents_after(const Operation& o) {
  const Geometry g = o.geometry(o.rank);
  Contents contents = receive_contents_before(o);
  for (Segment segment : written(o)) {
    if (o.in_place) segment.offset += g.receive_offset;
    overlay(contents, segment);
  }
  return contents;
}

std::size_t extent_bytes(const Operation& o, const Contents& contents) {
  return contents.empty() ? 0 : (contents.back().offset + contents.back().count) * size_bytes(o.type);
}

void write(const Operation& o, const Contents& contents, void* buffer, std::size_t threads) {
  const std::size_t width = size_bytes(o.type);
  const auto put = [&](std::size_t offset, std::size_t count, const Segment& segment, std::size_t from) {
    generate_block(o, segment, from, count, static_cast<unsigned char*>(buffer) + offset * width);
  };
  for_each_block(contents, threads_for(contents, threads), put);
}

std::size_t count_wrong(const Operation& o, const Contents& contents, const void* buffer, std::size_t threads) {
  const std::size_t width = size_bytes(o.type);
  std::atomic<std::size_t> wrong{0};
  const auto compare = [&](std::size_t offset, std::size_t count, const Segment& segment, std::size_t from) {
    alignas(16) std::array<unsigned char, block_elements * sizeof(std::uint64_t)> expected;
    generate_block(o, segment, from, count, expected.data());
    const unsigned char* found = static_cast<const unsigned char*>(buffer) + offset * width;
    if (std::memcmp(found, expected.data(), count * width) == 0) return;
    for (std::size_t i = 0; i < count; ++i)
      wrong += std::memcmp(found + i * width, expected.data() + i * width, width) != 0 ? 1 : 0;
  };
  for_each_block(contents, threads_for(contents, threads), compare);
  return wrong;
}

}  // namespace strait::perf
