#include "host/collective_case.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/island_reference.hpp"
#include "support/random_data.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"
#include "support/wire_reference.hpp"

namespace strait::testing {
namespace {

constexpr std::size_t guard_bytes = 64;
constexpr std::byte poison{0xa5};

/// A buffer at a chosen misalignment with guards on both sides.
struct Buffer {
  Buffer(std::size_t bytes, std::size_t misalignment_bytes)
      : storage(bytes + 2 * guard_bytes + misalignment_bytes + 64, poison), size(bytes) {
    const auto address = reinterpret_cast<std::uintptr_t>(storage.data() + guard_bytes);
    data = storage.data() + guard_bytes + (64 - address % 64) % 64 + misalignment_bytes;
  }
  bool guards_intact() const {
    for (const std::byte* p = storage.data(); p < storage.data() + storage.size(); ++p)
      if ((p < data || p >= data + size) && *p != poison) return false;
    return true;
  }
  Bytes storage;
  std::byte* data;
  std::size_t size;
};

/// Reduces most values to a moderate size. One element that is not finite makes its wire format block NaN, and so do
/// sums of large elements: random data would be all NaN in a wire format. Two blocks of three get moderate numbers.
void moderate(Bytes& elements, DataType type, std::uint64_t seed) {
  std::vector<float> values = to_floats(type, elements);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / wire::block_elements % 3 != 1)
      values[i] = static_cast<float>(static_cast<std::int32_t>(mix(seed + i))) * 0x1p-24F;
  elements = to_elements(type, values);
}

}  // namespace

Bytes random_input(const CollectiveCase& c, std::uint32_t ranks, std::uint32_t rank) {
  Bytes input(buffer_bytes(c, ranks).send);
  fill_random(input, c.type, c.seed * 1000 + rank);
  if (c.wire != WireFormat::off) moderate(input, c.type, c.seed * 1000 + rank);
  return input;
}

Bytes random_scalar(const CollectiveCase& c, std::uint32_t rank) {
  return random_elements(c.type, 1, c.seed * 1000 + 500 + rank);
}

bool has_scalar_address(const CollectiveCase& c) { return c.count % 2 == 1; }

PremulScalar premul_scalar(const CollectiveCase& c, const Bytes& scalar) {
  PremulScalar named{.is_address = has_scalar_address(c)};
  if (named.is_address)
    named.bits = reinterpret_cast<std::uintptr_t>(scalar.data());
  else
    std::memcpy(&named.bits, scalar.data(), scalar.size());
  return named;
}

Bytes expected_output(const CollectiveCase& c, const std::vector<Bytes>& inputs, const std::vector<Bytes>& scalars,
                      std::uint32_t rank) {
  const ReferenceCall reference{.collective = c.collective,
                                .type = c.type,
                                .op = c.op,
                                .root = c.root,
                                .premul_scalars = scalars,
                                .inputs = inputs};
  if (c.wire != WireFormat::off) return wire_island_reference_output(c.wire, reference, rank, c.islands);
  return c.islands.empty() ? reference_output(reference, rank) : island_reference_output(reference, rank, c.islands);
}

BufferBytes buffer_bytes(const CollectiveCase& c, std::uint32_t ranks) {
  const std::size_t one = c.count * size_bytes(c.type);
  switch (c.collective) {
    case Collective::all_gather:
    case Collective::gather:
      return {one, one * ranks};
    case Collective::reduce_scatter:
    case Collective::scatter:
      return {one * ranks, one};
    case Collective::all_to_all:
      return {one * ranks, one * ranks};
    default:
      return {one, one};
  }
}

straitResult_t call_with_options(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                                 straitComm_t comm, straitStream_t stream, float* residual) {
  const auto type = static_cast<straitDataType_t>(c.type);
  const auto root = static_cast<int>(c.root);
  straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
  options.wire = straitWireOff + static_cast<int>(c.wire);
  options.residual = residual;
  options.max_sms = static_cast<int>(c.max_sms);
  if (!c.algorithm.empty()) options.algorithm = c.algorithm.c_str();
  switch (c.collective) {
    case Collective::all_gather:
      return straitAllGatherWithOptions(send, receive, c.count, type, comm, stream, &options);
    case Collective::reduce_scatter:
      return straitReduceScatterWithOptions(send, receive, c.count, type, op, comm, stream, &options);
    case Collective::all_to_all:
      return straitAllToAllWithOptions(send, receive, c.count, type, comm, stream, &options);
    case Collective::broadcast:
      return straitBroadcastWithOptions(send, receive, c.count, type, root, comm, stream, &options);
    case Collective::reduce:
      return straitReduceWithOptions(send, receive, c.count, type, op, root, comm, stream, &options);
    case Collective::gather:
      return straitGatherWithOptions(send, receive, c.count, type, root, comm, stream, &options);
    case Collective::scatter:
      return straitScatterWithOptions(send, receive, c.count, type, root, comm, stream, &options);
    default:
      return straitAllReduceWithOptions(send, receive, c.count, type, op, comm, stream, &options);
  }
}

straitResult_t call_collective(const CollectiveCase& c, const void* send, void* receive, straitRedOp_t op,
                               straitComm_t comm, straitStream_t stream) {
  if (c.wire != WireFormat::off || c.max_sms != 0 || !c.algorithm.empty())
    return call_with_options(c, send, receive, op, comm, stream);
  const auto type = static_cast<straitDataType_t>(c.type);
  const int root = static_cast<int>(c.root);
  switch (c.collective) {
    case Collective::all_reduce:
      return straitAllReduce(send, receive, c.count, type, op, comm, stream);
    case Collective::all_gather:
      return straitAllGather(send, receive, c.count, type, comm, stream);
    case Collective::reduce_scatter:
      return straitReduceScatter(send, receive, c.count, type, op, comm, stream);
    case Collective::all_to_all:
      return straitAllToAll(send, receive, c.count, type, comm, stream);
    case Collective::broadcast:
      return straitBroadcast(send, receive, c.count, type, root, comm, stream);
    case Collective::reduce:
      return straitReduce(send, receive, c.count, type, op, root, comm, stream);
    case Collective::gather:
      return straitGather(send, receive, c.count, type, root, comm, stream);
    case Collective::scatter:
      return straitScatter(send, receive, c.count, type, root, comm, stream);
    default:
      return straitBarrier(comm, stream);
  }
}

std::size_t own_offset(const CollectiveCase& c, std::uint32_t rank) {
  switch (c.collective) {
    case Collective::all_gather:
    case Collective::gather:
    case Collective::reduce_scatter:
    case Collective::scatter:
      return rank * c.count * size_bytes(c.type);
    default:
      return 0;
  }
}

std::string describe(const CollectiveCase& c) {
  return std::string(name(c.collective)) + " " + std::string(name(c.type)) + " " + std::string(name(c.op)) + " count " +
         std::to_string(c.count) + " root " + std::to_string(c.root) + (c.in_place ? " in place" : "") +
         " misaligned by " + std::to_string(c.misalignment_bytes) + " wire " + std::string(name(c.wire)) +
         (c.max_sms == 0 ? "" : " on " + std::to_string(c.max_sms) + " blocks") +
         (c.algorithm.empty() ? "" : " by " + c.algorithm);
}

void check_collective(straitComm_t comm, int rank_number, int rank_count, const CollectiveCase& c) {
  const auto rank = static_cast<std::uint32_t>(rank_number);
  const auto ranks = static_cast<std::uint32_t>(rank_count);
  const BufferBytes sizes = buffer_bytes(c, ranks);
  std::vector<Bytes> inputs, scalars;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    inputs.push_back(random_input(c, ranks, r));
    scalars.push_back(random_scalar(c, r));
  }
  auto op = static_cast<straitRedOp_t>(c.op);
  if (c.op == ReduceOp::premul_sum)
    STRAIT_EXPECT_OK(straitRedOpCreatePreMulSum(&op, scalars[rank].data(), static_cast<straitDataType_t>(c.type),
                                                has_scalar_address(c) ? straitScalarDevice : straitScalarHostImmediate,
                                                comm));

  Buffer send(std::max(sizes.send, c.in_place ? sizes.receive : 0), c.misalignment_bytes);
  Buffer receive(sizes.receive, c.misalignment_bytes);
  const bool inside_receive = c.in_place && sizes.receive > sizes.send;
  std::byte* input = send.data + (inside_receive ? own_offset(c, rank) : 0);
  std::byte* output = !c.in_place ? receive.data : send.data + (inside_receive ? 0 : own_offset(c, rank));
  std::copy(inputs[rank].begin(), inputs[rank].end(), input);

  STRAIT_EXPECT_OK(call_collective(c, input, output, op, comm));

  const Bytes expected = expected_output(c, inputs, scalars, rank);
  EXPECT_EQ(first_difference(expected, std::span(output, expected.size()), c.type, inputs), "")
      << describe(c) << " on rank " << rank << " of " << ranks;
  EXPECT_TRUE(send.guards_intact() && receive.guards_intact()) << describe(c);
  if (!c.in_place) {
    EXPECT_TRUE(std::equal(inputs[rank].begin(), inputs[rank].end(), input)) << describe(c) << " changed its input";
    if (expected.empty()) {
      EXPECT_EQ(Bytes(output, output + sizes.receive), Bytes(sizes.receive, poison)) << describe(c);
    }
  }
  if (c.op == ReduceOp::premul_sum) STRAIT_EXPECT_OK(straitRedOpDestroy(op, comm));
}

}  // namespace strait::testing
