#include "device/memory/pinned.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace strait {
namespace {

class PinnedTest : public ::testing::Test {
 protected:
  void take(int count) {
    for (int i = 0; i < count; ++i) pinned_.take();
  }
  /// Gives back memory, and returns a weak pointer to the lease that is held together with it.
  std::weak_ptr<const void> let_go(std::size_t bytes) {
    auto mapping = Mapping::anonymous(bytes);
    EXPECT_TRUE(mapping) << mapping.error().message;
    auto lease = std::make_shared<const int>(0);
    const std::weak_ptr<const void> held = lease;
    last_ = held;
    pinned_.let_go(std::move(*mapping), std::move(lease));
    return held;
  }

  std::weak_ptr<const void> last_;
  std::vector<std::size_t> unregistered_;  ///< sizes, in bytes
  Pinned pinned_{[this](const Mapping& mapping) {
    EXPECT_FALSE(last_.expired());  // the lease counts memory until it is no longer pinned
    unregistered_.push_back(mapping.size_bytes());
  }};
};

TEST_F(PinnedTest, MemoryIsUnregisteredWithTheLastOfItAndHoldsItsLeaseUntilThen) {
  take(3);
  const auto first = let_go(4096), second = let_go(8192);
  EXPECT_TRUE(unregistered_.empty());
  EXPECT_FALSE(first.expired());
  EXPECT_FALSE(second.expired());
  const auto third = let_go(12288);
  EXPECT_EQ(unregistered_, (std::vector<std::size_t>{4096, 8192, 12288}));
  EXPECT_TRUE(first.expired());
  EXPECT_TRUE(second.expired());
  EXPECT_TRUE(third.expired());
}

/// Another communicator's kernels may wait for something that the thread that unregisters does next, even if that
/// communicator has no pinned memory itself.
TEST_F(PinnedTest, NotWhileAnotherCommunicatorIsInUse) {
  take(2);
  const auto held = let_go(4096);
  EXPECT_TRUE(unregistered_.empty());
  EXPECT_FALSE(held.expired());
  pinned_.let_go();
  EXPECT_EQ(unregistered_, std::vector<std::size_t>{4096});
  EXPECT_TRUE(held.expired());
}

TEST_F(PinnedTest, OrWhenMuchHasGathered) {
  take(3);
  const auto first = let_go(Pinned::most_unused_bytes);
  EXPECT_FALSE(first.expired());
  (void)let_go(4096);
  EXPECT_EQ(unregistered_, (std::vector<std::size_t>{Pinned::most_unused_bytes, 4096}));
  EXPECT_TRUE(first.expired());
  const auto last = let_go(4096);
  EXPECT_EQ(unregistered_.size(), 3u);
  EXPECT_TRUE(last.expired());
}

}  // namespace
}  // namespace strait
