// Wire formats of GPU ranks on the CPU: the kernels on emulated threads, and the steps of whole calls, bit by bit.
#include "support/emulated_wire.hpp"
//
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <variant>
#include <vector>

#include "executor/host/quantize.hpp"
#include "host/collective_case.hpp"
#include "kernels/layout.hpp"
#include "launches/device_calls.hpp"
#include "support/calls.hpp"
#include "support/random_data.hpp"
#include "support/wire_collectives.hpp"

namespace strait::testing {
namespace {

using kernels::WireKernel;
using kernels::WirePass;

/// Returns blocks of every magnitude from subnormals on, of zeros, and with infinities and NaN.
std::vector<float> varied_values() {
  std::vector<float> values;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent)
    for (std::size_t i = 0; i < wire::block_elements; ++i) {
      const auto random = static_cast<std::uint32_t>(mix(i + 100'000 * exponent));
      const std::uint32_t below = std::min(exponent, random >> 24 & 15);
      values.push_back(from_bits<float>((random & 0x807fffffu) | (exponent - below) << 23));
    }
  values.insert(values.end(), wire::block_elements, -0.0F);
  values.insert(values.end(), wire::block_elements, std::numeric_limits<float>::max());
  values.insert(values.end(), 77, 1.0F / 3);
  values.push_back(std::numeric_limits<float>::infinity());
  return values;
}

/// Returns a pass over one run of a user's buffer.
WirePass one_run(void* elements, std::size_t count, Bytes& encoded) {
  WirePass pass{};
  pass.elements = static_cast<std::byte*>(elements);
  pass.encoded = encoded.data();
  pass.run_bytes = encoded.size();
  pass.stride = pass.run_elements = pass.total_elements = count;
  pass.run_blocks = static_cast<std::uint32_t>(wire::blocks_of(count));
  pass.runs = pass.sources = 1;
  return pass;
}

class WireKernels : public ::testing::TestWithParam<WireFormat> {};
INSTANTIATE_TEST_SUITE_P(Format, WireKernels, ::testing::ValuesIn(wire_formats),
                         [](const auto& format) { return std::string(name(format.param)); });

TEST_P(WireKernels, GiveTheBitsOfTheSpecification) {
  const std::vector<float> values = varied_values();
  for (const DataType type : wire_types) {
    Bytes elements = to_elements(type, values);
    const Bytes expected = encoded_reference(GetParam(), to_floats(type, elements));
    Bytes encoded(expected.size(), poison);
    const WirePass pass = one_run(elements.data(), values.size(), encoded);
    run({WireKernel::encode, GetParam(), type, pass, 2});
    EXPECT_EQ(encoded, expected) << name(type);
    run({WireKernel::decode, GetParam(), type, pass, 2});
    EXPECT_EQ(
        first_difference(to_elements(type, decoded_reference(GetParam(), expected, values.size())), elements, type),
        "");
  }
}

/// The host's encoder is tested against the specification; this kernel must leave the same residual.
TEST_P(WireKernels, LeaveTheResidualOfTheHost) {
  constexpr std::size_t count = 1000;
  for (const DataType type : wire_types) {
    CollectiveCase c;
    c.type = type;
    c.count = count;
    c.wire = GetParam();  // includes blocks that become NaN
    Bytes elements = random_input(c, 2, 0);
    std::vector<float> residual(count), expected_residual;
    for (std::size_t i = 0; i < count; ++i)
      residual[i] = static_cast<float>(static_cast<std::int32_t>(mix(i))) * 0x1p-26F;
    expected_residual = residual;
    Bytes expected(encoded_bytes(GetParam(), wire::blocks_of(count))), encoded(expected.size(), poison);
    encode({GetParam(), expected.data(), wire::blocks_of(count)}, type, elements.data(), count,
           expected_residual.data());
    WirePass pass = one_run(elements.data(), count, encoded);
    pass.residual = residual.data();
    const std::vector<float> before = residual;
    run({WireKernel::encode, GetParam(), type, pass, 2});
    EXPECT_EQ(encoded, expected) << name(type);
    EXPECT_EQ(first_difference(std::as_bytes(std::span(expected_residual)), std::as_bytes(std::span(residual)),
                               DataType::float32),
              "");
    EXPECT_NE(residual, before);
  }
}

/// The ranks of a host. A step is completed on all ranks before any rank begins the next.
class Machine {
 public:
  /// `averaged` is the number that averages divide by; 0: the number of ranks.
  Machine(std::uint32_t ranks, std::size_t scratch_bytes, std::uint32_t max_sms = 0, std::uint32_t averaged = 0)
      : averaged_(averaged == 0 ? ranks : averaged) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      scratch_.emplace_back(scratch_bytes + 16, poison);
      const auto address = reinterpret_cast<std::uintptr_t>(scratch_.back().data());
      quantized_.emplace_back(rank, ranks, averaged_, scratch_.back().data() + (16 - address % 16) % 16, scratch_bytes,
                              max_sms);
    }
  }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(quantized_.size()); }
  std::uint32_t averaged() const { return averaged_; }
  std::vector<QuantizedStep> steps(std::uint32_t rank, const Call& call) const {
    return quantized_[rank].steps_of(call);
  }

  void run_all(const std::vector<Call>& calls) {
    std::vector<std::vector<QuantizedStep>> steps;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) steps.push_back(quantized_[rank].steps_of(calls[rank]));
    for (std::size_t step = 0; step < steps[0].size(); ++step) {
      std::vector<Call> exchanged;
      for (auto& of_rank : steps) {
        ASSERT_EQ(of_rank.size(), steps[0].size());
        if (const auto* launch = std::get_if<WireLaunch>(&of_rank[step]))
          run(*launch);
        else
          exchanged.push_back(std::get<Call>(of_rank[step]));
      }
      if (!exchanged.empty()) exchange(exchanged);
    }
  }

 private:
  void exchange(const std::vector<Call>& calls) {
    ASSERT_EQ(calls.size(), ranks());
    std::vector<Bytes> inputs;
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const Call& call = calls[rank];
      EXPECT_TRUE(validate(call, rank, ranks()).has_value());
      EXPECT_EQ(signature(call), signature(calls[0]));
      EXPECT_EQ(call.count % 16, 0u);
      const BufferSizes sizes = buffer_sizes(call, rank, ranks());
      for (const auto& [buffer, size] :
           {std::pair<const void*, std::size_t>{call.send, sizes.send_bytes}, {call.receive, sizes.receive_bytes}}) {
        const auto* first = static_cast<const std::byte*>(buffer);
        ASSERT_TRUE(first >= scratch_[rank].data() && first + size <= scratch_[rank].data() + scratch_[rank].size());
      }
      const auto* send = static_cast<const std::byte*>(call.send);
      inputs.emplace_back(send, send + sizes.send_bytes);
    }
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const Bytes output =
          reference_output({.collective = calls[rank].collective, .type = DataType::uint8, .inputs = inputs}, rank);
      std::copy(output.begin(), output.end(), static_cast<std::byte*>(calls[rank].receive));
    }
  }

  std::uint32_t averaged_;
  std::vector<Bytes> scratch_;
  std::vector<DeviceQuantized> quantized_;
};

constexpr std::size_t ample = std::size_t{1} << 20;

TEST(WireSteps, GiveEveryCollectiveItsBits) {
  for (const std::uint32_t ranks : {2u, 3u, 5u}) {
    Machine machine(ranks, ample);
    check_wire_collectives(machine, {1, 127, 128, 129, 700});
  }
}

/// As if these ranks were a part of a larger communicator whose averages divide by six.
TEST(WireSteps, DivideByThoseWhoAreAveraged) {
  Machine machine(2, ample, 0, 6);
  check_wire_collectives(machine, {1, 129, 700});
}

/// Scratch for one or two blocks per rank: many passes, the last of them shorter.
TEST(WireSteps, TakeTurnsWhereScratchIsShort) {
  for (const std::size_t bytes : {std::size_t{2 * 3 * 144}, std::size_t{2 * 3 * 272}}) {
    Machine machine(3, bytes);
    check_wire_collectives(machine, {1000, 383, 650});
  }
}

/// This holds however many passes they take.
TEST(WireSteps, LeaveResidualsWhereTheyBelong) {
  Machine machine(3, 2 * 3 * 272);
  check_residuals(machine, 900);
}

TEST(WireSteps, AreBoundedByMaxSms) {
  CollectiveCase c;
  c.count = 1'000'000;
  c.wire = WireFormat::int8;
  const auto most = [&](std::uint32_t max_sms) {
    const Machine machine(2, DeviceQuantized::scratch_bytes, max_sms);
    std::uint32_t blocks = 0;
    for (const QuantizedStep& step : machine.steps(0, call_of(c, nullptr, nullptr, Bytes(4))))
      if (const auto* launch = std::get_if<WireLaunch>(&step)) blocks = std::max(blocks, launch->blocks);
    return blocks;
  };
  EXPECT_EQ(most(7), 7u);
  EXPECT_GT(most(0), 132u);
}

/// The bytes of one call are never taken for those of another, even if their number is the same.
TEST(WireSteps, ExchangesTellCallsApart) {
  const Machine machine(2, ample);
  const auto signature_of = [&](const CollectiveCase& c) {
    return signature(std::get<Call>(machine.steps(1, call_of(c, nullptr, nullptr, Bytes(4))).at(1)));
  };
  CollectiveCase c;
  c.count = 1000;
  c.wire = WireFormat::int8;
  const CallSignature own = signature_of(c);
  EXPECT_EQ(signature_of(c), own);
  CollectiveCase other = c;
  other.wire = WireFormat::fp8;
  EXPECT_NE(signature_of(other), own);
  other = c;
  other.type = DataType::bfloat16;
  EXPECT_NE(signature_of(other), own);
  other = c;
  other.op = ReduceOp::avg;
  EXPECT_NE(signature_of(other), own);
  other = c;
  other.count = 1001;
  EXPECT_NE(signature_of(other), own);
}

/// Calls are distinguished by a hash in place of the root, which is not the number of any rank.
TEST(WireSteps, ExchangesAreLaunchedLikeOthers) {
  kernels::Ring ring{};
  ring.ranks = 2;
  ring.staged = true;
  const kernels::ArenaLayout layout = kernels::arena_layout(kernels::ArenaKind::host, 2);
  std::copy(std::begin(layout.slots), std::end(layout.slots), ring.slots);
  const DeviceCalls calls(ring, nullptr, {});
  const Machine machine(2, ample);
  CollectiveCase c;
  c.count = 1000;
  c.wire = WireFormat::int8;
  for (const QuantizedStep& step : machine.steps(0, call_of(c, nullptr, nullptr, Bytes(4)))) {
    const auto* call = std::get_if<Call>(&step);
    if (call == nullptr) continue;
    EXPECT_GT(call->root, 31u);
    const auto launches = calls.launches_of(*call);
    ASSERT_EQ(launches.size(), 1u);
    const auto& exchange = std::get<kernels::Exchange>(launches[0].argument);
    for (const kernels::Message* message : {&exchange.send[1], &exchange.receive[0], &exchange.receive[1]})
      EXPECT_EQ(message->bytes, call->count);
  }
}

}  // namespace
}  // namespace strait::testing
