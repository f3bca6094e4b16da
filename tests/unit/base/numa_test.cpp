#include "base/numa.hpp"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <vector>

#include "base/mapping.hpp"
#include "base/unique_fd.hpp"

namespace strait {
namespace {

struct Policy {
  int mode = -1;
  std::vector<unsigned long> nodes = std::vector<unsigned long>(64);
};

Policy policy_at(const std::byte* address) {
  Policy policy;
  EXPECT_EQ(syscall(SYS_get_mempolicy, &policy.mode, policy.nodes.data(), policy.nodes.size() * sizeof(long) * CHAR_BIT,
                    address, MPOL_F_ADDR),
            0);
  return policy;
}

class NumaPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    int mode = 0;
    if (syscall(SYS_get_mempolicy, &mode, nullptr, 0, nullptr, 0) != 0 && (errno == EPERM || errno == ENOSYS))
      GTEST_SKIP() << "the system does not tell of NUMA policies (seccomp, or a kernel without NUMA)";
    fd_ = UniqueFd(memfd_create("places", MFD_CLOEXEC));
    ASSERT_EQ(ftruncate(fd_.get(), static_cast<off_t>(4 * page_)), 0);
    memory_ = std::move(*Mapping::of_file(fd_.get(), 4 * page_));
  }

  const std::size_t page_ = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  UniqueFd fd_;
  Mapping memory_;
};

TEST_F(NumaPlaces, WholePagesOfTheRangePreferTheNode) {
  const Status placed = prefer_numa_node(memory_.data() + page_ - 1, 2 * page_ + 2, 0);
  ASSERT_TRUE(placed) << placed.error().message;
  for (const std::size_t page : {1u, 2u}) {
    const Policy policy = policy_at(memory_.data() + page * page_);
    EXPECT_EQ(policy.mode, MPOL_PREFERRED) << page;
    EXPECT_EQ(policy.nodes[0], 1u) << page;
  }
  EXPECT_EQ(policy_at(memory_.data()).mode, MPOL_DEFAULT);
  EXPECT_EQ(policy_at(memory_.data() + 3 * page_).mode, MPOL_DEFAULT);
}

TEST_F(NumaPlaces, HoldInEveryMappingOfSharedMemory) {
  ASSERT_TRUE(prefer_numa_node(memory_.data(), page_, 0));
  const auto again = Mapping::of_file(fd_.get(), 4 * page_);
  EXPECT_EQ(policy_at(again->data()).mode, MPOL_PREFERRED);
  EXPECT_EQ(policy_at(again->data() + page_).mode, MPOL_DEFAULT);
}

TEST_F(NumaPlaces, NeedAWholePage) {
  ASSERT_TRUE(prefer_numa_node(memory_.data() + 1, page_, 0));
  ASSERT_TRUE(prefer_numa_node(memory_.data() + 1, 5, 0));
  EXPECT_EQ(policy_at(memory_.data()).mode, MPOL_DEFAULT);
  EXPECT_EQ(policy_at(memory_.data() + page_).mode, MPOL_DEFAULT);
}

TEST_F(NumaPlaces, OfNodesThatAreNotThereAreRefused) {
  for (const std::uint32_t node : {63u, 64u, 1000u}) {
    const Status placed = prefer_numa_node(memory_.data(), page_, node);
    ASSERT_FALSE(placed) << node;
    EXPECT_EQ(placed.error().code, Code::system_error);
    EXPECT_NE(placed.error().message.find("NUMA node " + std::to_string(node) + " "), std::string::npos);
  }
  EXPECT_EQ(policy_at(memory_.data()).mode, MPOL_DEFAULT);
}

}  // namespace
}  // namespace strait
