// Random faults of host ranks, at random moments.
#include "fault/hunt.hpp"
#include "fault/leftovers.hpp"

namespace strait::testing::hunt {
namespace {

class HostSide {
 public:
  HostSide(int, const Round& round)
      : round_(round),
        input_(round.limits.most_bytes / sizeof(std::int32_t)),
        output_(round.limits.most_bytes / sizeof(std::int32_t)) {}
  straitConfig_t config() const { return round_.config(); }
  straitStream_t stream() const { return nullptr; }
  void set(const std::vector<std::int32_t>& input) {
    std::copy(input.begin(), input.end(), input_.begin());
    std::fill(output_.begin(), output_.end(), -1);
  }
  std::vector<std::int32_t> get(std::size_t count) const {
    return {output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  straitResult_t run(const Call& call, straitComm_t comm, int rank) {
    return make(call, input_.data(), output_.data(), comm, rank, nullptr);
  }

 private:
  const Round& round_;
  std::vector<std::int32_t> input_, output_;
};

class FaultHunt : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FaultHunt, ::testing::Values(2, 3, 5));

TEST_P(FaultHunt, EveryRankIsToldAndNothingStays) {
  const Leftovers leftovers;
  run<HostSide>({.ranks = GetParam()}, 5);
  EXPECT_EQ(leftovers.that_stay(), "");
}

}  // namespace
}  // namespace strait::testing::hunt
