// Wire formats through the public interface: bits, error bounds, which calls may have one, and error feedback.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "host/collective_case.hpp"
#include "support/ranks.hpp"
#include "support/wire_reference.hpp"

namespace strait::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr WireFormat formats[] = {WireFormat::int8, WireFormat::fp8, WireFormat::int4};
constexpr DataType types[] = {DataType::float32, DataType::bfloat16, DataType::float16};
constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                      Collective::all_to_all};

void check_shapes(straitComm_t comm, int rank, int ranks) {
  std::uint64_t seed = 1;
  for (const WireFormat wire : formats)
    for (const DataType type : types)
      for (const Collective collective : collectives)
        for (const std::size_t count : {0u, 1u, 127u, 128u, 129u, 1000u, 9001u})
          for (const bool in_place : {false, true}) {
            CollectiveCase c;
            c.collective = collective;
            c.type = type;
            c.count = count;
            c.in_place = in_place;
            c.wire = wire;
            c.seed = ++seed;
            c.misalignment_bytes = seed % 3 == 0 ? size_bytes(type) : 0;
            if (is_reduction(collective) && seed % 4 == 0) c.op = ReduceOp::avg;
            if (is_reduction(collective) && seed % 4 == 1) c.op = ReduceOp::premul_sum;
            check_collective(comm, rank, ranks, c);
          }
}

/// Checks a call of several slices of the transport's slots, and of several pieces of the summation.
void check_large(straitComm_t comm, int rank, int ranks) {
  CollectiveCase c;
  c.count = 1'000'003;
  c.type = DataType::bfloat16;
  c.wire = WireFormat::int8;
  c.in_place = true;
  check_collective(comm, rank, ranks, c);
}

class WireThreads : public ::testing::TestWithParam<int> {};
TEST_P(WireThreads, Bits) { run_as_threads(GetParam(), check_shapes); }
TEST_P(WireThreads, BitsOfManySlices) { run_as_threads(GetParam(), check_large); }
INSTANTIATE_TEST_SUITE_P(Ranks, WireThreads, ::testing::Values(1, 2, 3, 4, 5));

TEST(WireProcesses, Bits) { run_as_processes(3, check_shapes); }

/// Runs ranks whose communicator has the wire format `wire` in its configuration.
template <class Body>
void run_configured(int ranks, int wire, Body&& body) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      straitConfig_t config = test_config();
      config.wire = wire;
      straitComm_t comm = nullptr;
      STRAIT_EXPECT_OK(straitCommInitRank(&comm, ranks, &id, rank, &config));
      if (comm == nullptr) return;
      body(comm, rank, ranks);
      STRAIT_EXPECT_OK(straitCommDestroy(comm));
    });
}

std::vector<float> waves(std::size_t count, int rank) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = std::sin(static_cast<float>(i * 7 + 1) * static_cast<float>(rank + 1));
  return values;
}

/// Expects the sum of waves as the format gives it, and that it differs from the exact one.
void expect_quantized(straitComm_t comm, int rank, int ranks, WireFormat format, std::size_t count = 5000) {
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(waves(count, r));
  std::vector<float> result(count);
  STRAIT_EXPECT_OK(straitAllReduce(inputs[static_cast<std::size_t>(rank)].data(), result.data(), count, straitFloat32,
                                   straitSum, comm, nullptr));
  const std::vector<float> expected = through_wire(format, wire_sum(format, ReduceOp::sum, inputs));
  EXPECT_EQ(result, expected);
  double largest_error = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double exact = 0;
    for (const auto& input : inputs) exact += input[i];
    largest_error = std::max(largest_error, std::abs(exact - result[i]));
  }
  EXPECT_GT(largest_error, 1e-4);
  EXPECT_LT(largest_error, format == WireFormat::int4 ? 0.6 : 0.2);
}

TEST(WireConfiguration, IsOfTheCommunicatorAndItsParts) {
  run_configured(3, straitWireInt8, [](straitComm_t comm, int rank, int ranks) {
    expect_quantized(comm, rank, ranks, WireFormat::int8);
    straitComm_t part = nullptr;
    STRAIT_EXPECT_OK(straitCommSplit(comm, rank == 2 ? 1 : 0, rank, &part, nullptr));
    if (rank != 2) expect_quantized(part, rank, 2, WireFormat::int8);
    STRAIT_EXPECT_OK(straitCommDestroy(part));
    straitConfig_t exact = test_config();
    exact.wire = straitWireOff;
    STRAIT_EXPECT_OK(straitCommSplit(comm, 0, rank, &part, &exact));
    CollectiveCase c;
    c.count = 1000;
    check_collective(part, rank, ranks, c);
    STRAIT_EXPECT_OK(straitCommDestroy(part));
  });
}

TEST(WireConfiguration, ByEnvironment) {
  setenv("STRAIT_WIRE", "fp8", 1);
  run_configured(2, straitWireDefault,
                 [](straitComm_t comm, int rank, int ranks) { expect_quantized(comm, rank, ranks, WireFormat::fp8); });
  run_configured(2, straitWireInt4, [](straitComm_t comm, int rank, int ranks) {  // overrides the environment
    expect_quantized(comm, rank, ranks, WireFormat::int4);
  });
  unsetenv("STRAIT_WIRE");
}

/// A format is used from 16 KB of the larger buffer on, unless another limit is set or the call itself asks for one.
TEST(WireConfiguration, LeavesSmallCallsExact) {
  const auto check = [](straitComm_t comm, int rank, int ranks) {
    CollectiveCase c;
    c.count = 4095;
    c.collective = Collective::all_reduce;
    const Bytes input = random_input(c, 2, static_cast<std::uint32_t>(rank));
    Bytes output(input.size());
    STRAIT_EXPECT_OK(straitAllReduce(input.data(), output.data(), c.count, straitFloat32, straitSum, comm, nullptr));
    const std::vector<Bytes> inputs{random_input(c, 2, 0), random_input(c, 2, 1)};
    const ReferenceCall exact{.type = DataType::float32, .inputs = inputs};
    EXPECT_EQ(first_difference(reference_output(exact, 0), output, DataType::float32), "");
    expect_quantized(comm, rank, ranks, WireFormat::int8, 4096);
    c.wire = WireFormat::int8;
    c.count = 100;
    check_collective(comm, rank, ranks, c);  // asked for by the call's options
  };
  run_configured(2, straitWireInt8, check);
  setenv("STRAIT_WIRE_BYTES", "0", 1);
  run_configured(2, straitWireInt8, [](straitComm_t comm, int rank, int ranks) {
    expect_quantized(comm, rank, ranks, WireFormat::int8, 1000);
  });
  unsetenv("STRAIT_WIRE_BYTES");
}

/// All-gathers and all-to-alls may carry parameters and checkpoints. They have the communicator's format only if
/// STRAIT_WIRE_CALLS says so; then their larger buffer counts.
TEST(WireConfiguration, LeavesCopiesExact) {
  const auto check = [](bool is_exact) {
    return [is_exact](straitComm_t comm, int rank, int ranks) {
      constexpr std::size_t count = 2048;  // 8 KB from each of two ranks
      const std::vector<float> mine = waves(2 * count, rank);
      std::vector<float> all(2 * count), exact(2 * count);
      const auto put = [&](int from, std::size_t at) {
        std::copy_n(waves(2 * count, from).begin() + static_cast<std::ptrdiff_t>(at), count,
                    exact.begin() + static_cast<std::ptrdiff_t>(count) * from);
      };
      for (int from = 0; from < ranks; ++from) put(from, 0);
      STRAIT_EXPECT_OK(straitAllGather(mine.data(), all.data(), count, straitFloat32, comm, nullptr));
      EXPECT_EQ(all == exact, is_exact);
      straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
      options.residual = exact.data();  // makes no sense, whether the call is exact or not
      EXPECT_EQ(straitAllGatherWithOptions(mine.data(), all.data(), count, straitFloat32, comm, nullptr, &options),
                straitInvalidArgument);
      for (int from = 0; from < ranks; ++from) put(from, count * static_cast<std::size_t>(rank));
      STRAIT_EXPECT_OK(straitAllToAll(mine.data(), all.data(), count, straitFloat32, comm, nullptr));
      EXPECT_EQ(all == exact, is_exact);
      expect_quantized(comm, rank, ranks, WireFormat::int8, 2 * count);
    };
  };
  run_configured(2, straitWireInt8, check(true));
  setenv("STRAIT_WIRE_CALLS", "all", 1);
  run_configured(2, straitWireInt8, check(false));
  unsetenv("STRAIT_WIRE_CALLS");
}

/// Each rank decides for itself whether it has a residual. That must not influence whether a call uses the format.
TEST(WireConfiguration, ResidualsOfSomeRanksAlone) {
  run_configured(2, straitWireInt4, [](straitComm_t comm, int rank, int) {
    for (const std::size_t count : {4095u, 4096u}) {
      const std::vector<float> mine = waves(count, rank);
      std::vector<float> sum(count), residual(count, 0.25F);
      straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
      options.residual = rank == 0 ? residual.data() : nullptr;
      STRAIT_EXPECT_OK(straitAllReduceWithOptions(mine.data(), sum.data(), count, straitFloat32, straitSum, comm,
                                                  nullptr, &options));
      const bool is_exact = count == 4095;
      EXPECT_EQ(sum[1] == waves(count, 0)[1] + waves(count, 1)[1], is_exact);
      EXPECT_EQ(residual == std::vector<float>(count, 0.25F), is_exact || rank != 0);
    }
  });
}

TEST(WireConfiguration, LeavesOtherCallsExact) {
  run_configured(2, straitWireInt8, [](straitComm_t comm, int rank, int ranks) {
    CollectiveCase c;
    c.count = 777;
    for (const Collective collective :
         {Collective::broadcast, Collective::reduce, Collective::gather, Collective::scatter}) {
      c.collective = collective;
      check_collective(comm, rank, ranks, c);
    }
    c.collective = Collective::all_reduce;
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::prod}) {
      c.op = op;
      check_collective(comm, rank, ranks, c);
    }
    c.op = ReduceOp::sum;
    for (const DataType type :
         {DataType::int32, DataType::int64, DataType::uint8, DataType::float64, DataType::float8_e5m2}) {
      c.type = type;
      check_collective(comm, rank, ranks, c);
    }
    straitCallOptions_t exact = STRAIT_CALL_OPTIONS_INITIALIZER;
    exact.wire = straitWireOff;
    const std::vector<float> mine = waves(50, rank), zero = waves(50, 0), one = waves(50, 1);
    std::vector<float> sum(50);
    STRAIT_EXPECT_OK(
        straitAllReduceWithOptions(mine.data(), sum.data(), 50, straitFloat32, straitSum, comm, nullptr, &exact));
    for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(sum[i], zero[i] + one[i]);
  });
}

TEST(WireConfiguration, RanksThatDifferAreTold) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      straitConfig_t config = test_config();
      config.wire = rank == 1 ? straitWireInt4 : straitWireInt8;
      straitComm_t comm = nullptr;
      EXPECT_EQ(straitCommInitRank(&comm, 3, &id, rank, &config), straitMismatch);
      EXPECT_THAT(straitGetLastError(nullptr), AllOf(HasSubstr("wire format"), HasSubstr("int8 on rank 0"),
                                                     HasSubstr("int4 on rank 1"), HasSubstr("STRAIT_WIRE")));
      EXPECT_EQ(comm, nullptr);
    });
}

TEST(WireConfiguration, RefusesWhatIsNoFormat) {
  straitUniqueId id;
  STRAIT_EXPECT_OK(straitGetUniqueId(&id));
  straitComm_t comm = nullptr;
  for (const int wire : {-1, 5}) {
    straitConfig_t config = test_config();
    config.wire = wire;
    EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, &config), straitInvalidArgument);
    EXPECT_THAT(straitGetLastError(nullptr), HasSubstr(std::to_string(wire) + " is no wire format"));
  }
  setenv("STRAIT_WIRE", "int2", 1);
  EXPECT_EQ(straitCommInitRank(&comm, 1, &id, 0, nullptr), straitInvalidArgument);
  EXPECT_THAT(straitGetLastError(nullptr), HasSubstr("off, int8, fp8, int4"));
  unsetenv("STRAIT_WIRE");
}

#define EXPECT_REFUSED(call, text)                                   \
  do {                                                               \
    EXPECT_EQ((call), straitInvalidArgument) << #call;               \
    EXPECT_THAT(straitGetLastError(comm), HasSubstr(text)) << #call; \
  } while (false)

/// Each refusal changes no buffer, and the communicator stays usable.
TEST(WireOptions, RefuseWhatHasNoWireFormat) {
  run_as_threads(2, [](straitComm_t comm, int rank, int ranks) {
    std::array<float, 256> send{}, receive{}, residual{};
    send.fill(3), receive.fill(5), residual.fill(7);
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireInt8;
    const auto all_reduce = [&](straitDataType_t type, straitRedOp_t op) {
      return straitAllReduceWithOptions(send.data(), receive.data(), 100, type, op, comm, nullptr, &options);
    };
    EXPECT_REFUSED(all_reduce(straitInt32, straitSum),
                   "all-reduce: a wire format is for float32, bfloat16 and float16");
    EXPECT_REFUSED(all_reduce(straitFloat64, straitSum), "not float64");
    EXPECT_REFUSED(all_reduce(straitFloat8e4m3, straitSum), "not float8_e4m3");
    EXPECT_REFUSED(all_reduce(straitFloat32, straitMax), "not max");
    EXPECT_REFUSED(all_reduce(straitFloat16, straitMin), "not min");
    EXPECT_REFUSED(all_reduce(straitBfloat16, straitProd), "not prod");
    EXPECT_REFUSED(straitAllGatherWithOptions(send.data(), receive.data(), 100, straitUint8, comm, nullptr, &options),
                   "not uint8");
    EXPECT_REFUSED(straitReduceScatterWithOptions(send.data(), receive.data(), 50, straitFloat32, straitMax, comm,
                                                  nullptr, &options),
                   "reduce-scatter: a wire format is for sums and averages");
    options.wire = 7;
    EXPECT_REFUSED(all_reduce(straitFloat32, straitSum), "7 is no wire format");
    options.wire = straitWireOff;
    options.residual = residual.data();
    EXPECT_REFUSED(all_reduce(straitFloat32, straitSum), "a residual is for calls with a wire format");
    options.wire = straitWireFp8;
    EXPECT_REFUSED(straitAllToAllWithOptions(send.data(), receive.data(), 50, straitFloat32, comm, nullptr, &options),
                   "a residual is for reductions");
    for (float* const place : {receive.data() + 99, send.data() + 99, send.data()}) {
      options.residual = place;
      EXPECT_REFUSED(all_reduce(straitFloat32, straitSum), "overlaps");
    }
    options.residual = nullptr;
    options.max_sms = -2;
    EXPECT_REFUSED(all_reduce(straitFloat32, straitSum), "max_sms in its options must not be negative");
    options = {};
    EXPECT_REFUSED(all_reduce(straitFloat32, straitSum), "STRAIT_CALL_OPTIONS_INITIALIZER");
    for (const float value : receive) EXPECT_EQ(value, 5);
    for (const float value : residual) EXPECT_EQ(value, 7);
    CollectiveCase c;
    c.count = 300;
    c.wire = WireFormat::int8;
    check_collective(comm, rank, ranks, c);
  });
}

TEST(WireOptions, StandInGroups) {
  run_as_threads(3, [](straitComm_t comm, int rank, int ranks) {
    std::vector<std::vector<float>> inputs;
    for (int r = 0; r < ranks; ++r) inputs.push_back(waves(700, r));
    const std::vector<float>& mine = inputs[static_cast<std::size_t>(rank)];
    std::vector<float> sum(700), all(2100);
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireInt8;
    STRAIT_EXPECT_OK(straitGroupStart());
    STRAIT_EXPECT_OK(
        straitAllReduceWithOptions(mine.data(), sum.data(), 700, straitFloat32, straitSum, comm, nullptr, &options));
    options.wire = straitWireInt4;
    STRAIT_EXPECT_OK(straitAllGatherWithOptions(mine.data(), all.data(), 700, straitFloat32, comm, nullptr, &options));
    STRAIT_EXPECT_OK(straitGroupEnd());
    EXPECT_EQ(sum, through_wire(WireFormat::int8, wire_sum(WireFormat::int8, ReduceOp::sum, inputs)));
    for (std::size_t r = 0; r < inputs.size(); ++r)
      EXPECT_EQ(std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(700 * r),
                                   all.begin() + static_cast<std::ptrdiff_t>(700 * (r + 1))),
                through_wire(WireFormat::int4, inputs[r]));
  });
}

/// Adds up the same gradient repeatedly: without feedback its small elements are lost every time; with it their mean is
/// right, up to the format's error of the result.
TEST(WireResidual, MakesGoodForWhatWasLost) {
  run_as_threads(2, [](straitComm_t comm, int, int) {
    constexpr std::size_t count = 200;
    constexpr int steps = 100;
    std::vector<float> gradient(count, 0.01F), residual(count, 0), result(count);
    gradient[0] = gradient[150] = 1;  // in INT4, 0.01 is far below half a step, 1/14
    straitCallOptions_t options = STRAIT_CALL_OPTIONS_INITIALIZER;
    options.wire = straitWireInt4;
    double with_feedback = 0, without = 0;
    for (int step = 0; step < steps; ++step) {
      options.residual = nullptr;
      STRAIT_EXPECT_OK(straitAllReduceWithOptions(gradient.data(), result.data(), count, straitFloat32, straitSum, comm,
                                                  nullptr, &options));
      without += result[7];
      options.residual = residual.data();
      STRAIT_EXPECT_OK(straitAllReduceWithOptions(gradient.data(), result.data(), count, straitFloat32, straitSum, comm,
                                                  nullptr, &options));
      with_feedback += result[7];
    }
    EXPECT_EQ(without, 0);
    EXPECT_NEAR(with_feedback, 0.02 * steps, 0.3);
  });
}

}  // namespace
}  // namespace strait::testing
