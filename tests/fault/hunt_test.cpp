// Random faults of host ranks at random moments.
#include "fault/hunt.hpp"
#include "fault/leftovers.hpp"
#include "support/sanitizers.hpp"

namespace strait::testing::hunt {
namespace {

class HostSide {
 public:
  HostSide(int, const Round& round)
      : round_(round), input_(round.limits.calls.most_bytes), output_(round.limits.calls.most_bytes) {
    STRAIT_EXPECT_OK(straitMemAlloc(&memory_, memory_bytes));
  }
  ~HostSide() { STRAIT_EXPECT_OK(straitMemFree(memory_)); }
  HostSide(const HostSide&) = delete;
  HostSide& operator=(const HostSide&) = delete;
  straitConfig_t config() const { return round_.config(); }
  straitStream_t stream() const { return nullptr; }
  void set(const Bytes& input) {
    std::copy(input.begin(), input.end(), input_.begin());
    std::fill(output_.begin(), output_.end(), std::byte{0xa5});
  }
  Bytes get(std::size_t count) const { return {output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(count)}; }
  straitResult_t run(const Call& call, straitComm_t comm, int rank) {
    return make(call, {input_.data(), output_.data(), memory_, memory_bytes}, comm, rank, nullptr);
  }

 private:
  static constexpr std::size_t memory_bytes = 1 << 16;
  const Round& round_;
  Bytes input_, output_;
  void* memory_ = nullptr;
};

class FaultHunt : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FaultHunt, ::testing::Values(2, 3, 5));

TEST_P(FaultHunt, EveryRankIsToldAndNothingStays) {
  const Leftovers leftovers;
  const CallLimits calls{.ranks = GetParam(),
                         .wires = {WireFormat::off, WireFormat::int8, WireFormat::fp8, WireFormat::int4}};
  Limits limits{.calls = calls};
  // Between two calls a sanitizer's build may check results for longer than the usual deadline.
  if (is_sanitized) limits.deadline_ms = 2000;
  run<HostSide>(limits, 5);
  EXPECT_EQ(leftovers.that_stay(), "");
}

}  // namespace
}  // namespace strait::testing::hunt
